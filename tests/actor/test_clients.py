"""What is on its way to a peer, and its subscriptions that wait until it takes some of it."""

import math
from dataclasses import dataclass

import anyio
import pytest

from steno_protocol import limits
from steno_protocol.commands import Open, Status, Unsubscribe
from steno_protocol.errors import Busy, StenoError
from steno_protocol.messages import encode_request
from steno_protocol.positions import Position
from stenod.api.clients import Crowded, InFlightFrames, Peer, SendBudget, Subscription
from stenod.feed.feed import Subscriber
from support.daemon_in_process import DaemonInProcess
from support.lines import append, user
from support.simulated_disk import SimulatedDisk
from support.writing import Desk

pytestmark = pytest.mark.anyio

SMALL = 1000

SOCKET = DaemonInProcess(SimulatedDisk())
"""The peers of these tests are connected to a socket that takes everything."""


@dataclass
class Lent:
    """A frame that a socket has, until the test takes it."""

    done: bool = False


def peers_of(budget: SendBudget) -> list[Peer]:
    """Two peers that share a budget."""
    return [Peer(SOCKET, name, 0.0, in_flight=InFlightFrames(budget)) for name in (b"p", b"other")]


def lend(peer: Peer, size: int) -> Lent:
    """Send a frame that is lent."""
    frame = Lent()
    peer.in_flight.add(frame, size)
    return frame


def test_large_frames_are_lent_and_a_small_one_behind_many() -> None:
    peer = Peer(SOCKET, b"p", 0.0)
    assert peer.in_flight.is_lent(limits.LENT_FRAME_BYTES)
    for _ in range(limits.PEER_PROOF_BYTES // SMALL + 1):
        assert not peer.in_flight.is_lent(SMALL)
        peer.in_flight.copied(SMALL)
    assert peer.in_flight.is_lent(SMALL)
    lend(peer, SMALL)
    assert not peer.in_flight.is_lent(SMALL)


def test_what_was_copied_is_on_its_way_until_a_later_frame_was_taken() -> None:
    peer = Peer(SOCKET, b"p", 0.0)
    peer.in_flight.copied(SMALL)
    first = lend(peer, 70_000)
    peer.in_flight.copied(3)
    assert peer.in_flight.bytes == SMALL + 70_000 + 3
    first.done = True
    assert peer.in_flight.bytes == 3


def test_a_deaf_client_loses_events_first_and_then_read_replies() -> None:
    peer = Peer(SOCKET, b"p", 0.0)
    lend(peer, limits.PEER_EVENTS_BYTES_MAX)
    assert not peer.takes_events
    peer.check_takes()
    frame = lend(peer, limits.PEER_LOANS_BYTES_MAX)
    with pytest.raises(Busy, match="receive them"):
        peer.check_takes()
    frame.done = True
    assert not peer.takes_events, "the one before it was not taken"


def test_a_deaf_client_has_an_equal_share_of_the_send_budget() -> None:
    untaken = SendBudget()
    deaf = [Peer(SOCKET, b"p", 0.0, in_flight=InFlightFrames(untaken)) for _ in range(64)]
    part = limits.UNTAKEN_BYTES_MAX // len(deaf)
    assert part < limits.PEER_EVENTS_BYTES_MAX
    frames = [lend(peer, part) for peer in deaf[1:]]
    assert all(peer.takes_events for peer in deaf), "there is room for one more"

    frames.append(lend(deaf[0], part))
    for peer in deaf:
        assert not peer.takes_events
        with pytest.raises(Busy):
            peer.check_takes()
    other = Peer(SOCKET, b"other", 0.0, in_flight=InFlightFrames(untaken))
    other.check_takes()
    assert other.takes_events

    # Nobody asks for this peer: it is found out when the others want to know.
    frames[0].done = True
    assert deaf[5].takes_events
    lend(deaf[1], part)
    assert not deaf[5].takes_events
    deaf[2].in_flight.forget_all()
    assert deaf[5].takes_events


def test_a_block_is_as_large_as_there_is_room_beside_what_all_leave_untaken() -> None:
    untaken = SendBudget()
    peer, other = (
        Peer(SOCKET, name, 0.0, in_flight=InFlightFrames(untaken)) for name in (b"p", b"other")
    )
    most = limits.SUBSCRIPTION_WINDOW_BYTES_MAX
    assert peer.in_flight.room_for(most) == most
    frame = lend(other, limits.UNTAKEN_BYTES_MAX - limits.MIB)
    assert peer.in_flight.room_for(most) == limits.MIB
    assert peer.in_flight.room_for(1) == 1
    lend(other, 2 * limits.MIB)
    assert peer.in_flight.room_for(most) == limits.CROWDED_BLOCK_BYTES
    frame.done = True
    assert peer.in_flight.room_for(most) == most


def test_what_is_being_read_for_a_peer_counts_as_if_it_were_on_its_way() -> None:
    untaken = SendBudget()
    peer, other = (
        Peer(SOCKET, name, 0.0, in_flight=InFlightFrames(untaken)) for name in (b"p", b"other")
    )
    lend(other, SMALL)
    with peer.in_flight.expected(limits.UNTAKEN_BYTES_MAX):
        with pytest.raises(Busy):
            peer.check_takes()
        assert other.takes_events
        lend(other, limits.UNTAKEN_BYTES_MAX // 2)
        assert not other.takes_events
    peer.check_takes()
    assert peer.in_flight.bytes == 0
    assert untaken.part_of(1) == 1


async def test_what_is_on_its_way_to_a_peer_that_is_forgotten_counts_for_nobody() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    for identity in (b"gone", b"other"):
        daemon.handle(encode_request(b"s", Status(), ()), identity)
    gone, other = daemon.router.peers.values()
    lend(other, SMALL)
    lend(gone, limits.UNTAKEN_BYTES_MAX)
    lend(other, limits.UNTAKEN_BYTES_MAX // 2)
    with pytest.raises(Busy):
        other.check_takes()
    daemon.router.forget(gone)
    assert (
        other.in_flight._send_budget.part_of(limits.UNTAKEN_BYTES_MAX) == limits.UNTAKEN_BYTES_MAX
    )


async def test_subscriptions_wait_while_their_peer_takes_nothing_and_go_on_by_themselves() -> None:
    async with Desk().open() as desk:
        peer = Peer(SOCKET, b"p", 0.0)
        refusals: list[StenoError] = []
        crowded = Crowded(desk.spawn)
        subscriber, reader = desk.subscribe()
        subscriber.takes = lambda: crowded.takes_events(peer)
        peer.subscriptions["s"] = Subscription("demo", desk.feed, subscriber, refusals.append)
        await desk.do(append("k1"), user("one"))
        await desk.wait_for(lambda: reader.data.count(b"\n") == 1)

        frame = lend(peer, limits.PEER_EVENTS_BYTES_MAX)
        for number in range(3):
            await desk.do(append(f"more-{number}"), user("more"))
        await desk.settle()
        assert reader.data.count(b"\n") == 1
        assert subscriber.stalled_since is not None

        frame.done = True
        with anyio.fail_after(10):
            await desk.wait_for(lambda: reader.data.count(b"\n") == 4)
        assert subscriber.stalled_since is None


async def test_many_stalled_followers_do_not_slow_a_commit() -> None:
    async with Desk().open() as desk:
        for _ in range(2 * limits.FANOUT_MAX):
            subscriber, _ = desk.subscribe("now")
            subscriber.takes = lambda: False
        await desk.do(append("k1"), user("one"))
        await desk.settle()
        spawn = desk.feed._spawn
        spawned: list[object] = []
        desk.feed._spawn = lambda work: (spawned.append(work), spawn(work))[1]
        for number in range(5):
            await desk.do(append(f"more-{number}"), user("more"))
            await desk.settle()
        assert len(spawned) <= 5


async def test_a_client_without_subscriptions_is_not_polled() -> None:
    looks: list[object] = []
    peer = Peer(SOCKET, b"p", 0.0)
    crowded = Crowded(looks.append)
    lend(peer, limits.PEER_EVENTS_BYTES_MAX)
    assert not crowded.takes_events(peer)
    assert not crowded.takes_events(peer)
    (look,) = looks
    assert callable(look)
    with anyio.fail_after(10):
        await look()
    assert not crowded.takes_events(peer)
    assert len(looks) == 2


@dataclass
class Cable:
    """A connection, until the test ends it."""

    stands: bool = True


async def test_a_peer_is_sent_nothing_to_learn_whether_it_is_there() -> None:
    """Who is idle for months and takes in nothing meanwhile would keep all of it in its memory."""
    cable = Cable()
    daemon = DaemonInProcess(SimulatedDisk())
    daemon.link_of = lambda _: cable
    async with daemon.running():
        daemon.handle(encode_request(b"s", Status(), ()))
        sent = len(daemon.sizes)
        for _ in range(3):
            daemon.router.forget_gone()
        assert len(daemon.sizes) == sent
        assert len(daemon.router.peers) == 1

        cable.stands = False
        daemon.router.forget_gone()
        assert not daemon.router.peers


async def test_a_gone_client_is_evicted_before_a_present_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PEERS_MAX", 3)
    monkeypatch.setattr(limits, "PEERS_LOOK_S", math.inf)
    cables: dict[bytes, Cable] = {}
    daemon = DaemonInProcess(SimulatedDisk())
    daemon.link_of = lambda identity: cables.setdefault(identity, Cable())

    def come(*names: bytes) -> None:
        for name in names:
            daemon.handle(encode_request(name, Unsubscribe(subscription="s"), ()), identity=name)

    def known() -> list[bytes]:
        return [peer.identity for peer in daemon.router.peers.values()]

    async with daemon.running():
        come(b"first", b"second", b"third")
        cables[b"second"].stands = False
        come(b"fourth")
        assert known() == [b"first", b"third", b"fourth"]
        come(b"fifth")
        assert known() == [b"third", b"fourth", b"fifth"]
        # Nobody was gone at the last look, and it is too soon for another one.
        cables[b"fifth"].stands = False
        come(b"sixth")
        assert known() == [b"fourth", b"fifth", b"sixth"]


async def test_a_revoked_follower_is_refused_without_any_event() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    daemon.link_of = lambda _: Cable()
    async with daemon.running():
        name = b"o"
        daemon.handle(encode_request(name, Open(session="demo"), ()))
        await daemon.wait_for_answer(name)
        peer = next(iter(daemon.router.peers.values()))
        told: list[StenoError] = []
        (writer,) = daemon.registry.writers("demo")
        peer.subscriptions["f"] = Subscription(
            "demo", writer.feed, Subscriber(never, Position(0, 0), 1), told.append
        )
        daemon.router.forget_gone()
        assert not told
        peer.user = "a key that was taken off the list"
        daemon.router.forget_gone()
        assert [each.code for each in told] == ["unauthorized"]


def never(*_: object) -> bool:
    """Nothing goes out."""
    return False

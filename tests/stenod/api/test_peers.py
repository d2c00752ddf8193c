"""Frames in flight to a peer, and subscriptions that wait for room."""

import math
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from steno_protocol import limits
from steno_protocol.commands import Open, Status, Unsubscribe
from steno_protocol.errors import Busy, StenoError
from steno_protocol.messages import encode_request
from steno_protocol.positions import Position
from stenod.api.peers import InFlightFrames, PausedPeers, Peer, SendBudget, Subscription
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


def lend(peer: Peer, size: int) -> Lent:
    """Send a frame that is lent."""
    frame = Lent()
    peer.in_flight.add_tracked(frame, size)
    return frame


def test_large_frames_are_lent_and_a_small_one_behind_many() -> None:
    peer = Peer(SOCKET, b"p", 0.0)
    assert peer.in_flight.is_tracked(limits.TRACKED_FRAME_BYTES)
    for _ in range(limits.UNTRACKED_BYTES_MAX // SMALL + 1):
        assert not peer.in_flight.is_tracked(SMALL)
        peer.in_flight.add_copied(SMALL)
    assert peer.in_flight.is_tracked(SMALL)
    lend(peer, SMALL)
    assert not peer.in_flight.is_tracked(SMALL)


def test_copied_frame_is_in_flight_until_a_later_frame_is_received() -> None:
    peer = Peer(SOCKET, b"p", 0.0)
    peer.in_flight.add_copied(SMALL)
    first = lend(peer, 70_000)
    peer.in_flight.add_copied(3)
    assert peer.in_flight.bytes == SMALL + 70_000 + 3
    first.done = True
    assert peer.in_flight.bytes == 3


def test_a_deaf_client_loses_events_first_and_then_read_replies() -> None:
    peer = Peer(SOCKET, b"p", 0.0)
    lend(peer, limits.PEER_EVENTS_BYTES_MAX)
    assert not peer.accepts_events
    peer.check_backpressure()
    frame = lend(peer, limits.PEER_LOANS_BYTES_MAX)
    with pytest.raises(Busy, match="receive them"):
        peer.check_backpressure()
    frame.done = True
    assert not peer.accepts_events, "the one before it was not taken"


async def test_a_read_waits_until_an_earlier_reply_counts_as_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PEER_ROOM_WAIT_S", math.inf)
    monkeypatch.setattr(limits, "PEER_CHECK_S", 0)
    peer = Peer(SOCKET, b"p", 0.0)
    frame = lend(peer, limits.PEER_LOANS_BYTES_MAX)
    has_room = False

    async def wait() -> None:
        nonlocal has_room
        await peer.wait_for_room()
        has_room = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        while peer.full_since_s is None:
            await anyio.lowlevel.checkpoint()
        assert not has_room
        frame.done = True
    assert has_room
    assert peer.full_since_s is None


async def test_all_reads_of_a_deaf_client_are_refused_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PEER_ROOM_WAIT_S", 0.01)
    peer = Peer(SOCKET, b"p", 0.0)
    lend(peer, limits.PEER_LOANS_BYTES_MAX)
    with anyio.fail_after(60), pytest.raises(Busy, match="receive them"):
        await peer.wait_for_room()
    # The first one waited for all.
    monkeypatch.setattr(limits, "PEER_CHECK_S", math.inf)
    with anyio.fail_after(60), pytest.raises(Busy, match="receive them"):
        await peer.wait_for_room()


def test_a_deaf_client_has_an_equal_share_of_the_send_budget() -> None:
    untaken = SendBudget()
    stalled = [Peer(SOCKET, b"p", 0.0, in_flight=InFlightFrames(untaken)) for _ in range(64)]
    part = limits.UNREAD_BYTES_MAX // len(stalled)
    assert part < limits.PEER_EVENTS_BYTES_MAX
    frames = [lend(peer, part) for peer in stalled[1:]]
    assert all(peer.accepts_events for peer in stalled), "there is room for one more"

    frames.append(lend(stalled[0], part))
    for peer in stalled:
        assert not peer.accepts_events
        with pytest.raises(Busy):
            peer.check_backpressure()
    other = Peer(SOCKET, b"other", 0.0, in_flight=InFlightFrames(untaken))
    other.check_backpressure()
    assert other.accepts_events

    # No request concerns this peer: its frames are counted when the others need room.
    frames[0].done = True
    assert stalled[5].accepts_events
    lend(stalled[1], part)
    assert not stalled[5].accepts_events
    stalled[2].in_flight.release_all()
    assert stalled[5].accepts_events


def test_block_fits_the_room_beside_all_unreceived_blocks() -> None:
    untaken = SendBudget()
    peer, other = (
        Peer(SOCKET, name, 0.0, in_flight=InFlightFrames(untaken)) for name in (b"p", b"other")
    )
    most = limits.SUBSCRIPTION_WINDOW_BYTES_MAX
    assert peer.in_flight.block_size(most) == most
    frame = lend(other, limits.UNREAD_BYTES_MAX - limits.MIB)
    assert peer.in_flight.block_size(most) == limits.MIB
    assert peer.in_flight.block_size(1) == 1
    lend(other, 2 * limits.MIB)
    assert peer.in_flight.block_size(most) == limits.CROWDED_BLOCK_BYTES
    frame.done = True
    assert peer.in_flight.block_size(most) == most


async def test_frames_in_flight_to_a_forgotten_peer_do_not_count() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    for identity in (b"gone", b"other"):
        daemon.handle(encode_request(b"s", Status(), ()), identity)
    gone, other = daemon.router.peers.values()
    lend(other, SMALL)
    lend(gone, limits.UNREAD_BYTES_MAX)
    lend(other, limits.UNREAD_BYTES_MAX // 2)
    with pytest.raises(Busy):
        other.check_backpressure()
    daemon.router.forget(gone)
    assert other.in_flight._send_budget.share(limits.UNREAD_BYTES_MAX) == limits.UNREAD_BYTES_MAX


@pytest.mark.usefixtures("commit_mode")
async def test_subscriptions_wait_while_their_peer_takes_nothing_and_go_on_by_themselves() -> None:
    async with Desk().open() as desk:
        peer = Peer(SOCKET, b"p", 0.0)
        refusals: list[StenoError] = []
        crowded = PausedPeers(desk.spawn)
        subscriber, reader = desk.subscribe()
        subscriber.accepts = lambda: crowded.accepts_events(peer)
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
        with anyio.fail_after(60):
            await desk.wait_for(lambda: reader.data.count(b"\n") == 4)
        assert subscriber.stalled_since is None


@pytest.mark.usefixtures("commit_mode")
async def test_many_stalled_followers_do_not_slow_a_commit() -> None:
    async with Desk().open() as desk:
        for _ in range(2 * limits.FANOUT_MAX):
            subscriber, _ = desk.subscribe("now")
            subscriber.accepts = lambda: False
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
    crowded = PausedPeers(looks.append)
    lend(peer, limits.PEER_EVENTS_BYTES_MAX)
    assert not crowded.accepts_events(peer)
    assert not crowded.accepts_events(peer)
    (look,) = looks
    assert callable(look)
    with anyio.fail_after(60):
        await look()
    assert not crowded.accepts_events(peer)
    assert len(looks) == 2


@dataclass
class Cable:
    """A connection, until the test ends it."""

    is_open: bool = True


async def test_a_peer_is_sent_nothing_to_learn_whether_it_is_there() -> None:
    """A client that is idle for months would keep every probe in its memory."""
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

        cable.is_open = False
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
        cables[b"second"].is_open = False
        come(b"fourth")
        assert known() == [b"first", b"third", b"fourth"]
        come(b"fifth")
        assert known() == [b"third", b"fourth", b"fifth"]
        # All peers were connected at the last look, and the next look is not due.
        cables[b"fifth"].is_open = False
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
        errors: list[StenoError] = []
        (writer,) = daemon.registry.writers("demo")
        peer.subscriptions["f"] = Subscription(
            "demo", writer.feed, Subscriber(never, Position(0, 0), 1), errors.append
        )
        daemon.router.forget_gone()
        assert not errors
        peer.user = "a key that was taken off the list"
        daemon.router.forget_gone()
        assert [each.code for each in errors] == ["unauthorized"]


def never(*_: object) -> bool:
    """Nothing goes out."""
    return False

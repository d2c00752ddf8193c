"""The router: replies during a drain, revoked clients, bursts and followers."""

import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import anyio.lowlevel
import pytest
from msgspec import structs

from steno_protocol import limits, records
from steno_protocol.commands import (
    Append,
    Clear,
    Clients,
    Command,
    Drain,
    Hello,
    Open,
    Stat,
    Stats,
    Subscribe,
    Unsubscribe,
    encode_command,
)
from steno_protocol.credentials import Allowed
from steno_protocol.events import Records
from steno_protocol.messages import OutgoingRequest, encode_request, encode_requests
from steno_protocol.replies import (
    Ack,
    ClientsReport,
    ErrorReply,
    SessionStat,
    StatsReport,
    Subscribed,
    Welcome,
)
from steno_protocol.rights import Right
from stenod.api.peers import InFlightFrames, Sent
from support.asking import ask, close_all
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import SESSION, append, user
from support.remote_access import admit
from support.simulated_disk import SimulatedDisk
from support.stored_session import fresh_key

pytestmark = pytest.mark.anyio

LAPTOP = "L" * 40
HELLO = Hello(protocol=2)
FOLLOW = Subscribe(session=SESSION, subscription="mine")


# --- the end -------------------------------------------------------------------------------------


async def test_draining_daemon_answers_hello_until_all_is_on_disk() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        assert isinstance(await ask(daemon, b"1", HELLO), Welcome)
        daemon.router.begin_drain()
        assert isinstance(await ask(daemon, b"2", HELLO), Welcome)
        daemon.router.finish_drain()
        refused = await ask(daemon, b"3", HELLO)

    assert isinstance(refused, ErrorReply)
    assert (refused.code, refused.outcome) == ("shutting_down", "not_applied")


@pytest.mark.parametrize("is_open", [True, False])
async def test_behind_a_drain_in_the_same_burst_nothing_is_taken(*, is_open: bool) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", Open(session=SESSION))
        if not is_open:
            await close_all(daemon)
        burst = [
            encode_request(b"before", append(fresh_key(1)), [user("one")]),
            encode_request(b"drain", Drain(), []),
            encode_request(b"behind", append(fresh_key(2)), [user("two")]),
            encode_request(b"made", Open(session="another"), []),
        ]
        for message in burst:
            daemon.router.handle(daemon, b"peer", message)
        daemon.registry.commit()
        for name in (b"before", b"behind", b"made"):
            await daemon.wait_for_answer(name)
        assert b"drain" not in daemon.answers
        daemon.router.begin_drain()
        await daemon.registry.wait_quiet()
        daemon.router.finish_drain()
        await daemon.wait_for_answer(b"drain")

    refused = [b"behind", b"made"] if is_open else [b"before", b"behind", b"made"]
    for name in refused:
        (answer,) = daemon.answers[name]
        assert isinstance(answer, ErrorReply)
        assert (answer.code, answer.outcome) == ("shutting_down", "not_applied")
    assert isinstance(daemon.answers[b"before"][0], Ack) == is_open
    assert daemon.disk.content(f"{ROOT}/sessions/{SESSION}/context.jsonl").count(b"\n") == is_open


@pytest.mark.parametrize("file", ["context", "wire"])
@pytest.mark.parametrize("is_open", [True, False])
async def test_a_subscription_during_a_drain_does_not_delay_the_end(
    file: Literal["context", "wire"], *, is_open: bool
) -> None:
    for turns in range(6):
        daemon = DaemonInProcess(SimulatedDisk())
        async with daemon.running():
            await ask(daemon, b"o", Open(session=SESSION))
            if not is_open:
                await close_all(daemon)
            follow = Subscribe(session=SESSION, subscription="mine", file=file)
            daemon.handle(encode_request(b"f", follow, []))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            daemon.router.begin_drain()
            await daemon.wait_for_answer(b"f")
            await settle()
            assert not daemon.registry._serving, f"{turns} turns behind the request"


# --- revoked clients -----------------------------------------------------------------------------


async def settle() -> None:
    """Let every task run until it waits for an event that only the test can cause."""
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


async def test_request_of_a_revoked_client_ends_its_subscriptions(
    tmp_path: Path,
) -> None:
    daemon = DaemonInProcess(SimulatedDisk(), tmp_path)
    laptop = Allowed("laptop", LAPTOP, Right.READ)
    admit(tmp_path, laptop)
    async with daemon.running():
        await ask(daemon, b"open", Open(session=SESSION))
        assert isinstance(await ask(daemon, b"follow", FOLLOW, user=LAPTOP), Subscribed)
        await ask(daemon, b"a1", append("k1"), user("one"))
        await settle()
        before = list(daemon.answers[b"follow"])
        assert any(isinstance(event, Records) for event in before)

        admit(tmp_path)
        refused = await ask(daemon, b"hello", HELLO, user=LAPTOP)
        admit(tmp_path, laptop)
        await ask(daemon, b"a2", append("k2"), user("two"))
        await settle()

        assert isinstance(refused, ErrorReply)
        assert (refused.code, refused.outcome) == ("unauthorized", "not_applied")
        *others, last = daemon.answers[b"follow"]
        assert others == before
        assert isinstance(last, ErrorReply)
        assert (last.code, last.session) == ("unauthorized", SESSION)
        gone = await ask(daemon, b"end", Unsubscribe(subscription="mine"), user=LAPTOP)
        assert isinstance(gone, ErrorReply)
        assert gone.code == "not_found"


# --- several requests in one message -------------------------------------------------------------


def together(*requests: tuple[bytes, Command, Sequence[bytes]]) -> list[bytes]:
    return encode_requests(
        [OutgoingRequest(name, encode_command(command), taken) for name, command, taken in requests]
    )


async def test_each_request_of_a_message_is_answered_and_replies_travel_together() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"open", Open(session=SESSION))
        del daemon.sizes[:]
        bad = Append(session=SESSION, key="bad")
        daemon.handle(
            together(
                (b"a1", append("k1"), [user("one"), user("two")]),
                (b"a2", bad, [b"{}"]),
                (b"a3", append("k3"), [user("three")]),
                (b"hello", HELLO, []),
            )
        )
        names = (b"a1", b"a2", b"a3", b"hello")
        for name in names:
            await daemon.wait_for_answer(name)
        assert {*daemon.sizes} == {1}
        assert len(daemon.sizes) <= 2
        first, refused, last, greeting = (daemon.answers[name][0] for name in names)
        await ask(daemon, b"a4", append("k4"), user("four"))

    assert isinstance(first, Ack)
    assert (first.first, first.last) == ("0:0", "0:1")
    assert isinstance(refused, ErrorReply)
    assert (refused.code, refused.outcome) == ("bad_request", "not_applied")
    assert isinstance(last, Ack)
    assert last.first == "0:2"
    assert isinstance(greeting, Welcome)
    lines = daemon.disk.tree()[f"{ROOT}/sessions/{SESSION}/context.jsonl"].splitlines()
    assert [stamp.key for stamp in map(records.stamp_of, lines) if stamp] == [
        "k1",
        "k1",
        "k3",
        "k4",
    ]


async def test_each_request_of_a_message_counts_and_unreadable_ones_are_ignored() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        daemon.handle(together((b"1", HELLO, []), (b"2", HELLO, []), (b"3", HELLO, [b"{}"])))
        daemon.handle([b"STENO/2\n[[]]"])
        daemon.handle([b""])
        stats = await ask(daemon, b"stats", Stats())
        clients = await ask(daemon, b"clients", Clients())

    assert isinstance(stats, StatsReport)
    assert stats.ignored == 2
    assert isinstance(clients, ClientsReport)
    assert [client.requests for client in clients.clients] == [5]
    assert isinstance(daemon.answers[b"3"][0], ErrorReply)


async def test_every_message_counts_in_its_burst_even_an_empty_one() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        assert daemon.router.handle(daemon, b"peer", together()) == 1
        assert daemon.router.handle(daemon, b"peer", [b""]) == 1
        assert daemon.router.handle(daemon, b"peer", encode_request(b"1", HELLO, ())) == 1
        two = together((b"2", HELLO, []), (b"3", HELLO, []))
        assert daemon.router.handle(daemon, b"peer", two) == 2


async def test_a_peer_waits_until_each_of_its_commands_has_an_answer() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        waits: list[bool] = []
        send = daemon.send

        def sending(identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
            waits.append(daemon.router.is_waiting(daemon, identity))
            return send(identity, frames, in_flight)

        assert not daemon.router.is_waiting(daemon, b"peer")
        await ask(daemon, b"open", Open(session=SESSION))
        # The session is open, so these are answered together.
        daemon.send = sending  # type: ignore[method-assign]
        repeated = append("k1")
        daemon.handle(
            together(
                (b"1", repeated, [user("one")]),
                (b"2", repeated, [user("one")]),
                (b"3", append("k3", expect="7:0"), [user("three")]),
                (b"4", append("k4"), [b"no JSON"]),
            )
        )
        # This one has to wait for another session's files.
        daemon.handle(encode_request(b"5", Clear(session="none", key="k5"), []))
        assert daemon.router.is_waiting(daemon, b"peer")
        # Which session answers first is not said.
        for each in (b"1", b"2", b"3", b"4", b"5"):
            await daemon.wait_for_answer(each)
        assert not daemon.router.is_waiting(daemon, b"peer")

    # Each message of answers but the last leaves a command without its own.
    assert len(waits) > 1
    assert waits == [True] * (len(waits) - 1) + [False]


async def test_each_request_of_a_message_needs_its_right(tmp_path: Path) -> None:
    daemon = DaemonInProcess(SimulatedDisk(), tmp_path)
    admit(tmp_path, Allowed("laptop", LAPTOP, Right.READ))
    async with daemon.running():
        await ask(daemon, b"open", Open(session=SESSION))
        both = together((b"1", HELLO, []), (b"2", append("k1"), [user("one")]))
        daemon.handle(both, user=LAPTOP)

    assert isinstance(daemon.answers[b"1"][0], Welcome)
    refused = daemon.answers[b"2"][0]
    assert isinstance(refused, ErrorReply)
    assert refused.code == "unauthorized"


# --- remains of refused requests -----------------------------------------------------------------

LARGE = user("x" * 100)
NO_SESSION = Append(session="missing", key="k1")


@pytest.mark.parametrize(
    ("command", "records"),
    [
        (Stat(session=SESSION), [LARGE]),
        (append("k1"), [LARGE] * (limits.BATCH_RECORDS_MAX + 1)),
        (append("k1", expect="0:9"), [LARGE]),
        (append("k1"), [LARGE, b"{}"]),
        (NO_SESSION, [LARGE]),
        (structs.replace(NO_SESSION, repeat=True), [LARGE]),
        (structs.replace(NO_SESSION, session=".."), [LARGE]),
    ],
)
async def test_nothing_is_kept_of_a_message_that_was_refused(
    command: Command, records: list[bytes]
) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", Open(session=SESSION))
        gc.collect()
        gc.disable()
        try:
            before = sys.getrefcount(LARGE)
            refused = await ask(daemon, b"1", command, *records)
            await settle()
            after = sys.getrefcount(LARGE)
        finally:
            gc.enable()

    assert isinstance(refused, ErrorReply)
    assert after == before


# --- a client that asks for more than its share --------------------------------------------------


async def test_one_connection_takes_no_more_than_its_share_of_the_reads(tmp_path: Path) -> None:
    daemon = DaemonInProcess(SimulatedDisk(), tmp_path)
    admit(tmp_path, Allowed("laptop", LAPTOP, Right.READ))
    stat = Stat(session=SESSION)
    names = [b"r%d" % number for number in range(limits.PEER_READERS_MAX + 50)]
    async with daemon.running():
        await ask(daemon, b"open", Open(session=SESSION))
        for name in names:
            daemon.handle(encode_request(name, stat, ()))
        other = await ask(daemon, b"other", stat, user=LAPTOP)
        for name in names:
            await daemon.wait_for_answer(name)
        again = await ask(daemon, b"again", stat)

    assert isinstance(other, SessionStat)
    assert isinstance(again, SessionStat)
    answers = [daemon.answers[name][0] for name in names]
    refused = [answer for answer in answers if isinstance(answer, ErrorReply)]
    assert {answer.code for answer in refused} == {"busy"}
    assert len(refused) == 50


async def test_each_copy_of_a_request_is_refused_and_all_get_one_success() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        for name, command in ((b"stat", Stat(session=SESSION)), (b"open", Open(session=SESSION))):
            for _ in range(3):
                daemon.handle(encode_request(name, command, ()))
            await daemon.wait_for_answer(name)

    # A client waits for the answers of copies that were not refused.
    assert [each.code for each in daemon.answers[b"stat"] if isinstance(each, ErrorReply)] == [
        "not_found"
    ] * 3
    assert len(daemon.answers[b"open"]) == 1


async def test_a_flood_of_copies_of_one_request_does_not_delay_others() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    flood = encode_request(b"stat", Stat(session=SESSION), ())
    async with daemon.running():
        for _ in range(2 * limits.ANSWERS_TOGETHER_MAX):
            daemon.handle(flood)
        await daemon.wait_for_answer(b"stat")

    # They are answered in one turn.
    assert len(daemon.answers[b"stat"]) == limits.ANSWERS_TOGETHER_MAX


async def test_subscriptions_that_begin_together_are_no_more_than_a_connection_may_have() -> None:
    disk = SimulatedDisk()
    before = DaemonInProcess(disk)
    async with before.running():
        for session in (SESSION, "closed"):
            await ask(before, session.encode(), Open(session=session))
    daemon = DaemonInProcess(disk)
    first = [b"f%d" % number for number in range(10)]
    together = [b"t%d" % number for number in range(limits.SUBSCRIPTIONS_PER_PEER_MAX)]
    async with daemon.running():
        for name in first:
            await ask(daemon, name, Subscribe(session=SESSION, subscription=name.decode()))
        # They all wait for its files to be opened.
        for name in together:
            follow = Subscribe(session="closed", subscription=name.decode())
            daemon.handle(encode_request(name, follow, ()))
        for name in together:
            await daemon.wait_for_answer(name)

    answers = [daemon.answers[name][0] for name in (*first, *together)]
    begun = [answer for answer in answers if isinstance(answer, Subscribed)]
    refused = [answer.code for answer in answers if isinstance(answer, ErrorReply)]
    assert len(begun) == limits.SUBSCRIPTIONS_PER_PEER_MAX
    assert refused == ["too_large"] * len(first)


async def test_the_end_of_a_subscription_takes_none_that_has_its_name_since() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", Open(session=SESSION))
        await ask(daemon, b"first", FOLLOW)
        (peer,) = daemon.router.peers.values()
        first = peer.subscriptions["mine"].subscriber
        await ask(daemon, b"second", FOLLOW)
        first.forget(first)
        clients = await ask(daemon, b"clients", Clients())

    assert isinstance(clients, ClientsReport)
    assert [client.subscriptions for client in clients.clients] == [[SESSION]]


# --- written events and their followers ----------------------------------------------------------


async def test_a_writer_that_follows_itself_waits_for_no_timer() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", Open(session=SESSION))
        await ask(daemon, b"follow", FOLLOW)
        for number in range(3):
            name = f"w{number}".encode()
            written = await ask(
                daemon, name, append(name.decode(), durability="written"), user("x")
            )
            assert isinstance(written, Ack)
            assert written.durability == "written"
            # The daemon's clock stands still, so nothing is ever due.
            await _turns_until(lambda head=written.head: _events(daemon)[-1:] == [head])


def _events(daemon: DaemonInProcess) -> list[str]:
    """The end position of each event of the follower."""
    return [each.next for each in daemon.answers[b"follow"] if isinstance(each, Records)]


async def _turns_until(fact: Callable[[], bool]) -> None:
    for _ in range(3000):
        if fact():
            return
        await anyio.lowlevel.checkpoint()
    raise AssertionError("it did not come true, however often every task had its turn")

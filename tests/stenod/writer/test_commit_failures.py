"""Failed commits, and promises when several failures coincide."""

import errno
import os
from collections.abc import Sequence

import anyio.lowlevel
import msgspec
import pytest

from steno_protocol import limits
from steno_protocol.commands import Append, Open, Subscribe
from steno_protocol.errors import ErrorCode, Held, OutcomeUnknown, StorageFailed
from steno_protocol.events import Gone, Lagged
from steno_protocol.messages import encode_request
from steno_protocol.replies import ErrorReply, SessionStat, Subscribed
from stenod.api.peers import InFlightFrames, Sent
from stenod.runtime.error_mapping import doubted, remedy_of
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from support.asking import ask, close_all, send
from support.daemon_in_process import DaemonInProcess
from support.lines import append, user, uuid7
from support.simulated_disk import ProcessKilled, SimulatedDisk
from support.stored_session import NOW_S, fresh_key

pytestmark = pytest.mark.anyio

OPEN = Open(session="demo")
FOLLOW = Subscribe(session="demo", subscription="mine")


def append_to(session: str, key: str) -> Append:
    return msgspec.structs.replace(append(key), session=session)


async def test_one_of_several_creators_by_key_is_the_creator_for_ever() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        made: list[list[bool]] = []
        for attempt in range(3):
            names = [b"%d.%d" % (attempt, number) for number in range(3)]
            for number, name in enumerate(names):
                send(daemon, name, Open(session="demo", key=f"k{number}"))
            answers = [await answered(daemon, name) for name in names]
            made.append([answer.created for answer in answers])
            await ask(daemon, b"a%d" % attempt, append_to("demo", f"a{attempt}"), user("more"))
            await close_all(daemon)
        assert made == [made[0]] * 3
        assert made[0].count(True) == 1
        send(daemon, b"x", OPEN)
        assert not (await answered(daemon, b"x")).created
        refused = await ask(daemon, b"e", Open(session="demo", exclusive=True, key="another"))
        assert isinstance(refused, ErrorReply)
        assert refused.code is ErrorCode.EXISTS


async def test_a_creator_that_lost_its_reply_gets_it_from_the_next_daemon() -> None:
    command = Open(session="team/demo", exclusive=True, key="k1")
    number = 0
    while True:
        disk = SimulatedDisk()
        first = DaemonInProcess(disk)
        disk.kill_at(len(disk.calls) + number, "after")
        try:
            async with first.running():
                send(first, b"o", command)
                for _ in range(200):
                    await anyio.lowlevel.checkpoint()
        except* ProcessKilled:
            pass
        if not disk.died:
            break
        disk.restart()
        again = DaemonInProcess(disk)
        async with again.running():
            answer = await ask(again, b"o", command)
            assert isinstance(answer, SessionStat), f"killed behind call {number}: {answer}"
            assert answer.created
        number += 1
    assert number > 10


async def answered(daemon: DaemonInProcess, name: bytes) -> SessionStat:
    """The answer to an opening."""
    await daemon.wait_for_answer(name)
    answer = daemon.answers[name][0]
    assert isinstance(answer, SessionStat)
    return answer


async def test_commands_behind_a_group_without_writes_get_replies() -> None:
    refused = b'{"role":"_unknown","content":"' + b"x" * (limits.GROUP_BYTES_MAX // 5) + b'"}'
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)
        names = [b"r%d" % number for number in range(6)]
        for number, name in enumerate(names):
            # A key that cannot have been used before, so that no file has to be looked at for it.
            command = append_to("demo", uuid7(int(NOW_S + 1) * 1000, number))
            daemon.router.handle(daemon, b"peer", encode_request(name, command, [refused]))
        daemon.registry.commit()
        for name in names:
            await daemon.wait_for_answer(name)
            assert isinstance(daemon.answers[name][0], ErrorReply)


async def test_commands_that_wait_for_their_session_are_bounded_in_bytes() -> None:
    record = user("x" * limits.RECORD_BYTES_MAX)[:-100] + b'"}'
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)
        budget = daemon.registry._services.budget
        names: Sequence[bytes] = [b"%d" % number for number in range(20)]
        for name in names:
            send(daemon, name, append_to("other", name.decode()), record)
        assert budget.taken_bytes <= limits.MAILBOX_BYTES_MAX
        for name in names:
            await daemon.wait_for_answer(name)
        codes = [answer.code for name in names for answer in errors(daemon, name)]
        assert codes.count(ErrorCode.BUSY) == 20 - limits.MAILBOX_BYTES_MAX // len(record)
        assert budget.taken_bytes == 0


def errors(daemon: DaemonInProcess, name: bytes) -> list[ErrorReply]:
    return [answer for answer in daemon.answers[name] if isinstance(answer, ErrorReply)]


async def test_refused_subscription_leaves_the_earlier_one_of_its_name() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)
        await ask(daemon, b"s1", FOLLOW)
        beyond = msgspec.structs.replace(FOLLOW, after="0:99")
        assert isinstance(await ask(daemon, b"s2", beyond), ErrorReply)
        await ask(daemon, b"a", append_to("demo", "k"), user("x"))
        kinds = [type(answer).__name__ for answer in daemon.answers[b"s1"]]
        assert kinds == ["Subscribed", "Live", "Records"]


async def test_a_client_that_left_before_the_reply_gets_no_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)

        monkeypatch.setattr(daemon, "send", lambda *_: Sent.GONE)
        send(daemon, b"s", FOLLOW)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert daemon.router.peers == {}
        assert [len(writer.feed) for writer in daemon.registry.writers("demo")] == [0]


async def test_a_late_removal_spares_a_new_client_of_the_same_name() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)
        (earlier,) = daemon.router.peers.values()
        daemon.router.forget(earlier)
        await ask(daemon, b"s", FOLLOW)
        daemon.router.forget(earlier)
        (later,) = daemon.router.peers.values()
        assert set(later.subscriptions) == {"mine"}


async def test_the_oldest_of_too_many_subscribers_is_asked_to_subscribe_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PEERS_MAX", 3)
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)
        assert isinstance(await ask(daemon, b"s", FOLLOW), Subscribed)
        for number in range(3):
            daemon.handle(encode_request(b"n%d" % number, OPEN, ()), identity=b"%d" % number)
        lagged = daemon.answers[b"s"][-1]
        assert isinstance(lagged, Lagged)
        assert "more than 3 clients" in lagged.why
        assert len(daemon.router.peers) == 3


class FullDaemon(DaemonInProcess):
    """A daemon with a client that receives nothing while its queue is full."""

    is_full = False

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """See `Socket`."""
        return Sent.FULL if self.is_full else super().send(identity, frames, in_flight)


async def test_the_end_of_a_subscription_waits_for_room() -> None:
    daemon = FullDaemon(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)
        assert isinstance(await ask(daemon, b"s", FOLLOW), Subscribed)
        (writer,) = daemon.registry.writers("demo")
        daemon.is_full = True
        writer.feed.end("the session was deleted")
        daemon.router.forget_gone()
        assert not any(isinstance(each, Gone) for each in daemon.answers[b"s"])
        daemon.is_full = False
        daemon.router.forget_gone()
        daemon.router.forget_gone()
        assert [isinstance(each, Gone) for each in daemon.answers[b"s"]].count(True) == 1


def test_a_retry_that_cannot_be_looked_up_has_an_unknown_outcome() -> None:
    error = StorageFailed("the disk refused; nothing of the command was kept", session="demo")
    outcomes = UnknownOutcomes(int(NOW_S * 1000))
    assert doubted(error, append(fresh_key()), outcomes) is error
    unknown = doubted(error, append("k"), outcomes)
    assert isinstance(unknown, OutcomeUnknown)
    assert unknown.key == "k"
    assert unknown.message.startswith("the command may have been applied when it was sent before")


def test_a_retry_is_referred_to_the_owner_that_looks_its_key_up() -> None:
    held = Held("another daemon owns it", session="demo", endpoint="tcp://10.0.0.5:7117")
    outcomes = UnknownOutcomes(int(NOW_S * 1000))
    assert doubted(held, append("k", repeat=True), outcomes) is held
    without_owner = Held("another daemon has its folder open", session="demo")
    assert isinstance(doubted(without_owner, append("k", repeat=True), outcomes), OutcomeUnknown)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errno.EIO, "repair the disk"),
        (errno.ENOSPC, "`df -i`"),
        (errno.EFBIG, "`ulimit -f`"),
        (errno.EROFS, "mount it for writing"),
        (errno.EMFILE, "`ulimit -n`"),
        (errno.EACCES, "check its owner"),
        (errno.ENOLINK, "make room or repair the disk"),
    ],
)
async def test_a_disk_error_names_the_file_and_a_remedy(error: int, remedy: str) -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await ask(daemon, b"x", OPEN)
        disk.fail_next("write", error)
        answer = await ask(daemon, b"y", append("k"), user("a"))
        assert isinstance(answer, ErrorReply)
        assert "demo/context.jsonl'; nothing of the command was kept" in answer.message
        assert remedy in answer.message
        disk.heal()


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_missing_hard_link_is_named_where_a_rewrite_needs_it(error: int) -> None:
    refused = OSError(error, os.strerror(error), "context.jsonl", None, "context_1.jsonl")
    assert "a file system with hard links" in remedy_of(refused)

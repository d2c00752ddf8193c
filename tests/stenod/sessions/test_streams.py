"""Streams of a daemon whose disk fails, or whose caller comes at a bad time."""

import errno

import pytest

from steno_protocol.commands import AppendStream, DeleteStream, Open, ReadStream, Stat, Streams
from steno_protocol.replies import Ack, Deleted, ErrorReply, Lines, SessionStat, StreamList
from support.asking import ask, ask_for, close_all, send
from support.daemon_in_process import DaemonInProcess
from support.lines import SESSION
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

NAME = "stream-notes.jsonl"


def append(key: str) -> AppendStream:
    return AppendStream(session=SESSION, stream="notes", key=key)


async def test_stream_with_a_failed_sync_is_written_again_before_it_is_listed() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        await ask(daemon, "a", append("k1"), b'{"n":1}')
        await close_all(daemon)
        daemon.disk.fail_next("fdatasync", errno.EIO, name=NAME)
        failed = await ask_for(ErrorReply, daemon, "s1", Streams(session=SESSION))
        assert failed.code == "storage_failed"
        listed = await ask_for(StreamList, daemon, "s2", Streams(session=SESSION))
        assert [(each.stream, each.records) for each in listed.streams] == [("notes", 1)]


async def test_idle_streams_are_closed_and_the_session_stays_open() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        await ask(daemon, "a", append("k1"), b'{"n":1}')
        found = daemon.registry.known(SESSION)
        assert found is not None
        assert found.opened("stream-notes") is not None
        found.retire_streams(daemon.now_s + 1)
        assert found.opened("stream-notes") is None
        assert found.opened("context") is not None
        reply = await ask(daemon, "r", ReadStream(session=SESSION, stream="notes", last=1))
        assert isinstance(reply, Lines)
        assert (reply.first, reply.head) == ("0:0", "0:1")
        again = await ask_for(Ack, daemon, "b", append("k1"), b'{"n":1}')
        assert again.duplicate


async def test_deletion_answers_queued_appends_first() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        await ask(daemon, "a", append("k1"), b'{"n":1}')
        send(daemon, "b", append("k2"), b'{"n":2}')
        deleted = await ask(daemon, "d", DeleteStream(session=SESSION, stream="notes", key="d"))
        assert isinstance(deleted, Deleted)
        [queued] = daemon.answers[b"b"]
        assert isinstance(queued, Ack)
        assert daemon.disk.content(deleted.trash).count(b"\n") == 2
        ack = await ask_for(Ack, daemon, "c", append("k3"), b'{"n":3}')
        assert ack.first == "1:0"


async def test_a_torn_tail_is_cut_before_its_stream_is_deleted() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        await ask(daemon, "a", append("k1"), b'{"n":1}')
        opened = await ask_for(SessionStat, daemon, "s", Stat(session=SESSION))
        await close_all(daemon)
        daemon.disk.foreign.append(f"{opened.folder}/{NAME}", b'{"n":2,"_id":"k')
        deleted = await ask(daemon, "d", DeleteStream(session=SESSION, stream="notes", key="d"))
        assert isinstance(deleted, Deleted)
        assert daemon.disk.content(deleted.trash) == b'{"n":1,"_id":"k1"}\n'


async def test_a_successor_takes_the_name_with_its_records_and_keys() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        await ask(daemon, "a", append("k1"), b'{"n":1}')
        await ask(daemon, "b", append("k2"), b'{"n":2}')
        kept = AppendStream(session=SESSION, stream="next", key="k2")
        await ask(daemon, "c", kept, b'{"n":2}')
        late = DeleteStream(
            session=SESSION, stream="notes", key="d", expect="0:1", successor="next"
        )
        refused = await ask_for(ErrorReply, daemon, "d", late)
        assert (refused.code, refused.head) == ("conflict", "0:2")
        replacement = DeleteStream(
            session=SESSION, stream="notes", key="e", expect="0:2", successor="next"
        )
        deleted = await ask_for(Deleted, daemon, "e", replacement)
        assert daemon.disk.content(deleted.trash).count(b"\n") == 2
        assert await ask(daemon, "f", replacement) == deleted
        again = await ask_for(Ack, daemon, "g", append("k2"), b'{"n":2}')
        assert (again.first, again.duplicate) == ("1:0", True)
        ack = await ask_for(Ack, daemon, "h", append("k3"), b'{"n":3}')
        assert ack.first == "1:1"
        listed = await ask_for(StreamList, daemon, "i", Streams(session=SESSION))
        assert [(each.stream, each.head) for each in listed.streams] == [("notes", "1:2")]


@pytest.mark.parametrize(("successor", "code"), [("notes", "bad_request"), ("other", "not_found")])
async def test_a_stream_without_another_successor_is_not_deleted(successor: str, code: str) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        await ask(daemon, "a", append("k1"), b'{"n":1}')
        deletion = DeleteStream(session=SESSION, stream="notes", key="d", successor=successor)
        refused = await ask_for(ErrorReply, daemon, "d", deletion)
        assert (refused.code, refused.outcome) == (code, "not_applied")
        reply = await ask(daemon, "r", ReadStream(session=SESSION, stream="notes", last=1))
        assert isinstance(reply, Lines)
        assert reply.head == "0:1"

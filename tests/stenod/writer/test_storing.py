"""Where a batch is stored: on the event loop in a cluster, else where `Commits` decides."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from steno_protocol import limits
from stenod.writer.mailbox import Batch
from stenod.writer.storing import store_soon
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host
from support.writing import Desk

pytestmark = pytest.mark.anyio

LINE = b'{"role":"user","content":"1"}\n'


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream()


@pytest.fixture
def host(stream: MemoryStream, tmp_path: Path) -> Host:
    return Host(stream, "one", str(tmp_path / "sessions"))


class Blocked:
    """Services that count the commits that block.

    Attributes:
        count: how many did.
        then: called before each of them.
    """

    def __init__(self) -> None:
        desk = Desk()
        desk.commits.before = self._count
        self.services = desk.services
        self.count = 0
        self.then: Callable[[], None] = lambda: None

    def _count(self) -> None:
        self.count += 1
        self.then()


def batch_of(host: Host, session: str, data: bytes = LINE, *, synced: bool = True) -> Batch:
    """A batch behind a first line, which a thread has stored."""
    opened = host.open(session)
    opened.log.append(LINE)
    opened.log.sync()
    return Batch(opened, opened.log.size, [data], 1, [], synced, data)


async def test_the_event_loop_awaits_the_commits_of_a_cluster(host: Host) -> None:
    blocked = Blocked()
    batches = [batch_of(host, "a"), batch_of(host, "b")]
    await store_soon(batches, blocked.services)
    assert blocked.count == 0
    assert [batch.error for batch in batches] == [None, None]
    assert host.content("a")["context.jsonl"] == 2 * LINE
    assert all(batch.opened.log.synced == batch.opened.log.size for batch in batches)


async def test_a_large_commit_of_a_cluster_blocks_a_thread(host: Host) -> None:
    blocked = Blocked()
    batch = batch_of(host, "a", LINE * (limits.LOOP_SYNC_BYTES_MAX // len(LINE) + 1))
    await store_soon([batch], blocked.services)
    assert blocked.count == 1
    assert batch.error is None
    assert batch.opened.log.synced == batch.opened.log.size


async def test_a_thread_waits_for_the_publication_before_a_commit(host: Host) -> None:
    blocked = Blocked()
    batch = batch_of(host, "a")
    folder = host.ownership.found("a")
    assert folder is not None
    folder.publishing.acquire()
    blocked.then = folder.publishing.release
    await store_soon([batch], blocked.services)
    assert blocked.count == 1
    assert batch.error is None
    assert host.content("a")["context.jsonl"] == 2 * LINE


async def test_a_written_batch_waits_for_nobody(host: Host, stream: MemoryStream) -> None:
    blocked = Blocked()
    batch = batch_of(host, "a", synced=False)
    stream.partition("one")
    await store_soon([batch], blocked.services)
    assert blocked.count == 0
    assert batch.error is None
    assert batch.opened.log.synced < batch.opened.log.size


async def test_an_error_of_the_journal_is_that_of_its_batch(
    host: Host, stream: MemoryStream
) -> None:
    batches = [batch_of(host, "a"), batch_of(host, "b")]
    stream.force("one", Fault.UNREACHED)
    await store_soon(batches, Blocked().services)
    assert isinstance(batches[0].error, OSError)
    assert batches[1].error is None


async def test_a_commit_without_a_thread_fails_in_each_of_its_batches(host: Host) -> None:
    def refuse() -> None:
        raise OSError(errno.EAGAIN, "the system gives the daemon no thread")

    blocked = Blocked()
    blocked.then = refuse
    large = LINE * (limits.LOOP_SYNC_BYTES_MAX // len(LINE))
    batches = [batch_of(host, "a", large), batch_of(host, "b")]
    await store_soon(batches, blocked.services)
    for batch in batches:
        assert isinstance(batch.error, OSError)
        assert batch.opened.log.synced == len(LINE)

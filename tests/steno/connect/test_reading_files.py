"""Long sessions, which clients read from the file."""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import steno
from steno._connect.safe_open import open_source
from steno_protocol import limits, paths, replies
from support.session_files import records_in

pytestmark = pytest.mark.usefixtures("daemon")

DESCRIPTORS = Path("/proc/self/fd")
LINE = b'{"role":"user","content":"%s %07d"}\n'
COUNT = 3 * limits.BLOCK_BYTES // 600


def long_session(root: Path, name: str = "demo") -> list[bytes]:
    """Write a session of some blocks that no daemon has opened; returns its lines."""
    lines = [LINE % (b"x" * 560, number) for number in range(COUNT)]
    folder = root / paths.SESSIONS / name
    folder.mkdir(parents=True)
    (folder / paths.CONTEXT).write_bytes(b"".join(lines))
    return lines


def opened_files(folder: Path) -> list[str]:
    """The session files below a folder that this process has open for reading only.

    The daemon runs in this process, too, and opens the files of its sessions for writing.
    """
    found: list[str] = []
    for descriptor in DESCRIPTORS.iterdir():
        with suppress(OSError):
            target = str(descriptor.readlink())
            mode = fcntl.fcntl(int(descriptor.name), fcntl.F_GETFL) & os.O_ACCMODE
            if target.startswith(f"{folder}/sessions/") and target.endswith(".jsonl"):
                found += [target] if mode == os.O_RDONLY else []
    return found


def connected(root: Path) -> steno.BlockingClient:
    return steno.connect_sync(root, spawn=False)


def taken(lines: Iterable[bytes], count: int) -> tuple[list[bytes], Iterator[bytes]]:
    """The first lines, and the rest."""
    rest = iter(lines)
    return [next(rest) for _ in range(count)], rest


def test_long_session_is_read_from_the_file(root: Path) -> None:
    lines = long_session(root)
    with connected(root) as client:
        session = client.open("demo", follow=False)
        first, rest = taken(session.lines(), COUNT // 2)
        assert opened_files(root) == [str(root / "sessions/demo/context.jsonl")]
        assert first + list(rest) == lines
        del rest
        assert opened_files(root) == []
        assert [record.raw for record in session.records()] == lines
        assert [record.cursor.line for record in session.records()] == list(range(COUNT))
        assert len(session.history_at().history) == COUNT
        assert list(session.lines(after="0:2000", until="0:2900")) == lines[2000:2900]


REWRITES: dict[str, Callable[[steno.BlockingSession], object]] = {
    "clear": lambda session: session.clear(),
    "clear and fill again": lambda session: (
        session.clear(),
        session.append_message([{"role": "user", "content": "y" * 900}] * 2000),
    ),
    "moved by another program": lambda session: session.file_backend.rename(
        session.file_backend.with_name("context_1.jsonl")
    ),
}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
@pytest.mark.parametrize("count", [1, limits.BLOCK_BYTES // 500, COUNT - 9])
def test_concurrent_rewrite_takes_no_line_from_a_reader(
    root: Path, rewrite: Callable[[steno.BlockingSession], object], count: int
) -> None:
    lines = long_session(root)
    with connected(root) as client:
        session = client.open("demo", follow=False)
        first, rest = taken(session.lines(), count)
        rewrite(session)
        assert first + list(rest) == lines


def test_file_truncated_by_another_program_gives_whole_lines_or_an_error(root: Path) -> None:
    lines = long_session(root)
    with connected(root) as client:
        session = client.open("demo", follow=False)
        first, rest = taken(session.lines(), COUNT // 2)
        os.truncate(session.file_backend, len(b"".join(lines[: COUNT // 2])) + 10)
        with suppress(steno.StenoError):
            first.extend(rest)
        assert first == lines[: len(first)]


@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking_calls")
async def test_async_client_reads_the_file_in_a_thread(root: Path) -> None:
    lines = long_session(root)
    async with steno.connect(root, spawn=False) as client:
        session = await client.open("demo", follow=False)
        stream = session.lines()
        found = [await anext(stream) for _ in range(COUNT // 2)]
        assert opened_files(root)
        found.extend([line async for line in stream])
        assert found == lines
        assert [record.raw async for record in session.records()] == lines
        assert len((await session.history_at()).history) == COUNT


@pytest.mark.parametrize("kind", ["none", "folder", "link", "pipe", "other", "null"])
def test_only_the_right_file_is_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            (tmp_path / "there").touch()
            path.symlink_to("there")
        case "pipe":
            os.mkfifo(path)
        case "other":
            path.touch()
        case "null":
            path = Path("\0")
        case _:
            pass
    before = len(list(DESCRIPTORS.iterdir()))
    assert open_source(replies.Source(path=str(path), identity="boot/1/2", size=1)) is None
    assert len(list(DESCRIPTORS.iterdir())) == before


def test_records_of_a_growing_session_are_in_order(root: Path) -> None:
    lines = long_session(root)
    with connected(root) as client, connected(root) as other:
        session, writer = client.open("demo", follow=False), other.open("demo", follow=False)
        numbers: list[int] = []
        for record in session.records():
            numbers.append(record.cursor.line)
            if len(numbers) % 500 == 0 and len(numbers) < 2 * COUNT:
                writer.append_message({"role": "user", "content": str(len(numbers))})
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= len(lines) + COUNT // 500 - 1
    assert len(records_in(root, "demo")) >= len(numbers)

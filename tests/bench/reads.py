"""A long session read: through the daemon, and from the file directly."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

import steno
from bench.lines import RECORDS, write_long_session
from bench.measuring import Comparison
from steno_protocol import limits, paths
from support.foreground import ForegroundDaemon

_SESSION: Final = "reads"
_decode = msgspec.json.Decoder().decode


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Message(msgspec.Struct):
    """A line as an agent's own types would have it; control lines fit in, too."""

    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    id: int | None = None
    token_count: int | None = None


_decode_typed = msgspec.json.Decoder(_Message).decode_lines


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Lines as bytes, records decoded, and a backlog followed, each against the bare file."""
    root = folder / "read-root"
    path = root / paths.SESSIONS / _SESSION / paths.CONTEXT
    path.parent.mkdir(parents=True)
    write_long_session(path)
    with ForegroundDaemon(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open(_SESSION, follow=False)
        return [
            _compare("lines as bytes", rounds, report, {
                "file": lambda: _file_lines(path),
                "steno lines()": session.lines,
                "steno subscribe()": lambda: _followed_lines(session),
            }),
            _compare("records, decoded", rounds, report, {
                "file": lambda: map(_decode, _file_lines(path)),
                "file, typed": lambda: _decode_typed(path.read_bytes()),
                "steno records()": lambda: (record.record for record in session.records()),
                "steno open(follow=True)": lambda: client.open(_SESSION).history,
            }),
        ]  # fmt: skip


def _compare(
    title: str,
    rounds: int,
    report: Callable[[str], None],
    lanes: dict[str, Callable[[], Iterable[object]]],
) -> Comparison:
    full = f"reading {RECORDS:,} records: {title}"
    beside = [name for name in lanes if name.startswith("file")]
    comparison = Comparison(full, ("ms", "records_per_s"), "ms", beside)
    for number in range(rounds):
        for name, lane in lanes.items():
            start = time.perf_counter()
            count = sum(1 for _ in lane())
            elapsed = time.perf_counter() - start
            assert count >= RECORDS, (name, count)
            comparison.add(name, {"ms": elapsed * 1e3, "records_per_s": count / elapsed})
        report(f"{full}: round {number + 1}")
    return comparison


def _file_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=limits.BLOCK_BYTES) as file:
        yield from file


def _followed_lines(session: steno.BlockingSession) -> Iterator[bytes]:
    with session.subscribe(after="start") as subscription:
        for event in subscription:
            if isinstance(event, steno.Live):
                return
            if isinstance(event, steno.RecordsEvent):
                yield from event.lines()

"""Ends of whole batches and of settled timelines."""

import msgspec

from steno_backup.ends import settled, whole_end
from steno_protocol import timeline_entries
from steno_protocol.records import batch_lines
from steno_protocol.timeline_entries import TimelineEntry

ONE = b'{"role":"user","content":"a"}\n'
BATCH = batch_lines([b'{"a":1}', b'{"b":2}', b'{"c":3}'], b"", "k1", None)


def end_of(data: bytes) -> int:
    return whole_end(lambda size, offset: data[offset : offset + size], len(data))


def test_a_file_cut_anywhere_ends_behind_its_last_whole_batch() -> None:
    data = ONE + BATCH + ONE
    for size in range(len(data) + 1):
        wanted = max(end for end in (0, len(ONE), len(ONE + BATCH), len(data)) if end <= size)
        assert end_of(data[:size]) == wanted, size


def line(kind: str, generation: int) -> bytes:
    return msgspec.json.encode(TimelineEntry(kind=kind, generation=generation)) + b"\n"


def test_a_timeline_ends_before_a_rewrite_that_has_not_taken_place() -> None:
    done = line(timeline_entries.CLEARED, 1)
    open_one = line(timeline_entries.CLEARED, 2)
    voided = line(timeline_entries.VOIDED, 2)
    assert settled(done + open_one, 1).data == done
    assert settled(done + open_one + voided, 1).data == done + open_one + voided
    assert settled(done + open_one, 2).intents == {1: len(done), 2: len(done + open_one)}
    assert settled(done + open_one[:-5], 2).data == done

"""The seek index, as a start of searches."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits
from steno_protocol.context import ContextCounters
from stenod.core.recovery_point import decode_recovery_point, encode_recovery_point
from stenod.core.replay import Replay
from stenod.core.seek_index import SeekIndex

LINES = st.one_of(
    st.integers(0, 5).map(lambda number: {"role": "_checkpoint", "id": number}),
    st.integers(0, 99).map(lambda count: {"role": "_usage", "token_count": count}),
    st.text(max_size=9).map(lambda text: {"role": "user", "content": text}),
    st.just({"role": "_system_prompt", "content": "p"}),
    st.just("damaged"),
)


@pytest.fixture(autouse=True)
def every_line_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_BYTES", 1)


def _found(lines: list[bytes], replay: Replay, first: int, number: int) -> object:
    """The place and state of a checkpoint found from line `first` on."""
    for line in lines[first:]:
        if replay.feed(line, before=number) is not None:
            return replay.lines, replay.counters
    return None


def _passed(lines: list[bytes]) -> SeekIndex:
    replay, offset = Replay(), 0
    for line in lines:
        replay.feed(line)
        offset += len(line)
        replay.seek_index.record_offset(offset, replay.lines, replay.counters)
    return replay.seek_index


@given(st.lists(LINES, max_size=30), st.integers(0, 5))
def test_search_from_the_seek_index_equals_a_search_from_the_start(
    records: list[object], number: int
) -> None:
    lines = [json.dumps(record).encode() + b"\n" for record in records]
    known = _passed(lines).before_checkpoint(number)
    from_start = _found(lines, Replay(), 0, number)
    if known is None:
        return
    replay = Replay(known.lines, known.counters())
    assert _found(lines, replay, known.lines, number) == from_start


def test_the_last_milestone_before_a_checkpoint_is_given() -> None:
    seek_index = SeekIndex()
    for number in range(10):
        seek_index.record_offset(100 * (number + 1), number, ContextCounters(n_checkpoints=number))
    found = seek_index.before_checkpoint(4)
    assert found is not None
    assert (found.offset, found.n_checkpoints) == (500, 4)


def test_there_are_never_more_than_a_bounded_number_and_they_stay_evenly_apart() -> None:
    seek_index = SeekIndex()
    for number in range(20 * limits.MILESTONES_MAX):
        seek_index.record_offset(number + 1, number, ContextCounters())
    offsets = [each.offset for each in seek_index]
    assert limits.MILESTONES_MAX // 2 <= len(offsets) <= limits.MILESTONES_MAX
    steps = {later - earlier for earlier, later in pairwise(offsets)}
    assert max(steps) <= 2 * min(steps)


def test_a_rewrite_keeps_the_milestones_of_the_part_that_it_keeps() -> None:
    seek_index = SeekIndex()
    for offset in (10, 20, 30):
        seek_index.record_offset(offset, offset, ContextCounters())
    assert [each.offset for each in seek_index.up_to(20)] == [10, 20]
    assert not list(seek_index.up_to(0))


def test_a_mark_bears_milestones() -> None:
    seek_index = SeekIndex()
    seek_index.record_offset(10, 1, ContextCounters(token_count=5, n_checkpoints=2))
    data = encode_recovery_point(
        generation=0, inode=1, size=20, crc=3, lines=2, counters=ContextCounters(),
        milestones=seek_index,
    )  # fmt: skip
    mark = decode_recovery_point(data)
    assert mark is not None
    assert mark.milestones == list(seek_index)
    assert mark.milestones[0].counters() == ContextCounters(token_count=5, n_checkpoints=2)

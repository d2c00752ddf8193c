"""The trusted end of a file: whole batches of whole lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.blocks import count_lines, split_lines
from stenod.core.lines import Tail, examine_tail, holds_object, whole_lines
from support.lines import foreign, stamped, uuid7

ONE = b"".join(stamped("k1", ["one"]))
BATCH = b"".join(stamped("k2", ["two", "three", "four"]))
LAST = b"".join(stamped(uuid7(5, 6), ["five", "six"]))
LOG = ONE + BATCH + LAST
WHOLE = [0, len(ONE), len(ONE + BATCH), len(LOG)]
MARKED = pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])


def kept(region: bytes, *, marked: bool) -> bytes:
    return region[: examine_tail(region, marked=marked).keep]


@given(st.lists(st.binary(max_size=5), max_size=5).map(b"\n".join))
def test_split_lines_lose_no_byte_and_end_where_newlines_are(data: bytes) -> None:
    lines = split_lines(data)

    assert b"".join(lines) == data
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines[:-1])
    assert all(lines)
    assert whole_lines(data) == sum(len(line) for line in lines if line.endswith(b"\n"))


@given(
    st.lists(st.sampled_from([b"", b"\r", b"x" * 30, b"y" * 300, b"\n" * 200]), max_size=40),
    st.booleans(),
)
def test_lines_of_any_length_are_counted_by_their_ends(parts: list[bytes], is_ended: bool) -> None:
    data = b"\n".join(parts) + b"\n" * is_ended

    assert count_lines(data) == data.count(b"\n")


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"{", b"[]", b'"x"', b"\xff{}", b"{}\0", b"\0{}", b"[" * 100_000]
)
def test_only_one_json_object_is_an_object(line: bytes) -> None:
    assert not holds_object(line)


def whole_before(size: int) -> int:
    return max(whole for whole in WHOLE if whole <= size)


@MARKED
def test_a_tail_cut_at_any_byte_keeps_its_whole_batches(marked: bool) -> None:
    for cut in range(len(LOG) + 1):
        tail = examine_tail(LOG[:cut], marked=marked)

        assert tail.keep == whole_before(cut)
        assert (tail.damage is None) == (cut in WHOLE)
        assert not tail.unended


@MARKED
def test_a_tail_that_is_nul_from_any_byte_on_keeps_its_whole_batches(marked: bool) -> None:
    for cut in range(len(LOG)):
        region = LOG[:cut] + bytes(len(LOG) - cut)

        assert kept(region, marked=marked) == LOG[: whole_before(cut)]


@MARKED
def test_a_lost_page_in_the_middle_tears_all_that_follows_it(marked: bool) -> None:
    for hole in range(len(LOG) - 1):
        region = LOG[:hole] + b"\0" + LOG[hole + 1 :]

        assert kept(region, marked=marked) == LOG[: whole_before(hole)]


def test_damage_without_nul_behind_a_mark_is_a_torn_tail() -> None:
    assert kept(ONE + b"{broken\n" + BATCH, marked=True) == ONE


def test_damage_without_nul_that_no_mark_bounds_may_be_old_and_stays() -> None:
    region = ONE + b"{broken\n" + BATCH

    assert examine_tail(region, marked=False) == Tail(len(region))


@MARKED
@pytest.mark.parametrize(
    "line",
    [
        b'{"role":"user","content":"a \t tab"}\n',
        b'{"role":"user","content":"half \xe4\xb8"}\n',
        b'{"role":"user","content":"x","weight":NaN}\n',
    ],
)
def test_last_line_that_kimi_cli_reads_is_kept_unless_torn(marked: bool, line: bytes) -> None:
    assert kept(ONE + line, marked=marked) == ONE + line
    for lost in (line[:-1], line.replace(b"user", b"\0\0\0\0"), line[:-3] + b"\0" + line[-3:]):
        assert kept(ONE + lost, marked=marked) == ONE


def test_a_batch_that_another_command_interrupts_is_torn_behind_a_mark() -> None:
    head = stamped("k2", ["two", "three"])[0]

    assert kept(ONE + head + LAST, marked=True) == ONE


def test_an_old_batch_without_its_end_stays_when_whole_commands_follow_it() -> None:
    region = ONE + stamped("k2", ["two", "three"])[0] + LAST

    assert kept(region, marked=False) == region


@MARKED
def test_the_end_of_a_batch_whose_head_a_rewrite_dropped_stays(marked: bool) -> None:
    region = stamped("k2", ["two", "three"])[1] + ONE

    assert kept(region, marked=marked) == region


@MARKED
@pytest.mark.parametrize("damage", [b"{broken\n", b"\0\0\0\n", BATCH[:-5] + b"\n"])
def test_bytes_behind_a_foreign_line_are_not_cut(damage: bytes, marked: bool) -> None:
    region = ONE + damage + foreign("theirs") + LAST

    assert examine_tail(region, marked=marked) == Tail(len(region))


@MARKED
def test_a_foreign_record_without_newline_behind_a_torn_batch_is_kept_whole(marked: bool) -> None:
    head = stamped("k2", ["two", "three"])[0]
    tail = examine_tail(ONE + head + foreign("theirs")[:-1], marked=marked)

    assert tail.keep == len(ONE)
    assert tail.damage is not None


@MARKED
@given(st.binary(max_size=60))
def test_any_bytes_behind_whole_lines_never_cost_those_lines(marked: bool, rubbish: bytes) -> None:
    region = ONE + BATCH + rubbish

    assert kept(region, marked=marked).startswith(ONE + BATCH)


ENDS = [
    ONE, *BATCH.splitlines(keepends=True), foreign("theirs"), b"\n", b"damaged\n", b"unended",
    b"\0\0\0\n", b'{"role":"user"', b'{"role":"user","_id":"k.0/3"}\n',
    foreign("theirs")[:9] + ONE, b'{"role":"a"' + foreign("theirs"),
]  # fmt: skip


@pytest.mark.parametrize("marked", [True, False])
@given(lines=st.lists(st.sampled_from(ENDS), max_size=8))
def test_kept_lines_are_kept_at_the_next_opening(marked: bool, lines: list[bytes]) -> None:
    region = b"".join(lines)
    tail = examine_tail(region, marked=marked)
    left = region[: tail.keep] + b"\n" * tail.unended

    assert examine_tail(left, marked=marked) == Tail(len(left))


WELDS = {
    "a half and a whole one": b'{"role":"assistant","content":"a' + foreign("theirs"),
    "two whole ones": foreign("a")[:-1] + foreign("theirs"),
}


@MARKED
@pytest.mark.parametrize("weld", WELDS.values(), ids=WELDS)
def test_a_foreign_record_welded_to_another_is_left_for_a_repair(marked: bool, weld: bytes) -> None:
    assert kept(ONE + weld, marked=marked) == ONE + weld
    assert kept(ONE + weld + b'{"role":"us', marked=marked) == ONE + weld


@MARKED
@pytest.mark.parametrize(
    "line",
    [
        b'{"role":"us' + ONE,  # our record inside a damaged line was never acknowledged
        b'{"role":"user","content":[{"type":"text","text":"a"}\n',
        b"\0\0" + foreign("theirs"),
        b'{"role":"us' + foreign("theirs")[:-1],
    ],
)
def test_line_that_only_resembles_welded_records_is_cut(marked: bool, line: bytes) -> None:
    assert kept(BATCH + line, marked=marked) == BATCH

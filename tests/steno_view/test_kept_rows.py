"""The rendered rows that are kept, and their bounds."""

import msgspec

from steno_view.kept_rows import KeptRows, Place
from steno_view.limits import ROW_KEPT_BYTES_MAX, ROWS_KEPT_BYTES_MAX, ROWS_KEPT_MAX

HERE = Place("talk", "one", 0)


def row(size: int) -> msgspec.Raw:
    return msgspec.Raw(b"x" * size)


def kept(rows: KeptRows, end: int, place: Place = HERE, first: int = 0) -> list[int]:
    """The sizes of the rows of a range, up to the first line that has none."""
    return [len(bytes(each)) for each in rows.take(place, first, end)]


def test_rows_are_kept_up_to_the_first_line_without_one() -> None:
    rows = KeptRows()
    rows.add(HERE, 0, [row(1), row(2)])
    rows.add(HERE, 3, [row(4)])
    assert kept(rows, 9) == [1, 2]
    assert kept(rows, 1) == [1]
    assert kept(rows, 9, first=3) == [4]
    assert kept(rows, 9, Place("talk", "two", 0)) == []


def test_the_size_of_all_rows_is_bounded() -> None:
    rows = KeptRows()
    count = ROWS_KEPT_BYTES_MAX // ROW_KEPT_BYTES_MAX
    rows.add(HERE, 0, [row(ROW_KEPT_BYTES_MAX)] * count)
    assert kept(rows, 1) == [ROW_KEPT_BYTES_MAX]
    rows.add(HERE, count, [row(1)])
    assert rows.bytes <= ROWS_KEPT_BYTES_MAX
    # Line 0 was used last, so that line 1 has made room.
    assert kept(rows, count) == [ROW_KEPT_BYTES_MAX]
    assert kept(rows, count + 1, first=2) == [ROW_KEPT_BYTES_MAX] * (count - 2) + [1]


def test_the_number_of_rows_is_bounded() -> None:
    rows = KeptRows()
    rows.add(HERE, 0, [row(1)] * (ROWS_KEPT_MAX + 1))
    assert rows.bytes == ROWS_KEPT_MAX
    assert kept(rows, 1) == []


def test_a_large_row_is_not_kept_and_takes_no_room() -> None:
    rows = KeptRows()
    rows.add(HERE, 0, [row(1), row(ROW_KEPT_BYTES_MAX + 1), row(3)])
    assert kept(rows, 3) == [1]
    assert kept(rows, 3, first=2) == [3]
    assert rows.bytes == 4


def test_a_row_that_comes_again_counts_once() -> None:
    rows = KeptRows()
    rows.add(HERE, 0, [row(5)])
    rows.add(HERE, 0, [row(7)])
    assert rows.bytes == 7

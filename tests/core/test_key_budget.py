"""The key budget that tables share."""

from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.positions import Position
from stenod.core.key_budget import KeyRoom
from stenod.core.keys import Applied, KeyFilter, KeyTable
from support.lines import uuid7

OPENED_MS = 1_700_000_000_000
PIECE = 4


def fill(table: KeyTable, name: str, count: int) -> list[str]:
    keys = [f"{name}-{number}" for number in range(count)]
    for number, key in enumerate(keys):
        table.add(key, Applied("append", Position(0, number), 1))
    return keys


def table_in(room: KeyRoom, keys_max: int = 64) -> KeyTable:
    table = KeyTable(OPENED_MS, keys_max=keys_max)
    table.share(room)
    return table


def test_a_table_alone_has_all_the_room_that_it_needs() -> None:
    table = table_in(KeyRoom(keys_max=100, piece=PIECE), keys_max=16)
    keys = fill(table, "a", 16)

    assert len(table) == 16
    assert all(table.get(key) for key in keys)


def test_a_table_that_grows_takes_from_the_one_that_grew_longest_ago() -> None:
    room = KeyRoom(keys_max=6 * PIECE, piece=PIECE)
    first, second, third = (table_in(room) for _ in range(3))
    fill(first, "a", 2 * PIECE)
    newer = fill(second, "b", 2 * PIECE)
    latest = fill(third, "c", 3 * PIECE)

    assert all(second.get(key) for key in newer)
    assert all(third.get(key) for key in latest)
    assert len(first) == PIECE
    assert first.get("a-0") is None
    assert first.get("a-7") is not None


def test_forgotten_keys_are_looked_up() -> None:
    room = KeyRoom(keys_max=3 * PIECE, piece=PIECE)
    first, second = KeyTable(OPENED_MS, youngest_ms=0), table_in(room)
    first.share(room)
    keys = [uuid7(OPENED_MS + made, made) for made in range(2 * PIECE)]
    for number, key in enumerate(keys):
        first.add(key, Applied("append", Position(0, number), 1))
    assert not first.must_be_looked_up(uuid7(OPENED_MS, 99), repeat=True)
    fill(second, "b", 2 * PIECE)

    assert first.get(keys[PIECE - 1]) is None
    assert first.must_be_looked_up(keys[PIECE - 1], repeat=True)
    assert not first.must_be_looked_up(uuid7(OPENED_MS + PIECE, 99), repeat=True)


def test_table_of_closed_files_gives_its_room_to_others() -> None:
    room = KeyRoom(keys_max=6 * PIECE, piece=PIECE)
    first = table_in(room)
    fill(first, "a", 5 * PIECE)
    first.leave()
    second = table_in(room)
    keys = fill(second, "b", 6 * PIECE)

    assert all(second.get(key) for key in keys)
    assert len(first) == 5 * PIECE


def test_each_of_many_tables_keeps_its_first_piece() -> None:
    room = KeyRoom(keys_max=2 * PIECE, piece=PIECE)
    tables = [table_in(room) for _ in range(5)]
    for number, table in enumerate(tables):
        last = fill(table, f"t{number}", 3 * PIECE)[-1]
        assert table.get(last) is not None

    assert all(0 < len(table) <= PIECE for table in tables)


def test_table_with_too_many_keys_keeps_the_last() -> None:
    room = KeyRoom(keys_max=3 * PIECE, piece=PIECE)
    table = KeyTable(OPENED_MS)
    keys = fill(table, "a", 10 * PIECE)
    table.share(room)

    assert 0 < len(table) <= 3 * PIECE
    assert table.get(keys[-1]) is not None
    assert table.get(keys[0]) is None


def test_of_too_many_filters_that_one_goes_which_was_made_longest_ago() -> None:
    size = KeyFilter(0).size
    room = KeyRoom(piece=PIECE, filters_bytes=2 * size)
    first, second, third = (table_in(room) for _ in range(3))
    for table in (first, second, first, third):
        table.use_filter(KeyFilter(0))

    assert [table.needs_filter for table in (first, second, third)] == [False, True, False]
    assert second.must_be_looked_up("never-used", repeat=False)
    second.use_filter(KeyFilter(0))
    assert first.needs_filter


def test_a_filter_that_is_larger_than_the_room_for_all_stays_alone() -> None:
    room = KeyRoom(filters_bytes=1)
    first, second = table_in(room), table_in(room)
    first.use_filter(KeyFilter(0))
    assert not first.needs_filter
    second.use_filter(KeyFilter(0))

    assert first.needs_filter
    assert not second.needs_filter


def test_closed_files_have_no_filter_that_would_be_in_the_way_of_others() -> None:
    room = KeyRoom(filters_bytes=2 * KeyFilter(0).size)
    first, second, third = (table_in(room) for _ in range(3))
    for table in (second, first):
        table.use_filter(KeyFilter(0))
    first.leave()
    third.use_filter(KeyFilter(0))

    # The keeper of an unstamped session's keys keeps the table.
    assert first.needs_filter
    assert not second.needs_filter


_STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave", "add"]), st.integers(0, 4), st.integers(1, 9)),
    max_size=80,
)


@given(_STEPS, st.integers(1, 40), st.integers(1, 5), st.integers(1, 12))
def test_tables_never_exceed_the_room_plus_a_piece_each(
    steps: list[tuple[str, int, int]], keys_max: int, piece: int, table_max: int
) -> None:
    room = KeyRoom(keys_max=keys_max, piece=piece)
    tables: dict[int, KeyTable] = {}
    used: dict[int, list[str]] = {}
    for what, number, count in steps:
        if what == "leave" and number in tables:
            tables.pop(number).leave()
        elif what == "enter" and number not in tables:
            tables[number] = table_in(room, table_max)
            tables[number].use_filter(KeyFilter(4))
            used[number] = []
        elif what == "add" and number in tables:
            used[number] += fill(tables[number], f"{number}.{len(used[number])}", count)

        most = max(keys_max, piece * len(tables))
        assert sum(map(len, tables.values())) <= most
        for each, table in tables.items():
            for key in used[each]:
                assert table.get(key) or table.must_be_looked_up(key, repeat=False)
    for table in tables.values():
        table.leave()
    alone, whole = table_in(room), max(1, keys_max // piece) * piece
    fill(alone, "z", whole)
    assert len(alone) == whole

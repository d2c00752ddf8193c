"""The key table of a session: no key is applied twice."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits
from steno_protocol.positions import Position
from stenod.core.keys import Applied, KeyFilter, KeyTable
from support.lines import line, stamped, uuid7

OPENED_MS = 1_700_000_000_000
KEYS = st.text("abcXYZ019_-", min_size=1, max_size=12)


def applied(number: int = 0) -> Applied:
    return Applied("append", Position(0, number), 1)


def test_a_key_in_the_table_is_not_looked_up() -> None:
    table = KeyTable(OPENED_MS)
    table.add("job-1", applied())

    assert table.get("job-1") == applied()
    assert not table.must_be_looked_up("job-1", repeat=True)


def test_a_key_that_is_as_old_as_the_opening_is_looked_up() -> None:
    table = KeyTable(OPENED_MS)

    assert table.must_be_looked_up(uuid7(OPENED_MS, 1), repeat=False)
    assert table.must_be_looked_up(uuid7(OPENED_MS - 1, 1), repeat=False)


def test_uuid7_younger_than_all_used_keys_is_not_looked_up() -> None:
    table = KeyTable(OPENED_MS, youngest_ms=OPENED_MS - 1000)

    for repeat in (False, True):
        assert not table.must_be_looked_up(uuid7(OPENED_MS - 999, 1), repeat=repeat)
        assert table.must_be_looked_up(uuid7(OPENED_MS - 1000, 1), repeat=repeat)
        assert table.must_be_looked_up("job-1", repeat=repeat)


def test_the_youngest_key_is_known_through_all_that_are_added_and_forgotten() -> None:
    table = KeyTable(OPENED_MS, youngest_ms=0, keys_max=2)
    assert table.youngest_ms == 0
    table.add("job-1", applied())
    assert table.youngest_ms == 0
    for made in (50, 10, 20, 30):
        table.add(uuid7(OPENED_MS + made, made), applied())

    assert table.get(uuid7(OPENED_MS + 50, 50)) is None
    assert table.youngest_ms == OPENED_MS + 50


@pytest.mark.parametrize("others", [["cut short"], ["an earlier one", "a later one"]])
def test_youngest_forgotten_key_is_known_despite_similar_keys(
    others: list[str],
) -> None:
    youngest = uuid7(OPENED_MS + 50, 1)
    keys = {
        "cut short": youngest[:-1],
        "an earlier one": uuid7(OPENED_MS + 50, 2),
        "a later one": uuid7(OPENED_MS + 49, 3),
    }
    table = KeyTable(OPENED_MS, youngest_ms=0, keys_max=1)
    # All that comes together is forgotten together, too.
    forgotten = [*(keys[each] for each in others), youngest]
    table.add_all({key: applied() for key in [*forgotten, "last"]})

    assert table.get(youngest) is None
    assert table.youngest_ms == OPENED_MS + 50


def test_the_youngest_key_is_unknown_until_the_filter_is_complete() -> None:
    table = KeyTable(OPENED_MS)
    table.add(uuid7(OPENED_MS + 7, 1), applied())
    assert table.youngest_ms is None
    found = KeyFilter(4)
    found.add_lines(b"".join(stamped(uuid7(OPENED_MS - 50, 2), ["x"])), 0)
    found.add_timeline(line({"kind": "cleared", "key": uuid7(OPENED_MS - 40, 3)}))
    table.use_filter(found)

    assert table.youngest_ms == OPENED_MS + 7
    assert found.youngest_ms == OPENED_MS - 40
    assert not table.must_be_looked_up(uuid7(OPENED_MS - 39, 4), repeat=True)


def test_with_a_filter_only_keys_that_may_be_in_the_files_are_looked_up() -> None:
    table = KeyTable(OPENED_MS, keys_max=1)
    table.add("in-the-table", applied())
    assert table.needs_filter
    found = KeyFilter(0)
    found.add_lines(b"".join(stamped("in-the-files", ["x"])), 0)
    table.use_filter(found)
    table.add("later", applied())

    assert not table.needs_filter
    for key in ("in-the-files", "in-the-table"):
        assert table.must_be_looked_up(key, repeat=False)
    assert not table.must_be_looked_up("never-used", repeat=True)


@given(st.lists(KEYS, max_size=40, unique=True), st.integers(0, 5), st.integers(1, 6))
def test_used_key_is_in_the_table_or_looked_up(keys: list[str], known: int, keys_max: int) -> None:
    table = KeyTable(OPENED_MS, keys_max=keys_max)
    for key in keys[:known]:
        table.add(key, applied())
    table.use_filter(KeyFilter(4))
    for key in keys[known:]:
        table.add(key, applied())

    for key in keys[max(0, known - keys_max) :]:
        assert table.get(key) is not None or table.must_be_looked_up(key, repeat=False)


def test_the_filter_is_seldom_wrong_and_never_larger_than_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key_filter = KeyFilter(10_000)
    for number in range(10_000):
        key_filter.add(b"used-%d" % number, 0)
    wrong = sum(b"other-%d" % number in key_filter for number in range(10_000))

    assert wrong < 10
    monkeypatch.setattr(limits, "KEY_FILTER_KEYS_MAX", 1000)
    largest = KeyFilter(2**50)
    for number in range(1500):
        largest.add(b"used-%d" % number, 0)
    assert len(largest._buckets) == limits.KEY_FILTER_BUCKETS_MAX
    assert sum(map(len, largest._buckets)) == 1000


def test_a_filter_that_became_too_small_is_asked_for_again() -> None:
    table = KeyTable(OPENED_MS)
    table.use_filter(KeyFilter(0))
    for number in range(limits.KEY_FILTER_KEYS_MIN):
        table.add(f"key-{number}", applied())
    assert not table.needs_filter

    table.add("one-more", applied())
    assert table.needs_filter
    assert table.must_be_looked_up("key-0", repeat=True) or table.get("key-0") is not None


@given(
    st.lists(st.lists(KEYS, max_size=8), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(0, 40),
    st.sampled_from([1, 3, 0xFFF]),
)
def test_no_generation_before_the_one_that_the_filter_names_has_a_key(
    generations: list[list[str]], first: int, keys_max: int, rank_max: int
) -> None:
    with (
        patch.object(limits, "KEY_FILTER_KEYS_MAX", keys_max),
        patch.object(limits, "KEY_FILTER_BUCKETS_MIN", 1),
        patch("stenod.core.keys._RANK_MASK", rank_max),
    ):
        key_filter = KeyFilter(0, first)
        oldest: dict[str, int] = {}
        for generation, keys in enumerate(generations[:-1], first):
            block = b"".join(line for key in keys for line in stamped(key, ["x", "y"]))
            key_filter.add_lines(block, generation)
            oldest = {**dict.fromkeys(keys, generation), **oldest}
        present = first + len(generations) - 1
        for key in generations[-1]:
            key_filter.add(key.encode(), present)
        oldest = {**dict.fromkeys(generations[-1], present), **oldest}

        for key, generation in oldest.items():
            named = key_filter.oldest(key.encode())
            assert named is not None
            assert named <= generation


def test_a_full_filter_still_knows_the_generations_before_the_keys_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "KEY_FILTER_KEYS_MAX", 2)
    key_filter = KeyFilter(0)
    for generation in range(4):
        key_filter.add_lines(b"".join(stamped(f"key-{generation}", ["x"])), generation)

    assert [key_filter.oldest(b"key-%d" % number) for number in range(4)] == [0, 1, 2, 2]
    assert key_filter.oldest(b"never-used") == 2
    assert not key_filter.is_full


def test_continued_table_knows_the_keys_of_the_first() -> None:
    before, table = KeyTable(OPENED_MS), KeyTable(OPENED_MS + 10)
    before.add("job-1", applied(1))
    before.add("job-2", applied(2))
    table.add("job-2", applied(7))
    table.carry_on(before)

    assert table.get("job-1") == applied(1)
    assert table.get("job-2") == applied(7)
    assert (len(before), len(table)) == (2, 2)
    # Only the newer one knows until when another program may have used keys.
    assert table.must_be_looked_up(uuid7(OPENED_MS + 5, 1), repeat=False)

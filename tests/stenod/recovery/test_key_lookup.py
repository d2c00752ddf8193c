"""Keys looked up in the bytes of any generation."""

from collections import Counter

import pytest

from steno_protocol import limits
from steno_protocol.positions import Position
from stenod.core.keys import KeyFilter
from stenod.recovery import key_lookup
from stenod.recovery.opened import Opened
from stenod.store.handles import FileView
from stenod.store.jsonl import JsonlLog
from support.lines import append, checkpoint, clear, foreign, restore, revert, user
from support.stored_session import apply, fresh

PATH = "/disk/demo"


def found(opened: Opened, key: str) -> Position | None:
    applied = key_lookup.look_up(opened.log, PATH, key)
    return applied.first if applied is not None else None


def test_a_key_is_found_where_it_was_first_applied() -> None:
    _, _, opened = fresh()
    apply(opened, append("k1"), user("one"), user("two"))
    apply(opened, checkpoint("c"))
    apply(opened, append("k2"), user("three"))
    apply(opened, revert("r", 0))
    apply(opened, append("k3"), user("four"))
    apply(opened, restore("back", 0))

    expected = {"k1": (0, 0), "c": (0, 2), "k2": (0, 3), "k3": (1, 2), "r": (1, 2), "back": (2, 4)}
    for key, place in expected.items():
        assert found(opened, key) == Position(*place)
    assert found(opened, "k") is None
    assert found(opened, "k4") is None


def test_a_key_that_others_begin_with_is_found_without_reading_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, opened = fresh()
    for number in range(300):
        apply(opened, append(f"job-{number}"), user("x"))
    apply(opened, append("job"), user("x"))
    reads: list[int] = []
    read = opened.log.read

    def counted(generation: int, offset: int, size: int) -> bytes:
        reads.append(size)
        return read(generation, offset, size)

    monkeypatch.setattr(opened.log, "read", counted)

    assert found(opened, "job") == Position(0, 300)
    assert len(reads) <= 3


def _counted_reads(log: JsonlLog, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Counts how often each generation is opened for reading."""
    read, view = Counter[int](), log.view

    def counted(generation: int) -> FileView:
        opened = view(generation)
        read[generation] += 1
        return opened

    monkeypatch.setattr(log, "view", counted)
    return read


def test_a_filter_opens_each_generation_once_and_knows_the_oldest_one_of_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, opened = fresh()
    apply(opened, append("k1"), user("one"))
    apply(opened, checkpoint("c"))
    apply(opened, append("dropped"), user("two"))
    apply(opened, revert("r", 0))
    apply(opened, append("k2"), *[user("x")] * 3)
    apply(opened, restore("back", 0))
    read = _counted_reads(opened.log, monkeypatch)
    released: list[FileView] = []
    release = FileView.release

    def counted_release(view: FileView) -> None:
        released.append(view)
        release(view)

    monkeypatch.setattr(FileView, "release", counted_release)
    key_filter = key_lookup.build_filter(opened.log)

    assert read == {0: 1, 1: 1, 2: 1}
    assert len(set(map(id, released))) == len(released) == 3
    oldest = {b"k1": 0, b"c": 0, b"dropped": 0, b"k2": 1}
    assert {key: key_filter.oldest(key) for key in oldest} == oldest
    assert b"r" in key_filter
    assert b"k3" not in key_filter


@pytest.mark.parametrize("block", [64, 200, 1000, 100_000])
def test_what_a_revert_kept_is_not_searched_for_keys_again(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(limits, "KEY_BLOCK_BYTES", block)
    _, _, opened = fresh()
    written: list[int] = []
    append_bytes = opened.log.append

    def written_down(data: bytes) -> None:
        written.append(len(data))
        append_bytes(data)

    monkeypatch.setattr(opened.log, "append", written_down)
    expected: dict[bytes, int] = {}
    for generation in range(5):
        for number in range(20):
            apply(opened, append(f"{generation}-{number}"), user("x"))
            expected[b"%d-%d" % (generation, number)] = generation
        apply(opened, checkpoint(f"c{generation}"))
        apply(opened, append(f"last-{generation}"), user("y"))
        apply(opened, revert(f"r{generation}", generation))
        expected[b"last-%d" % generation] = generation
    added: list[int] = []
    add_lines = KeyFilter.add_lines

    def counted(key_filter: KeyFilter, data: bytes, generation: int) -> None:
        added.append(len(data))
        add_lines(key_filter, data, generation)

    monkeypatch.setattr(KeyFilter, "add_lines", counted)
    key_filter = key_lookup.build_filter(opened.log)

    assert {key: key_filter.oldest(key) for key in expected} == expected
    # A block in which a generation begins to differ is searched as a whole.
    assert sum(added) <= sum(written) + 5 * block


def test_a_key_is_not_looked_for_in_generations_that_are_too_old_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, opened = fresh()
    for generation in range(3):
        apply(opened, append(f"k{generation}"), user("one"))
        apply(opened, clear(f"c{generation}"))
    read = _counted_reads(opened.log, monkeypatch)

    applied = key_lookup.look_up(opened.log, PATH, "k1", 1)
    assert applied is not None
    assert applied.first == Position(1, 0)
    assert set(read) == {1}


def test_a_key_whose_generation_was_removed_is_found_in_its_copy() -> None:
    disk, _, opened = fresh()
    apply(opened, append("k1"), user("one"))
    apply(opened, checkpoint("c"))
    apply(opened, append("k2"), user("two"))
    apply(opened, revert("r", 0))
    oldest = key_lookup.build_filter(opened.log).oldest(b"k1")
    disk.foreign.delete(f"{PATH}/context_1.jsonl")

    assert oldest == 0
    applied = key_lookup.look_up(opened.log, PATH, "k1", oldest)
    assert applied is not None
    assert applied.first == Position(1, 0)


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_a_batch_is_found_across_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    _, _, opened = fresh()
    apply(opened, append("k1"), user("one"))
    apply(opened, append("k2"), *[user(f"{number}" * 30) for number in range(40)])
    apply(opened, append("k3"), user("end"))
    monkeypatch.setattr(limits, "KEY_BLOCK_BYTES", block)
    monkeypatch.setattr(key_lookup, "_FIRST_READ_BYTES", block)

    assert found(opened, "k2") == Position(0, 1)
    assert found(opened, "k3") == Position(0, 41)


def test_a_key_in_a_message_is_only_text() -> None:
    disk, session, opened = fresh()
    opened.log.close()
    quoted = user('"_id":"k1"}') + b"\n"
    nested = b'{"role":"user","content":[{"type":"text","text":"","_id":"k1"}]}\n'
    disk.plant(f"{PATH}/context.jsonl", quoted + nested + foreign("x"))
    opened = session.open()

    assert found(opened, "k1") is None


@pytest.mark.parametrize("block", [7, 200, 1000])
def test_lines_before_a_key_are_counted_once_behind_others_that_only_look_like_it(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    disk, session, opened = fresh()
    opened.log.close()
    nested = b'{"role":"user","content":[{"type":"text","text":"","_id":"k1"}]}\n'
    disk.plant(f"{PATH}/context.jsonl", (foreign("x") + nested) * 30)
    opened = session.open()
    apply(opened, append("k0"), user("one"))
    apply(opened, append("k1"), user("two"))
    monkeypatch.setattr(limits, "KEY_BLOCK_BYTES", block)
    lines: list[int] = []
    count_lines = key_lookup.count_lines

    def counted(data: bytes) -> int:
        lines.append(count_lines(data))
        return lines[-1]

    monkeypatch.setattr(key_lookup, "count_lines", counted)

    assert found(opened, "k1") == Position(0, 61)
    assert sum(lines) <= 61

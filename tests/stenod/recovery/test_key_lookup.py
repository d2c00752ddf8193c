"""Keys looked up in the bytes of any generation."""

import pytest

from steno_protocol import limits
from steno_protocol.positions import Position
from stenod.recovery import key_lookup
from stenod.recovery.opened import Opened
from support.lines import append, checkpoint, foreign, restore, revert, user
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


def test_a_filter_reads_the_present_generation_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, opened = fresh()
    apply(opened, append("k1"), user("one"))
    apply(opened, checkpoint("c"))
    apply(opened, revert("r", 0))
    apply(opened, append("k2"), *[user("x")] * 3)
    size, read = opened.log.size, opened.log.read
    taken: list[int] = []

    def counted(generation: int, offset: int, size: int) -> bytes:
        taken.append(len(data := read(generation, offset, size)))
        return data

    monkeypatch.setattr(opened.log, "read", counted)
    key_filter = key_lookup.build_filter(opened.log, opened.machine.head.line)

    assert sum(taken) == size
    assert all(key in key_filter for key in (b"k1", b"c", b"r", b"k2"))
    assert b"k3" not in key_filter


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_a_batch_is_found_across_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    _, _, opened = fresh()
    apply(opened, append("k1"), user("one"))
    apply(opened, append("k2"), *[user(f"{number}" * 30) for number in range(40)])
    apply(opened, append("k3"), user("end"))
    monkeypatch.setattr(limits, "BLOCK_BYTES", block)
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
    monkeypatch.setattr(limits, "BLOCK_BYTES", block)
    lines: list[int] = []
    count_lines = key_lookup.count_lines

    def counted(data: bytes) -> int:
        lines.append(count_lines(data))
        return lines[-1]

    monkeypatch.setattr(key_lookup, "count_lines", counted)

    assert found(opened, "k1") == Position(0, 61)
    assert sum(lines) <= 61

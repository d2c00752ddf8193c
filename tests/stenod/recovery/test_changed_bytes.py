"""Flipped bits in synced bytes, which verify finds even in valid JSON."""

import random

import pytest

from steno_protocol import limits, paths
from steno_protocol.context import ContextState
from stenod.recovery.opened import Opened
from stenod.recovery.recovery_points import save_recovery_point
from support.lines import append, checkpoint, clear, foreign, restore, revert, user
from support.simulated_disk import SimulatedDisk
from support.stored_session import StoredSession, apply, fresh
from support.wire_writing import append_wire, event

PATH = "/disk/demo"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECKSUM_BLOCK_BYTES", 64)
    monkeypatch.setattr(limits, "FINGERPRINT_BYTES", 16)


def _ids_in(opened: Opened) -> list[int]:
    """The ids of the checkpoints in the present file."""
    state = ContextState()
    state.apply_block(opened.log.read(opened.log.generation, 0, opened.log.size))
    return [number for number, _ in state.checkpoints]


def written(seed: int) -> tuple[SimulatedDisk, StoredSession]:
    """A session that was appended to, rewritten and opened again, closed with a mark."""
    chance = random.Random(seed)
    disk, session, opened = fresh()
    for step in range(30):
        match chance.randrange(8):
            case 0:
                apply(opened, checkpoint(f"c{step}"))
            case 1 if there := _ids_in(opened):
                apply(opened, revert(f"r{step}", chance.choice(there)))
            case 2 if opened.log.generation and chance.random() < 0.5:
                apply(opened, restore(f"s{step}", chance.randrange(opened.log.generation)))
            case 3 if chance.random() < 0.3:
                apply(opened, clear(f"e{step}"))
            case 4:
                save_recovery_point(opened)
                opened.log.close()
                if chance.random() < 0.3:
                    disk.foreign.append(f"{PATH}/{paths.CONTEXT}", foreign("theirs"))
                opened = session.open(now_s=1e9)
            case _:
                apply(opened, append(f"a{step}"), user("x" * chance.randrange(90)))
    save_recovery_point(opened)
    opened.log.close()
    disk.sync_all()
    return disk, session


def changed(session: StoredSession) -> list[tuple[int | None, int]]:
    findings = session.verified().findings
    return [(each.offset, each.bytes) for each in findings if each.kind == "synced_lost"]


@pytest.mark.parametrize("seed", range(5))
def test_verify_finds_a_flipped_bit_anywhere_before_the_mark(seed: int) -> None:
    disk, session = written(seed)
    data = session.file()
    assert changed(session) == []
    for place in range(0, len(data), 31):
        hit = disk.clone()
        hit.foreign.overwrite(f"{PATH}/{paths.CONTEXT}", place, bytes([data[place] ^ 1]))

        ((offset, size),) = changed(StoredSession(hit, PATH))
        assert offset is not None
        assert offset <= place < offset + size
        assert size <= limits.CHECKSUM_BLOCK_BYTES


def test_verify_finds_a_flipped_bit_in_a_wire_file() -> None:
    disk, session, context = fresh()
    wire = session.open_wire()
    for number in range(20):
        apply(wire, append_wire(f"w{number}"), event(number))
    save_recovery_point(wire)
    wire.log.close()
    context.log.close()
    disk.foreign.overwrite(f"{PATH}/{paths.WIRE}", 200, b"@")

    assert changed(session) == [(192, 64)]

"""The recovery point of an open file: how it is made and saved."""

import errno

from steno_protocol import limits
from steno_protocol.context import ContextCounters
from steno_protocol.positions import Position
from stenod.core import timeline
from stenod.core.recovery_point import encode_recovery_point
from stenod.core.seek_index import SeekIndex
from stenod.recovery.opened import Opened
from stenod.store.jsonl import JsonlLog


def recovery_point_of(
    log: JsonlLog,
    head: Position,
    counters: ContextCounters,
    youngest_key_ms: int | None,
    seek_index: SeekIndex,
) -> bytes:
    """Returns the encoded recovery point of an open file at its durable head.

    Args:
        log: the file.
        head: its durable head.
        counters: its numbers there.
        youngest_key_ms: creation time of the newest key used up to there; None if it is unknown.
        seek_index: places in it.

    Raises:
        OSError: the disk failed, or another program changed the file: a recovery point would make
            the next opening accept that change as the session's own.
    """
    size = log.synced
    tail_start = max(0, size - limits.FINGERPRINT_BYTES)
    tail = log.read(log.generation, tail_start, size - tail_start)
    if log.is_foreign_changed():
        raise OSError(errno.ESTALE, "another program changed this file", log.file_path)
    return encode_recovery_point(
        generation=log.generation,
        inode=log.stat().inode,
        size=size,
        crc=timeline.fingerprint(size, tail)[1],
        lines=head.line,
        counters=counters,
        youngest_key_ms=youngest_key_ms,
        milestones=seek_index,
        checksums=log.checksums.known,
    )


def present_recovery_point(opened: Opened) -> bytes:
    """Returns the encoded recovery point of an open file; raises as `recovery_point_of`."""
    machine = opened.machine
    return recovery_point_of(
        opened.log, machine.head, machine.counters, machine.keys.youngest_ms, machine.seek_index
    )


def save_recovery_point(opened: Opened) -> None:
    """Save the recovery point of an open file; raises as `recovery_point_of`."""
    log = opened.log
    log.save_recovery_point(present_recovery_point(opened), log.generation, log.synced)

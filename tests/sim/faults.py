"""Faults of the simulated disk, drawn from the seed."""

import errno
import random
from collections.abc import Sequence
from enum import Enum, auto

from support.simulated_disk import Effect, SimulatedDisk


class Fault(Enum):
    """Kinds of faults."""

    CALL = auto()
    """One of the next calls fails, whatever it is."""
    SYNC = auto()
    """A sync fails, and perhaps the cut after it."""
    LOOK = auto()
    """A call that changes nothing fails."""
    WRITE = auto()
    """Writes are short."""
    NAME = auto()
    """A call that changes a folder fails."""
    SPACE = auto()
    """The disk is nearly full, or has room again."""


def inject(
    disk: SimulatedDisk, chance: random.Random, faults: Sequence[Fault], names: Sequence[str]
) -> None:
    """Let one of these faults happen soon, that of a sync to one of these files."""
    effect = chance.choice(list(Effect))
    error = chance.choice([errno.EIO, errno.ENOSPC])
    name = chance.choice(names) if len(names) > 1 else names[0]
    match chance.choice(faults):
        case Fault.CALL:
            disk.fail_at(len(disk.calls) + chance.randint(0, 12), error, effect)
        case Fault.SYNC:
            disk.fail_next("fdatasync", errno.EIO, name=name, effect=effect)
            if chance.random() < 0.5:
                disk.fail_next("truncate", errno.EIO, name=name)
        case Fault.LOOK:
            method = chance.choice(["read", "stat", "names", "stat_name", "open_read"])
            disk.fail_next(method, errno.EIO, skip=chance.randint(0, 6))
        case Fault.WRITE:
            disk.shorten_next("write", chance.randint(1, 20), times=3)
        case Fault.NAME:
            method = chance.choice(["rename", "link", "fsync"])
            disk.fail_next(method, error, skip=chance.randint(0, 3), effect=effect)
        case Fault.SPACE:
            disk.free_bytes = chance.choice([0, 30, 300, None])

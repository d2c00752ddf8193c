"""Planned faults of a simulated disk: errors, short writes, deaths."""

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple


class Death(BaseException):
    """The process is gone; no code of it may catch this, so it is no Exception."""


class PowerCut(Death):
    """The machine lost its power: unsynced data is lost, or any part of it."""


class ProcessKilled(Death):
    """The process was killed: its writes survive, its handles and locks do not."""


Moment = Literal["before", "within", "after"]
"""When a death comes, seen from the call's effect; within: a write that went in by a part."""

MOMENTS: Sequence[Moment] = ("before", "within", "after")


class Call(NamedTuple):
    """One call that could change the disk; the n-th of `calls` is call number n.

    Attributes:
        method: the method of `Disk`.
        name: the name that it is about, or that its handle was opened by.
        detail: what distinguishes the call from others, for people.
    """

    method: str
    name: str
    detail: str = ""


class Effect(Enum):
    """The effect of a failing call on the disk."""

    NONE = "none"
    PART = "part"
    WHOLE = "whole"


@dataclass(slots=True)
class Occasion:
    """Selects the calls of a fault.

    Attributes:
        call: only the call of this number.
        method: only this method.
        name: only calls about this name.
        skip: calls that fit and are spared first.
        times: calls that it happens to, before it is over.
    """

    call: int | None = None
    method: str | None = None
    name: str | None = None
    skip: int = 0
    times: int = 1

    def meets(self, number: int | None, call: Call) -> bool:
        """True when the fault applies to this call; counts the spared and the failed calls."""
        fits = (
            self.times > 0
            and self.call in (None, number)
            and self.method in (None, call.method)
            and self.name in (None, call.name)
        )
        if fits and self.skip > 0:
            self.skip -= 1
            return False
        self.times -= fits
        return fits


@dataclass(frozen=True, slots=True)
class Fault:
    """An error to come: its errno, and how much of the call happens although it is reported."""

    occasion: Occasion
    error: int
    effect: Effect = Effect.NONE

    def exception(self, call: Call) -> OSError:
        """The error as the kernel would word it."""
        return OSError(self.error, os.strerror(self.error), call.name)


@dataclass(frozen=True, slots=True)
class ShortWrite:
    """A write or copy to come that takes only so many bytes, without an error."""

    occasion: Occasion
    bytes_max: int


@dataclass(frozen=True, slots=True)
class PlannedDeath:
    """A death at one call."""

    call: int
    death: type[Death]
    moment: Moment


@dataclass(slots=True)
class Storm:
    """A disk that fails again and again for a while at any call.

    Attributes:
        chance: decides which calls fail, and how.
        share: of the calls that fail.
        calls: that it lasts for.
    """

    chance: random.Random
    share: float
    calls: int

    def fault(self, number: int | None, call: Call) -> Fault | None:
        """The fault that meets this call, if one does; counts the call."""
        if self.calls <= 0:
            return None
        self.calls -= 1
        if self.chance.random() >= self.share:
            return None
        error = errno.EIO if number is None else self.chance.choice([errno.EIO, errno.ENOSPC])
        return Fault(Occasion(), error, self.chance.choice(list(Effect)))


@dataclass(slots=True)
class FaultPlan:
    """Every fault and the death that are still to come."""

    faults: list[Fault] = field(default_factory=list[Fault])
    short_writes: list[ShortWrite] = field(default_factory=list[ShortWrite])
    storm: Storm | None = None
    death: PlannedDeath | None = None

    def fault(self, number: int | None, call: Call) -> Fault | None:
        """The fault that meets this call; `number` is None for a call that changes nothing."""
        planned = next((fault for fault in self.faults if fault.occasion.meets(number, call)), None)
        if planned is None and self.storm is not None:
            return self.storm.fault(number, call)
        return planned

    def bytes_max(self, number: int, call: Call) -> int | None:
        """The most that this write may take, or None for no such plan."""
        for short in self.short_writes:
            if short.occasion.meets(number, call):
                return short.bytes_max
        return None

    def dies(self, number: int, moment: Moment) -> bool:
        """True when the death comes at this moment of this call."""
        planned = self.death
        return planned is not None and (planned.call, planned.moment) == (number, moment)

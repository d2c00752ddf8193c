"""The rules of retention: what goes by age, number and size."""

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from steno_protocol import limits
from steno_protocol.settings import Settings

_KINDS: Final = ("generations", "trash", "sessions")

COMPRESSED: Final = ("generations", "streams")
"""The kinds that rules compress."""


class Thing(Protocol):
    """What a rule may name."""

    @property
    def at(self) -> float:
        """Unix time in seconds from which its age counts."""
        ...

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        ...


T = TypeVar("T", bound=Thing)


class Rules(msgspec.Struct, frozen=True):
    """The rules for one kind of thing; a bound of 0 is no rule.

    Attributes:
        kind: `generations`, `trash` or `sessions`, as in the names of the options.
        days: the greatest age.
        number: the greatest number.
        size: the greatest size of all together, in bytes.
    """

    kind: str
    days: float = 0.0
    number: int = 0
    size: int = 0

    @property
    def are_set(self) -> bool:
        """True if there is a rule."""
        return bool(self.days or self.number or self.size)

    def excess(self, things: Iterable[T], now: float) -> list[tuple[T, str]]:
        """Return the things that a rule names, the oldest first, each with that rule.

        A thing that stays for another reason counts for the number and the size all the same.

        Args:
            things: all things of the kind, the newest first.
            now: Unix time in seconds.
        """
        named: list[tuple[T, str]] = []
        size = 0
        for number, thing in enumerate(things, start=1):
            size += thing.size
            rule = self._naming(now - thing.at, number, size)
            if rule is not None:
                named.append((thing, rule))
        named.reverse()
        return named

    def _naming(self, age_s: float, number: int, size: int) -> str | None:
        if self.days and age_s > self.days * limits.DAY_S:
            return f"retention.{self.kind}_days = {self.days:g}"
        if self.number and number > self.number:
            return f"retention.{self.kind}_number = {self.number}"
        if self.size and size > self.size:
            return f"retention.{self.kind}_bytes = {self.size}"
        return None


def rules_of(kind: str, settings: Settings) -> Rules:
    """Return the rules that are configured for a kind; the trash has its days elsewhere."""
    days = 0.0 if kind == "trash" else settings.number(f"retention.{kind}_days")
    return Rules(
        kind,
        days,
        settings.count(f"retention.{kind}_number"),
        settings.count(f"retention.{kind}_bytes"),
    )


def is_configured(settings: Settings) -> bool:
    """Whether any rule is configured."""
    is_compressing = any(compressed_days(kind, settings) for kind in COMPRESSED)
    return is_compressing or any(rules_of(kind, settings).are_set for kind in _KINDS)


def compressed_days(kind: str, settings: Settings) -> float:
    """Return the days after which `generations` or `streams` are compressed; 0 is no rule."""
    return settings.number(f"retention.{kind}_compressed_days")

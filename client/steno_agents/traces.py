"""What a record of a transcript says beside the conversation: where it ran, and what it cost."""

from datetime import datetime
from typing import Any, NamedTuple

from steno_protocol._json import is_number, whole_number


class Circumstances(NamedTuple):
    """Where and with what a program ran when it wrote a record; None is what the record omits.

    Attributes:
        work_dir: the directory.
        branch: the branch of the repository there.
        model: the model.
        parent: the session, in that program, of which this one is a subagent's.
    """

    work_dir: str | None = None
    branch: str | None = None
    model: str | None = None
    parent: str | None = None


class Tokens(NamedTuple):
    """Tokens of one request, or of many.

    Attributes:
        input: tokens that the model read, without those of a cache.
        cache_read: tokens that it read from a cache.
        cache_write: tokens that it wrote to a cache.
        output: tokens that it wrote, thoughts included.
        unsplit: tokens of requests of which only the sum is known.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    unsplit: int = 0

    @property
    def total(self) -> int:
        """All of them.

        >>> Tokens(input=2, output=3).total
        5
        """
        return sum(self)

    def plus(self, other: "Tokens", sign: int = 1) -> "Tokens":
        """Return the sum; with the sign -1 the difference."""
        return Tokens(*(one + sign * more for one, more in zip(self, other, strict=True)))


class Spent(NamedTuple):
    """The tokens of a request, as its program counted them.

    Attributes:
        tokens: the tokens.
        identity: what names the request; records with the same one count once, and the last is
            valid. None if each record is another request.
        model: the model; None if an earlier record names it.
        is_unique: no request of another session has the identity, but in a copy of this one.
    """

    tokens: Tokens
    identity: str | None = None
    model: str | None = None
    is_unique: bool = True


def count_of(record: dict[str, Any], *names: str) -> int:
    """Return the sum of some fields that are counts; a negative one counts as 0."""
    return sum(max(0, whole_number(record.get(name))) for name in names)


def time_of(value: object) -> float | None:
    """Return the Unix time in a field: a text of ISO 8601, or milliseconds; None in another form.

    >>> time_of("2026-01-02T03:04:05.006Z"), time_of(1_767_323_045_006)
    (1767323045.006, 1767323045.006)
    """
    if is_number(value):
        return value / 1000 if 0 < value < _MS_MAX else None
    if not isinstance(value, str):
        return None
    try:
        # Python 3.11 and newer read the Z.
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


_MS_MAX = 253_402_300_800_000
"""The end of the year 9999, in milliseconds: no calendar has a later day."""

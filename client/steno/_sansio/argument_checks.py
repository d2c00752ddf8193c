"""Checks of a caller's arguments, which no type checker may have seen.

Each mistake is a BadRequest that names the argument, before anything is sent or changed.
"""

from collections.abc import Iterable
from typing import Any, TypeGuard

from steno_protocol import limits
from steno_protocol.errors import BadRequest


def given_text(text: Any, what: str) -> str:
    """A text."""
    if not isinstance(text, str):
        raise BadRequest(f"{what} is {briefly(text)}: give it as text")
    return text


def given_number(number: Any, what: str) -> float:
    """A number, an infinite one included."""
    if not _is_number(number) or number != number:  # noqa: PLR0124  # NaN alone is so
        raise BadRequest(f"{what} is {briefly(number)}: give a number")
    return number


def given_seconds(seconds: Any, what: str) -> float | None:
    """The time limit of a wait in seconds; None is no limit."""
    return None if seconds is None else given_number(seconds, f"{what}, in seconds,")


def given_labels(labels: Any) -> tuple[Any, ...]:
    """A list of labels; one text is refused, because it would be split into its letters."""
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise BadRequest(f"labels is {briefly(labels)}: give a list of labels")
    return tuple(labels)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def given_count(count: Any, what: str, least: int = 0) -> int:
    """A whole number from `least` on."""
    if (
        not isinstance(count, int)
        or isinstance(count, bool)
        or not least <= count <= limits.COUNT_MAX
    ):
        raise BadRequest(f"{what} is {briefly(count)}: give a whole number from {least} on")
    return count


def given_timeout(timeout: object) -> float:
    """The time limit of a client's requests in seconds."""
    # Otherwise the clocks would raise in the middle of a call.
    if _is_number(timeout) and 0 <= timeout <= limits.REQUEST_TIMEOUT_S_MAX:
        return float(timeout)
    raise BadRequest(
        f"the timeout {timeout!r:.80} is no number of seconds that a request can take: give one"
        f" from 0 to {limits.REQUEST_TIMEOUT_S_MAX:g}, or leave it out for"
        f" {limits.REQUEST_TIMEOUT_S:g}"
    )


def pace_ms_of(pace: object) -> int:
    """The pace of a subscription in milliseconds, from one in seconds."""
    most = limits.SUBSCRIPTION_PACE_MS_MAX / 1000
    if _is_number(pace) and 0 <= pace <= most:
        return round(pace * 1000)
    raise BadRequest(
        f"the pace {pace!r:.80} is no number of seconds between two events: give one from 0 to"
        f" {most:g}"
    )


def check_function(function: Any, what: str) -> None:
    """Raise BadRequest if `function` cannot be called."""
    if not callable(function):
        raise BadRequest(f"{what} is {briefly(function)}: give a function")


def briefly(value: object) -> str:
    """A value and its type, in words."""
    return f"{value!r:.80}, {type(value).__name__!r} by its type"


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number; True and False, which Python counts as 1 and 0, are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)

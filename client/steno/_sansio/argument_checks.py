"""What callers give, looked at where no type checker may have done so; pure.

Each mistake is a BadRequest that names the argument, before anything is sent or changed.
"""

from collections.abc import Iterable
from typing import Any

from steno_protocol.errors import BadRequest


def given_text(text: Any, what: str) -> str:
    """A text."""
    if not isinstance(text, str):
        raise BadRequest(f"{what} is {briefly(text)}: give it as text")
    return text


def given_number(number: Any, what: str) -> float:
    """A number, an infinite one included."""
    if not isinstance(number, int | float) or number != number:  # noqa: PLR0124  # NaN alone is so
        raise BadRequest(f"{what} is {briefly(number)}: give a number")
    return number


def given_seconds(seconds: Any, what: str) -> float | None:
    """How long a wait may take, None for as long as it takes."""
    return None if seconds is None else given_number(seconds, f"{what}, in seconds,")


def given_labels(labels: Any) -> tuple[Any, ...]:
    """Several labels, which one text is not: it would be taken for its letters."""
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise BadRequest(f"labels is {briefly(labels)}: give a list of labels")
    return tuple(labels)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def check_function(function: Any, what: str) -> None:
    """Refuse what cannot be called."""
    if not callable(function):
        raise BadRequest(f"{what} is {briefly(function)}: give a function")


def briefly(value: object) -> str:
    """A value and its type, in words."""
    return f"{value!r:.80}, {type(value).__name__!r} by its type"

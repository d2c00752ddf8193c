"""The policy for repeated requests, without network and clock."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from steno.llm.limits import MODEL_RETRY_S, MODEL_RETRY_S_MAX

_AGAIN: Final = frozenset({408, 425, 429})
"""Client errors by number that a repeat may cure: too slow, too early, too often."""

_NEVER: Final = frozenset({501, 505})
"""Server errors that a repeat cannot cure."""


def is_worth_repeating(status: int) -> bool:
    """True when the same question may be answered a little later."""
    return status in _AGAIN or (500 <= status <= 599 and status not in _NEVER)


def asked_pause(headers: Mapping[str, str], now: float) -> float | None:
    """Return the pause in seconds that the server asks for, None without one.

    Args:
        headers: of the response, their names in lower case. `retry-after-ms` goes before
            `retry-after`, which is a number of seconds or a date.
        now: Unix time in seconds, for a date.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    return seconds if seconds is not None or text is None else _until(text, now)


def pause_s(attempt: int, asked_s: float | None, draw: float) -> float:
    """Return the pause in seconds after an attempt.

    Args:
        attempt: its number, from 1.
        asked_s: the pause that the server asked for; a little more is added, so that clients with
            the same pause do not retry together.
        draw: a random number in [0, 1).
    """
    if asked_s is not None:
        return asked_s + draw * min(asked_s / 10, MODEL_RETRY_S)
    longest = min(MODEL_RETRY_S * 2.0 ** (attempt - 1), MODEL_RETRY_S_MAX)
    return longest * (1 + draw) / 2


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    digits = text.strip()
    # Not float(): it takes "nan", "inf" and "1_0", too.
    if not digits.isascii() or not digits.replace(".", "", 1).isdigit():
        return None
    return float(digits)


def _until(date: str, now: float) -> float | None:
    try:
        when = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return max(0.0, when - now)

"""Times that a person gives."""

import argparse
import re
import time
from datetime import datetime, timedelta
from typing import Final

_UNITS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(s|m|min|h|d|w)", re.ASCII)
_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?", re.ASCII)


def since(text: str) -> float:
    """The type of a time in the past, as Unix time in seconds: `2h` ago, `15:04`, `2026-11-21`.

    A time without a zone is local; a time of day is the last one that was.
    """
    span = _SPAN.fullmatch(text)
    if span is not None:
        return time.time() - float(span[1]) * _UNITS[span[2]]
    try:
        if _TIME_OF_DAY.fullmatch(text):
            return _last(text)
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: give 90s, 15min, 2h, 3d, 15:04, 2026-11-21 or 2026-11-21T15:04"
        ) from None


def _last(time_of_day: str) -> float:
    now = datetime.now().astimezone()
    hour, *rest = map(int, time_of_day.split(":"))
    at = now.replace(hour=hour, minute=rest[0], second=rest[1] if rest[1:] else 0, microsecond=0)
    return (at if at <= now else at - timedelta(days=1)).timestamp()

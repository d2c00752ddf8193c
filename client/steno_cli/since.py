"""The option --since: times as a person types them, and the records since then."""

import argparse
import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from steno.values import Record
from steno_cli.arguments import argument
from steno_present.messages import written_at

_UNITS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(s|m|min|h|d|w)", re.ASCII)
_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?", re.ASCII)


def since(text: str) -> float:
    """The type of a past time, as Unix time in seconds: `2h` ago, `15:04`, `2026-11-21`.

    A time without a zone is local. A time of day is its most recent occurrence.
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


since_option = argument(
    "--since", metavar="TIME", type=since,
    help="only records written at TIME or later: an age (90s, 15min, 2h, 3d) or a time (15:04,"
    " 2026-11-21, 2026-11-21T15:04)",
)  # fmt: skip


class Since:
    """A filter that drops the records before a time.

    A record without a time of its own follows the record before it.

    Args:
        at: Unix time in seconds; None drops nothing.
    """

    def __init__(self, at: float | None) -> None:
        self._at = at

    def records(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records from the first one on that is known to be no older than the time."""
        for record in records:
            if self._at is not None:
                written = written_at(record.record)
                if written is None or written < self._at:
                    continue
                self._at = None
            yield record

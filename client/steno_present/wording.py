"""Numbers, sizes and times in words; pure but for the time zone."""

from datetime import datetime
from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_DAY_S: Final = 86_400
_MONTH_S: Final = 30 * _DAY_S


def number(value: int) -> str:
    """A number with its thousands separated.

    >>> number(1472)
    '1 472'
    """
    return f"{value:,}".replace(",", " ")


def compact(value: int) -> str:
    """A number in at most five characters.

    >>> compact(999), compact(13400), compact(2500000), compact(1234567890)
    ('999', '13k', '2.5M', '1.2G')
    """
    amount, unit = float(value), ""
    for name in ("k", "M", "G", "T"):
        if amount < 999.5:
            break
        amount, unit = amount / 1000, name
    digits = 1 if unit and amount < 9.95 else 0
    return f"{amount:.{digits}f}{unit}"


def size(value: int) -> str:
    """A number of bytes in a suitable unit.

    >>> size(999), size(13400), size(2500000)
    ('999 B', '13 kB', '2.5 MB')
    """
    amount, unit = float(value), _UNITS[0]
    for name in _UNITS[1:]:
        if amount < 999.5:
            break
        amount, unit = amount / 1000, name
    digits = 1 if unit != "B" and amount < 9.95 else 0
    return f"{amount:.{digits}f} {unit}"


def count(value: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "record"), count(1200, "record")
    ('1 record', '1 200 records')
    """
    return f"{number(value)} {noun if value == 1 else noun + 's'}"


def moment(at: float) -> str:
    """A Unix time as local date and time of day; beyond the calendar as a number.

    >>> moment(281474976710.655)
    '281474976710.655'
    """
    local = _local(at)
    return repr(at) if local is None else local.isoformat(" ", "seconds")[:19]


def instant(at: float) -> str:
    """A Unix time as local date and time in milliseconds; beyond the calendar as a number.

    >>> instant(1e300)
    '1e+300'
    """
    local = _local(at)
    return repr(at) if local is None else local.isoformat(" ", "milliseconds")[:23]


def age(at: float, now: float) -> str:
    """A Unix time as the time since then, and after a month as a date; at most ten characters.

    >>> age(100.0, 103.9), age(0.0, 3540.0), age(0.0, 7200.0), age(0.0, 200000.0)
    ('3 s ago', '59 min ago', '2 h ago', '2 d ago')
    """
    seconds = max(0, int(now - at))
    for unit, name in ((_DAY_S, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= unit and seconds < _MONTH_S:
            return f"{seconds // unit} {name} ago"
    return moment(at)[:10] if seconds else "now"


def _local(at: float) -> datetime | None:
    """A Unix time in the zone of this machine, None beyond the calendar."""
    try:
        return datetime.fromtimestamp(at)  # noqa: DTZ006  # naive: three times as fast
    except (OverflowError, ValueError, OSError):
        return None


def duration(seconds: float) -> str:
    """A time span in its two largest units.

    >>> duration(0.31), duration(75), duration(90000)
    ('0.31 s', '1 min 15 s', '1 d 1 h')
    """
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest_s = divmod(int(seconds), 60)
    hours, rest_min = divmod(minutes, 60)
    days, rest_h = divmod(hours, 24)
    if days:
        return f"{days} d {rest_h} h"
    return f"{hours} h {rest_min} min" if hours else f"{minutes} min {rest_s} s"

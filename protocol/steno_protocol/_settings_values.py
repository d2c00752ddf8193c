"""Values of the configuration, from a file or a variable: numbers, sizes with units, mounts."""

import math
import posixpath
import re
from typing import Final

from steno_protocol._json import is_number
from steno_protocol.errors import BadRequest

_MOUNT_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_ADDRESS: Final = re.compile(r"tcp://(\*|[A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5}|\*)")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]i?)?B?")
_UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "ki": 2**10, "Ki": 2**10, "K": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip

_EXAMPLES: Final = {
    "bytes": 'a number of bytes, or text such as "10 GiB"',
    "seconds": "a number of seconds",
    "days": "a number of days",
    "count": "a whole number",
    "port": "the number of a port",
}
_WHOLE: Final = {"bytes", "count", "port"}
_QUOTED_CHARS_MAX: Final = 80
"""So much of a value stands in a message: enough to find it again."""


def read_value(
    name: str, kind: str, value: object, bounds: tuple[float, float], where: str
) -> int | float:
    """A number that an option was given, as a number or as text.

    Raises:
        BadRequest: it is none, or out of bounds.
    """
    number = _number(kind, value)
    if number is None or (kind in _WHOLE and number != int(number)):
        raise BadRequest(f"{where}: {name} has to be {_EXAMPLES[kind]}, not {_quoted(value)}")
    least, most = bounds
    if not least <= number <= most:
        allowed = f"be {least:g} or more" if number < least else f"be {most:.12g} or less"
        raise BadRequest(f"{where}: {name} is {number:g}, but has to {allowed}")
    return int(number) if kind in _WHOLE else number


def _number(kind: str, value: object) -> float | None:
    """The number that a value is or spells; None if it is none that can be reckoned with."""
    try:
        number = _spelled(kind, value) if isinstance(value, str) else value
        if is_number(number) and math.isfinite(number):
            return number
    except (ValueError, OverflowError):
        # No number, or a whole one beyond all floats.
        pass
    return None


def _spelled(kind: str, text: str) -> float | None:
    if kind != "bytes":
        return float(text)
    found = _SIZE.fullmatch(text.strip())
    return float(found[1]) * _UNITS[found[2] or ""] if found is not None else None


def _quoted(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # TOML can say numbers and tables that are too large for Python to print.
        return "what stands there"
    return text if len(text) <= _QUOTED_CHARS_MAX else f"{text[:_QUOTED_CHARS_MAX]}..."


def check_address(name: str, value: object, where: str) -> str:
    """An address to listen at, empty for none.

    Raises:
        BadRequest: it is none.
    """
    if isinstance(value, str) and (not value or _ADDRESS.fullmatch(value)):
        return value
    raise BadRequest(
        f'{where}: {name} has to be an address such as "tcp://127.0.0.1:7373", or empty'
    )


def check_mount(name: str, folder: object, where: str) -> str:
    """The folder of a mount, still with its `~`.

    Raises:
        BadRequest: name or folder cannot be a mount's.
    """
    if _MOUNT_NAME.fullmatch(name) is None:
        raise BadRequest(
            f"{where}: {name!r} cannot name a mount: use a lower-case letter, then letters, digits"
            " and -, 32 at most"
        )
    if not isinstance(folder, str) or not folder.startswith(("/", "~")):
        raise BadRequest(
            f'{where}: the mount {name!r} needs an absolute folder, for example "~/.kimi/sessions"'
        )
    if "\0" in folder:
        raise BadRequest(f"{where}: the folder of the mount {name!r} holds a NUL: no path may")
    if expanded(folder).startswith("~"):
        user = folder.partition("/")[0]
        raise BadRequest(
            f"{where}: the mount {name!r} begins with {user}, and there is no such user here: name"
            " the folder from / on"
        )
    return folder


def expanded(folder: str) -> str:
    """The folder of a mount without its `~`, which stays where no user of that name is known."""
    return posixpath.expanduser(folder)

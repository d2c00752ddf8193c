"""The header of a request: a command as JSON, or why it is none; pure."""

from typing import Final, cast

import msgspec

from steno._sansio.argument_checks import briefly
from steno_protocol import limits
from steno_protocol.commands import Command, command_name, encode_command
from steno_protocol.errors import BadRequest, TooLarge

_LATER_BYTES: Final = 64
"""Room in a header for what is added when it is sent: the deadline, and `repeat`."""


def encode_header(command: Command) -> bytes:
    """The command as it is sent.

    Raises:
        BadRequest: a field holds what JSON has no value for, or text that UTF-8 has none for.
        TooLarge: it is longer than a header may be.
    """
    # JSON would encode bytes as Base64, which the caller did not mean.
    values = msgspec.structs.astuple(command)
    kinds = [*map(type, values)]
    if bytes in kinds or (tuple in kinds and any(map(_has_bytes, values))):
        raise BadRequest(f"{command_name(command)!r} takes text, and was given bytes: decode them")
    try:
        header = encode_command(command)
    except (UnicodeEncodeError, OverflowError) as error:
        raise BadRequest(
            f"the command {command_name(command)!r} cannot be written as JSON: {error}"
        ) from None
    except (TypeError, ValueError, RecursionError):
        raise BadRequest(
            f"the command {command_name(command)!r} cannot be written as JSON"
            f" ({_odd_fields(command)}): give texts, numbers and lists of them"
        ) from None
    if len(header) > limits.HEADER_BYTES_MAX - _LATER_BYTES:
        raise TooLarge(
            f"the header of {command_name(command)!r} has {len(header)} bytes, at most"
            f" {limits.HEADER_BYTES_MAX} are allowed: shorten its longest field"
        )
    return header


def _has_bytes(value: object) -> bool:
    return isinstance(value, tuple) and bytes in map(type, cast("tuple[object, ...]", value))


def _odd_fields(command: Command) -> str:
    """Which fields JSON has no value for, and what they were given."""
    parts: list[str] = []
    for name, value in msgspec.structs.asdict(command).items():
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError):
            parts.append(f"{name} is {briefly(value)}")
    return "; ".join(parts)

"""Masks in what a client sends, before it is sent; pure.

The masks of a request depend on its texts and on the patterns alone: a request that is repeated
with its key has the same bytes.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from steno._redaction.redactor import Redactor
from steno.values import decode_object
from steno_protocol.commands import Command
from steno_protocol.errors import StenoError

Masks = Callable[[Command, Sequence[bytes]], tuple[Command, Sequence[bytes]]]
"""Masks a command and its records."""

_TEXTS: Final = ("prompt", "message", "title", "why")
"""Fields of commands that hold what a person or a model wrote."""

_encode = msgspec.json.Encoder().encode


def masks_of(redactor: Redactor) -> Masks:
    """What masks the requests of a client."""

    def masked(command: Command, records: Sequence[bytes]) -> tuple[Command, Sequence[bytes]]:
        return _command(redactor, command), [_record(redactor, each) for each in records]

    return masked


def refusal_of(error: StenoError) -> Masks:
    """What refuses texts and records with an error, while nobody knows what has to be masked."""

    def refused(command: Command, records: Sequence[bytes]) -> tuple[Command, Sequence[bytes]]:
        if records or any(getattr(command, name, None) for name in (*_TEXTS, "labels")):
            raise error
        return command, records

    return refused


def _command(redactor: Redactor, command: Command) -> Command:
    changed: dict[str, Any] = {}
    for name in _TEXTS:
        text = getattr(command, name, None)
        if isinstance(text, str) and (shown := redactor.text(text)) != text:
            changed[name] = shown
    labels: tuple[str, ...] | None = getattr(command, "labels", None)
    if labels and (masked := tuple(map(redactor.text, labels))) != labels:
        changed["labels"] = masked
    return msgspec.structs.replace(command, **changed) if changed else command


def _record(redactor: Redactor, data: bytes) -> bytes:
    """A record; what is no JSON object is left to the daemon, which refuses it."""
    value = decode_object(data)
    if value is None:
        return data
    masked = redactor.value(value)
    if masked is value or masked == value:
        return data
    try:
        return _encode(masked)
    except UnicodeEncodeError:
        # Half a surrogate pair, which only ASCII can express.
        return json.dumps(masked, separators=(",", ":")).encode()

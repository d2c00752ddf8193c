"""Masks in what a client sends, before it is sent; pure.

The masks of a request depend on its texts and on the patterns alone: a request that is repeated
with its key has the same bytes.
"""

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from steno.values import decode_object
from steno_protocol.commands import Command, Fork, SessionCommand
from steno_protocol.errors import StenoError
from steno_redact.patterns import Patterns
from steno_redact.redactor import Redactor

_TEXTS: Final = ("prompt", "message", "title", "why")
"""Fields of commands that hold what a person or a model wrote."""

_encode = msgspec.json.Encoder().encode


class Masks:
    """Masks the requests of a client.

    Args:
        redactor: finds the secrets.
        sessions: patterns of the sessions that are masked, in which `*` stands for any characters;
            None masks all sessions.
    """

    def __init__(self, redactor: Redactor, sessions: Sequence[str] | None = None) -> None:
        self._redactor = redactor
        self._sessions = sessions

    def __call__(
        self, command: Command, records: Sequence[bytes]
    ) -> tuple[Command, Sequence[bytes]]:
        """A command and its records, masked."""
        if self._sessions is not None and not any(map(self._has, _sessions_of(command))):
            return command, records
        redactor = self._redactor
        return _command(redactor, command), [_record(redactor, each) for each in records]

    def redactor_of(self, session: str) -> Redactor | None:
        """What masks the files of a session; None if they stay exact."""
        return self._redactor if self._has(session) else None

    def _has(self, session: str) -> bool:
        patterns = self._sessions
        return patterns is None or any(fnmatchcase(session, pattern) for pattern in patterns)


class Refusal(Masks):
    """Refuses texts and records with an error, while nobody knows what has to be masked."""

    def __init__(self, error: StenoError) -> None:
        super().__init__(Redactor(Patterns()))
        self._error = error

    def __call__(
        self, command: Command, records: Sequence[bytes]
    ) -> tuple[Command, Sequence[bytes]]:
        """The command, if it writes nothing that a person or a model wrote."""
        if records or any(getattr(command, name, None) for name in (*_TEXTS, "labels")):
            raise self._error
        return command, records

    def redactor_of(self, session: str) -> Redactor | None:
        """Raise the error, for any session."""
        del session
        raise self._error


def _sessions_of(command: Command) -> tuple[str, ...]:
    """The sessions that a command changes; a fork writes its title in the new one."""
    if isinstance(command, Fork):
        return command.session, command.new_session
    return (command.session,) if isinstance(command, SessionCommand) else ()


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

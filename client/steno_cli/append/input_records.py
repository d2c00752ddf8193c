"""The records on stdin: lines that steno printed or exported, as the commands they came from.

`steno read`, with `--json` too, and `steno export` print checkpoints, token counts and system
prompts beside messages. Each of these is written by a command of its own, which assigns ids and
keeps the prompt first.
"""

from argparse import Namespace
from typing import Any, Final, Literal, NamedTuple, TextIO

import msgspec

from steno.values import decode_object
from steno_cli.stdin import InputLine, InputLines
from steno_protocol._json import is_array, is_object
from steno_protocol.errors import BadRequest

_decode = msgspec.json.Decoder().decode

_EXPORT_BEGINS: Final = (b'{"session":', b'"records":[')
"""The beginning and the end of the first line of `steno export --format json`."""

_EXPORT_ENDS: Final = b'],"events":['
"""The beginning of the line after its records."""

_CONTROL_ROLES: Final = (b'"_checkpoint"', b'"_usage"', b'"_system_prompt"')


class _Printed(msgspec.Struct, forbid_unknown_fields=True):
    """A line of `steno read --json` and of an export."""

    cursor: str
    record: msgspec.Raw


class Control(NamedTuple):
    """A record that a command of its own writes.

    Attributes:
        role: its role.
        value: what stands where the id of the checkpoint, the token count or the prompt belongs.
    """

    role: Literal["_checkpoint", "_usage", "_system_prompt"]
    value: Any


class InputRecords(InputLines):
    """The lines of stdin, where those that steno printed or exported are the records in them.

    Attributes:
        is_export: an export was read, whose events, streams and timeline are passed over.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.is_export: bool = False
        self._is_behind_records = False

    def take(self, *, wait: bool) -> InputLine | None:
        """Take the next record; the arguments and errors are those of `InputLines.take`."""
        while (line := super().take(wait=wait)) is not None:
            record = self._record_of(line)
            if record:
                return line._replace(text=record)
        return None

    def _record_of(self, line: InputLine) -> bytes:
        """The record of a line; empty for a line of an export that has none."""
        text = line.text
        if _begins_export(text):
            self.is_export, self._is_behind_records = True, False
            return b""
        if self.is_export:
            # After its records an export has lines that look like records, of other files.
            self._is_behind_records |= text.startswith(_EXPORT_ENDS)
            text = b"" if self._is_behind_records else text.removeprefix(b",")
        return unwrapped(text)


def _begins_export(line: bytes) -> bool:
    return line.startswith(_EXPORT_BEGINS[0]) and line.endswith(_EXPORT_BEGINS[1])


def unwrapped(line: bytes) -> bytes:
    r"""The record in a line of `steno read --json`; any other line as it is.

    >>> unwrapped(b'{"cursor":"0:3","record":{"role":"user","content":"hi"}}')
    b'{"role":"user","content":"hi"}'
    """
    if b'"cursor"' not in line or b'"record"' not in line:
        return line
    try:
        return bytes(msgspec.json.decode(line, type=_Printed).record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line


def control_of(line: bytes) -> Control | None:
    """The control record in a line; None if it is a message, or no record.

    >>> control_of(b'{"role":"_usage","token_count":12}')
    Control(role='_usage', value=12)
    """
    # Most lines are messages, and need not be decoded.
    if not any(role in line for role in _CONTROL_ROLES):
        return None
    record = decode_object(line) or {}
    match record.get("role"):
        case "_checkpoint":
            return Control("_checkpoint", record.get("id"))
        case "_usage":
            return Control("_usage", record.get("token_count"))
        case "_system_prompt":
            return Control("_system_prompt", record.get("content"))
        case _:
            return None


def looks_like_record(line: bytes) -> bool:
    r"""Whether a line is a record, or one that steno printed or exported.

    >>> looks_like_record(b'{"role":"user","content":"hi"}'), looks_like_record(b"hi")
    (True, False)
    """
    if not line.lstrip().startswith(b"{"):
        return False
    record = decode_object(unwrapped(line)) or {}
    return "role" in record or _begins_export(line.strip())


def is_array_of_records(text: bytes) -> bool:
    """Whether a text is one JSON array of objects with roles, as APIs take it.

    >>> is_array_of_records(b'[{"role":"user","content":"hi"}]'), is_array_of_records(b"[note] hi")
    (True, False)
    """
    if not text.lstrip().startswith(b"["):
        return False
    try:
        values: object = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return is_array(values) and bool(values) and all(_has_role(each) for each in values)


class NothingToAppend(BadRequest):
    """Stdin held no record."""


def nothing_to_append(options: Namespace) -> BadRequest:
    """The refusal of an empty stdin."""
    # A script that passes no TEXT by mistake must notice that nothing was appended.
    beyond = "" if options.from_line is None else f" from line {options.from_line} on"
    return NothingToAppend(
        f"stdin held no record{beyond}, and nothing was appended: give a text, or one JSON object a"
        " line",
        session=options.session,
    )


def line_key(key: str, line_number: int) -> str:
    """The key of a record on a line of stdin."""
    return f"{key}-{line_number}"


def _has_role(value: object) -> bool:
    return is_object(value) and "role" in value

"""Calls of tools that have no result, and the results that close them; pure.

A program that ends between a call and its result leaves such a call, and APIs refuse a conversation
with one. While a tool runs, its call has no result either.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from steno.values import Record, decode_line
from steno_present.messages import answers_of, calls_of
from steno_protocol._json import is_array, is_object
from steno_protocol.positions import Position

INTERRUPTED: Final = (
    "The call was interrupted before its result was recorded. Whether it had an effect is unknown."
)
"""The text of a result that closes a call."""


class OpenCall(NamedTuple):
    """A call without a result.

    Attributes:
        id: its id, which its result names.
        name: the tool.
        cursor: the position of its message.
        is_part: it is a part of the content, as the API of Anthropic has it.
    """

    id: str
    name: str
    cursor: Position
    is_part: bool


class OpenCalls:
    """The calls of a session that have no result, record by record.

    Programs use ids again, so the newest call without a result is the answered one.
    """

    def __init__(self) -> None:
        self._open: dict[str, list[OpenCall]] = {}

    def add(self, record: Record) -> None:
        """Take in the next record."""
        for answered in answers_of(record.record):
            self._answer(answered)
        listed = _listed_ids(record.record)
        for call_id, name, _ in calls_of(record.record):
            self._call(OpenCall(call_id, name, record.cursor, is_part=call_id not in listed))

    def add_line(self, cursor: Position, line: bytes) -> None:
        """Take in the next line of a file without damage, decoded without its texts."""
        try:
            message = _decode_message(line)
        except (msgspec.DecodeError, RecursionError):
            record = decode_line(cursor, line)
            if record is not None:
                self.add(record)
            return
        parts = message.content if isinstance(message.content, list) else ()
        if message.role == "tool":
            self._answer(message.tool_call_id)
        for part in parts:
            if part.type == "tool_result":
                self._answer(part.tool_use_id)
        listed = {call.id for call in message.tool_calls or ()}
        for call in message.tool_calls or ():
            self._call(OpenCall(call.id, call.function.name, cursor, is_part=False))
        for part in parts:
            if part.type == "tool_use":
                self._call(OpenCall(part.id, part.name, cursor, is_part=part.id not in listed))

    def _answer(self, call_id: str) -> None:
        calls = self._open.get(call_id)
        if calls is not None:
            calls.pop()
            if not calls:
                del self._open[call_id]

    def _call(self, call: OpenCall) -> None:
        self._open.setdefault(call.id, []).append(call)

    def calls(self) -> list[OpenCall]:
        """The calls without a result so far, in order."""
        return sorted(
            (call for calls in self._open.values() for call in calls),
            key=lambda call: call.cursor,
        )


class _Function(msgspec.Struct, gc=False):
    name: str = "null"


class _Call(msgspec.Struct, gc=False):
    function: _Function
    id: str = "None"


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    id: str = "None"
    name: str = "null"
    tool_use_id: str = "None"


class _Message(msgspec.Struct, gc=False):
    """The usual shape of a message, without what calls and results do not need.

    A missing field is the text that `calls_of` and `answers_of` make of it.
    """

    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str = "None"


_decode_message = msgspec.json.Decoder(_Message).decode


def open_calls(records: Iterable[Record]) -> list[OpenCall]:
    """The calls in consecutive records that have no result among them."""
    found = OpenCalls()
    for record in records:
        found.add(record)
    return found.calls()


def closing(calls: Sequence[OpenCall]) -> list[dict[str, Any]]:
    """The messages that close calls, each in the form of its call."""
    return [_closing(call) for call in calls]


def _closing(call: OpenCall) -> dict[str, Any]:
    if not call.is_part:
        return {
            "role": "tool", "tool_call_id": call.id, "content": INTERRUPTED, "is_error": True,
        }  # fmt: skip
    result = {
        "type": "tool_result", "tool_use_id": call.id, "content": INTERRUPTED, "is_error": True,
    }  # fmt: skip
    return {"role": "user", "content": [result]}


def _listed_ids(record: dict[str, Any]) -> set[str]:
    calls = record.get("tool_calls")
    return {str(call.get("id")) for call in calls if is_object(call)} if is_array(calls) else set()

"""The choice of a compaction's cut."""

from array import array
from typing import Final

import msgspec

from steno_protocol._json import is_array, is_object
from steno_protocol.context import MessageLine, parse_line
from steno_protocol.records import shows_checkpoint


class Cut(msgspec.Struct, frozen=True):
    """The line before which the messages are summarised.

    Attributes:
        line: its number.
        messages: the number of messages before it.
    """

    line: int
    messages: int


class _Message(msgspec.Struct, gc=False):
    """The facts of a message that decide on a cut."""

    chars: int
    is_counted: bool
    calls: list[str]
    answers: str


_NOT_COUNTED: Final = 0
_COUNTED: Final = 1


class Conversation:
    """The messages of a file in a few numbers each, from which cuts are chosen."""

    def __init__(self) -> None:
        self.lines = array("q")
        self._counted = array("b")
        self._chars = array("q")
        self._answered = array("q")
        self._open_calls: dict[str, list[int]] = {}
        self._last_answered: dict[str, int] = {}

    def feed(self, number: int, data: bytes) -> None:
        """Add line `number`, after the lines before it; lines without a message are ignored."""
        message = _message_of(data)
        if message is None:
            return
        index = len(self.lines)
        self.lines.append(number)
        self._counted.append(_COUNTED if message.is_counted else _NOT_COUNTED)
        self._chars.append(message.chars)
        self._answered.append(self._answered_by(message.answers, index))
        for call in message.calls:
            self._open_calls.setdefault(call, []).append(index)

    def choose(self, preserve: int) -> Cut | None:
        """Choose the cut that keeps the last `preserve` user and assistant messages.

        Checkpoint notices do not count. Returns None if there are fewer, or no message before them.
        """
        left = preserve
        for index in range(len(self.lines) - 1, -1, -1) if preserve > 0 else ():
            left -= self._counted[index]
            if left == 0:
                return self._cut_at(self._whole(index))
        return None

    def whole(self, line: int) -> int:
        """Return the last line up to `line` that separates no tool call from its results."""
        index = self._index_of(line)
        whole = self._whole(index)
        return line if whole == index else self.lines[whole]

    def chars_from(self, line: int) -> int:
        """Count the characters of text in the messages from a line on."""
        return sum(self._chars[self._index_of(line) :])

    def _answered_by(self, name: str, index: int) -> int:
        """Return the message with the call `name` that message `index` answers, else `index`.

        Programs reuse ids, so the newest call without a result is the answered one. A call may have
        several results.
        """
        calls = self._open_calls.get(name)
        if calls is None:
            return self._last_answered.get(name, index)
        found = self._last_answered[name] = calls.pop()
        if not calls:
            del self._open_calls[name]
        return found

    def _whole(self, index: int) -> int:
        # Backwards from the end, so that a moved cut also covers the messages that it now includes.
        later = len(self.lines) - 1
        while later >= index:
            index = min(index, self._answered[later])
            later -= 1
        return index

    def _cut_at(self, index: int) -> Cut | None:
        return Cut(self.lines[index], index) if index else None

    def _index_of(self, line: int) -> int:
        low, high = 0, len(self.lines)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.lines[middle] < line else (low, middle)
        return low


def _message_of(data: bytes) -> _Message | None:
    """Return the facts of a line with a message; None for any other line."""
    line = parse_line(data)
    if not isinstance(line, MessageLine):
        return None
    record = line.record
    role, answers = record["role"], record.get("tool_call_id")
    return _Message(
        chars=line.text_chars,
        is_counted=role == "assistant" or (role == "user" and not shows_checkpoint(record)),
        calls=_calls_in(record.get("tool_calls")),
        answers=answers if isinstance(answers, str) else "",
    )


def _calls_in(calls: object) -> list[str]:
    """Return the ids of tool calls, ignoring malformed ones."""
    if not is_array(calls):
        return []
    ids = [call.get("id") for call in calls if is_object(call)]
    return [found for found in ids if isinstance(found, str) and found]

"""The events of a wire file by turn, with the durations of tools; pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from steno.values import WireRecord
from steno_protocol._json import is_object

_BEGINS_TURN: Final = "TurnBegin"
_ENDS_TURN: Final = "TurnEnd"
_RESULT: Final = "ToolResult"
_TROUBLES: Final = ("error", "retry", "interrupt", "failed", "reject")
"""Types that contain one of these words stand out."""

_APPROVALS: Final = frozenset({"ApprovalRequest", "ApprovalResponse", "ApprovalRequestResolved"})


@dataclass(slots=True)
class EventIndex:
    """What the page needs of every event to arrange them all; payloads are read later.

    Attributes:
        end: the number of lines of the wire file that were taken in.
        types: the types of events, in the order of their first appearance.
        mask: masks the secrets in types and names.
    """

    end: int = 0
    types: list[str] = field(default_factory=list[str])
    mask: Callable[[str], str] = str
    _entries: list[list[Any]] = field(default_factory=list[list[Any]])
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
    _calls: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, event: WireRecord) -> None:
        """Take in the next event."""
        number = self._numbers.get(event.type)
        if number is None:
            number = self._numbers[event.type] = len(self.types)
            self.types.append(self.mask(event.type))
        entry: list[Any] = [event.cursor.line, number, event.timestamp, None, "", "", None]
        self._entries.append(entry)
        self._describe(event, entry)
        self.end = event.cursor.line + 1

    def cut(self, kept: int) -> None:
        """Keep the events of the first lines."""
        while self._entries and self._entries[-1][0] >= kept:
            self._entries.pop()
        self._calls = {name: at for name, at in self._calls.items() if at < len(self._entries)}
        self.end = min(self.end, kept)

    def document(self) -> dict[str, Any]:
        """The types, and for each event `[line, type, time, seconds, name, mark, tokens]`.

        `seconds` is the duration of a tool, on its call and its result. `mark` is `turn`, `trouble`
        or `approval` for an event that stands out. `tokens` is the size of the context that an
        event reports.
        """
        return {"end": self.end, "types": self.types, "events": self._entries}

    def _describe(self, event: WireRecord, entry: list[Any]) -> None:
        entry[5] = _mark_of(event)
        match event.type:
            case "ToolCall":
                function = event.payload.get("function")
                entry[4] = self.mask(str(function.get("name"))) if is_object(function) else ""
                self._calls[str(event.payload.get("id"))] = len(self._entries) - 1
            case "ToolResult":
                self._join(event, entry)
            case "StatusUpdate":
                tokens = event.payload.get("context_tokens")
                entry[6] = tokens if isinstance(tokens, int) else None
            case _:
                pass

    def _join(self, event: WireRecord, entry: list[Any]) -> None:
        """Give a call and its result the seconds between them."""
        at = self._calls.get(str(event.payload.get("tool_call_id")))
        if at is None:
            return
        call = self._entries[at]
        call[3] = entry[3] = round(event.timestamp - call[2], 3)
        entry[4] = call[4]


def _mark_of(event: WireRecord) -> str:
    if event.type in {_BEGINS_TURN, _ENDS_TURN}:
        return "turn" if event.type == _BEGINS_TURN else ""
    if event.type in _APPROVALS:
        return "approval"
    result = event.payload.get("return_value")
    is_failed = event.type == _RESULT and is_object(result) and result.get("is_error") is True
    is_named = any(word in event.type.lower() for word in _TROUBLES)
    return "trouble" if is_failed or is_named else ""

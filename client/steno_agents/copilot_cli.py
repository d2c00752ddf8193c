"""The transcripts of GitHub Copilot CLI: events, one after the other.

An event is `{"type", "data", "id", "parentId", "timestamp"}`. The conversation is `user.message`,
whose `transformedContent` is what the model got; `assistant.message` with `toolRequests`; and
`tool.execution_complete` with a `result` or an `error`. `system.message` has the system prompt.
`session.compaction_complete` puts `summaryContent` in the place of what was before, and
`session.snapshot_rewind` removes events. Events of subagents name a `parentToolCallId`.
`session.usage_record` has the tokens of a request; older versions wrote sums at their end only.
The title is not among the events, but the `name` in `workspace.yaml` beside the file. Whether
Copilot keeps messages behind a summary was not seen: here the summary replaces all of them.
Source: `session-events.schema.json` of @github/copilot 1.0.102, files that it wrote, and the
requests that it made.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, ClassVar, Final

from steno_agents.traces import Circumstances, Spent, Tokens, count_of
from steno_agents.transcript import (
    Converter,
    End,
    ForeignTranscript,
    History,
    Message,
    dated,
    object_field,
    objects,
    text_field,
    tool_call,
    tool_result,
)
from steno_protocol._json import is_array, is_object, whole_number

_TOLD: Final = frozenset({"user.message", "assistant.message", "tool.execution_complete"})
_NAME: Final = re.compile(r"^name:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_OWN: Final = ("session.", "user.", "assistant.", "tool.", "system.")


class CopilotCli(ForeignTranscript):
    """One file `events.jsonl` in `~/.copilot/session-state/<session>`."""

    program: ClassVar[str] = "GitHub Copilot CLI"
    stream: ClassVar[str] = "copilot-cli"
    resume: ClassVar[tuple[str, ...]] = ("copilot", "--resume")
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"session.usage_record"',)
    title_file: ClassVar[str | None] = "workspace.yaml"

    def __init__(self) -> None:
        super().__init__()
        self._prompt: int | None = None
        # The place of each event of the conversation, by id.
        self._live: dict[str, int] = {}
        self._order: dict[str, int] = {}

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is the first event, or one of the conversation."""
        kind, data = text_field(record, "type"), object_field(record, "data")
        if kind == "session.start":
            return text_field(data, "sessionId") is not None
        is_event = text_field(record, "id") is not None and "parentId" in record
        return kind in _TOLD and bool(data) and is_event

    @classmethod
    def is_record(cls, record: dict[str, Any]) -> bool:
        """Whether an object has the type, the data and the id of an event."""
        kind = text_field(record, "type") or ""
        return kind.startswith(_OWN) and is_object(record.get("data")) and "id" in record

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """What the begin and each resumption of a session say, and changes of the model."""
        data = object_field(record, "data")
        context = object_field(data, "context")
        model = text_field(data, "selectedModel") or text_field(data, "newModel")
        return Circumstances(text_field(context, "cwd"), text_field(context, "branch"), model)

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of a request, also of a subagent's; those of caches are among its input."""
        usage = object_field(object_field(record, "data"), "usage")
        if record.get("type") != "session.usage_record" or not usage:
            return None
        read, written = count_of(usage, "cacheReadTokens"), count_of(usage, "cacheWriteTokens")
        new = max(0, count_of(usage, "inputTokens") - read - written)
        tokens = Tokens(new, read, written, count_of(usage, "outputTokens"))
        return Spent(tokens, text_field(record, "id"), text_field(usage, "model"))

    @classmethod
    def title_in(cls, content: str) -> str | None:
        """The name in the description of the session, one line of YAML."""
        found = _NAME.search(content)
        return None if found is None else found[1].strip("'\"") or None

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Learn session and directory, and follow the conversation."""
        self._records += 1
        data = object_field(record, "data")
        self.work_dir = self.work_dir or text_field(object_field(data, "context"), "cwd")
        identity = text_field(record, "id") or f"event {place}"
        self._order[identity] = place
        match record.get("type"):
            case "session.start":
                self.session = self.session or text_field(data, "sessionId")
            case "system.message" if _is_main(data):
                self._prompt = place
            case "session.compaction_complete" if _is_summary(data):
                self._replaced("compaction")
                self._live = {identity: place}
            case "session.snapshot_rewind":
                self._rewind(data)
            case "user.message" | "assistant.message" | "tool.execution_complete" as kind:
                if _is_main(data) and data.get("isUserRequested") is not True:
                    self._live[identity] = place
                    if kind == "user.message":
                        self._note_words(place, text_field(data, "content") or "")
            case _:
                pass

    def _rewind(self, data: dict[str, Any]) -> None:
        first, named = text_field(data, "upToEventId"), data.get("eventIds")
        if is_array(named):
            gone = [each for each in named if isinstance(each, str) and each in self._live]
        elif (begin := self._order.get(first or "")) is not None:
            gone = list(takewhile(lambda each: self._order[each] >= begin, reversed(self._live)))
        else:
            return
        if gone:
            self._replaced("roll-back")
        for each in gone:
            self._live.pop(each, None)

    def _replaced(self, end: End) -> None:
        self._keep_past(len(self._live), self._places, end)

    def _places(self) -> list[int]:
        begin = [] if self._prompt is None else [self._prompt]
        return [*begin, *self._live.values()]

    def histories(self) -> list[History]:
        """What compactions and returns replaced, and the live history as the last."""
        return [*self._past, *([History(self._places(), "live")] if self._live else [])]

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion()


class _Conversion(Converter):
    """Puts the results of one answer into the order of its calls, as Copilot sends them."""

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._results: list[Message] = []

    def messages(
        self,
        place: int,  # noqa: ARG002  # an event says all of itself
        record: dict[str, Any],
    ) -> Iterator[Message]:
        """Convert an event of the conversation."""
        data = object_field(record, "data")
        if record.get("type") == "tool.execution_complete":
            self._results.append(dated(_result(data), record))
            return
        yield from self.finish()
        match record.get("type"):
            case "system.message" if (prompt := text_field(data, "content")) is not None:
                yield {"role": "_system_prompt", "content": prompt}
            case "user.message":
                sent = text_field(data, "transformedContent") or text_field(data, "content")
                if sent is not None:
                    yield dated({"role": "user", "content": sent}, record)
            case "session.compaction_complete":
                yield dated({"role": "user", "content": str(data.get("summaryContent"))}, record)
            case "assistant.message":
                for message in _answer(data):
                    self._calls = [call["id"] for call in message.get("tool_calls", ())]
                    yield dated(message, record)
            case _:
                pass

    def finish(self) -> Iterator[Message]:
        """Yield the results that were collected; those of unknown calls come last."""
        known = {identity: at for at, identity in enumerate(self._calls)}
        last = len(known)
        yield from sorted(self._results, key=lambda each: known.get(each["tool_call_id"], last))
        self._results = []


def _answer(data: dict[str, Any]) -> Iterator[Message]:
    calls = [
        tool_call(each.get("toolCallId"), each.get("name"), each.get("arguments", {}))
        for each in objects(data.get("toolRequests"))
    ]
    said, thought = text_field(data, "content"), text_field(data, "reasoningText")
    if not (calls or said or thought):
        return
    text = said or ""
    thinking = [] if thought is None else [{"type": "think", "think": thought}]
    parts = [*thinking, *([{"type": "text", "text": text}] if text else [])]
    message: Message = {"role": "assistant", "content": parts if thinking else text}
    yield {**message, "tool_calls": calls} if calls else message


def _result(data: dict[str, Any]) -> Message:
    failed = data.get("success") is False
    told = object_field(data, "error").get("message") if failed else None
    content = told or object_field(data, "result").get("content", "")
    text = content if isinstance(content, str) else ""
    code = whole_number(object_field(data, "shellExecution").get("exitCode"))
    # Copilot calls a command a success that ended with an error code.
    return tool_result(data.get("toolCallId"), text, failed=failed or code != 0)


def _is_main(data: dict[str, Any]) -> bool:
    """Whether an event is of the agent itself, and of none that it started."""
    return text_field(data, "parentToolCallId") is None


def _is_summary(data: dict[str, Any]) -> bool:
    return data.get("success") is True and text_field(data, "summaryContent") is not None

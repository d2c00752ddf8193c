"""The transcripts of Kimi Code: what happened to an agent, one record after the other.

The first record is `{"type": "metadata", "protocol_version"}`. The records `context.*` make the
context; the others describe the program for its screen.

    context.append_message      a message of the user, or a note of the program
    context.append_loop_event   an answer in parts: `step.begin`, `content.part`, `tool.call`,
                                `tool.result`, `step.end`
    context.apply_compaction    a summary takes the place of the messages; since protocol 1.5 the
                                prompts of the user stay before it, in older files the messages
                                from `compactedCount` on stay behind it
    context.undo                the last `count` prompts and all after them are withdrawn
    context.clear               the conversation begins anew

The system prompt is in `profile.bind`, or `config.update` of older files. The title is beside the
file, in `state.json` two folders above, which has `title` only once a user gives one.
Kimi Code puts a line with the duration before a result, and another before a failed one, when it
sends them; they are in no record, and are left out here. A compaction that keeps more prompts than
fit cuts one of them; here it is whole.
Source: files of @moonshot-ai/kimi-code 2.1.0 (protocol 1.5) and the requests that it made, and its
functions `buildContextCompactionShape`, `computeUndoCut` and `createLoopEventFoldWithState`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple

from steno_agents.traces import Circumstances, Spent, Tokens, count_of, time_of
from steno_agents.transcript import (
    Converter,
    End,
    ForeignTranscript,
    History,
    Message,
    image,
    object_field,
    objects,
    simple,
    text_field,
    text_of,
    tool_call,
    tool_result,
)
from steno_protocol._json import is_array, is_object, whole_number

_CONTEXT: Final = "context."
_CONTINUED: Final = (
    "<system-reminder>\nContext compaction is complete — continue the work that was in progress"
    " when it began.\n</system-reminder>"
)
"""What Kimi Code says to the model after a summary, which no record has."""

_BY_USER: Final = frozenset({"skill_activation", "plugin_command"})


_COUNTED: Final = ("inputOther", "inputCacheRead", "inputCacheCreation", "output")
"""The fields of a usage in the order of `Tokens`."""


class _Entry(NamedTuple):
    """A record of the context.

    Attributes:
        place: its place in the file.
        is_message: it is one message; the parts of an answer count with their first.
        is_prompt: a person wrote it.
        is_summary: it is a compaction.
    """

    place: int
    is_message: bool = True
    is_prompt: bool = False
    is_summary: bool = False


class KimiCode(ForeignTranscript):
    """One file `wire.jsonl` in the folder of an agent, below `~/.kimi-code/sessions`."""

    program: ClassVar[str] = "Kimi Code"
    stream: ClassVar[str] = "kimi-code"
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"step.end"', b'"modelAlias"')
    title_file: ClassVar[str | None] = "../../state.json"
    beside: ClassVar[Mapping[str, str]] = {
        "profile.bind": "systemPrompt",
        "runtime.set_binding": "runtimeId",
    }

    def __init__(self) -> None:
        super().__init__()
        self._live: list[_Entry] = []
        self._prompt: int | None = None

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record changes the context."""
        match record.get("type"):
            case "context.append_message":
                return text_field(object_field(record, "message"), "role") is not None
            case "context.append_loop_event":
                return text_field(object_field(record, "event"), "type") is not None
            case _:
                return False

    @classmethod
    def is_record(cls, record: dict[str, Any]) -> bool:
        """Whether an object has the type and the time of a record."""
        kind = text_field(record, "type") or ""
        has_time = isinstance(record.get("time", record.get("created_at")), int)
        return has_time and ("." in kind or kind == "metadata")

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """What the record of an agent's profile says."""
        disclosed = object_field(record, "environmentDisclosure")
        return Circumstances(
            work_dir=text_field(disclosed, "cwd"), model=text_field(record, "modelAlias")
        )

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of a step, at its end."""
        event = object_field(record, "event")
        usage = object_field(event, "usage")
        if event.get("type") != "step.end" or not usage:
            return None
        tokens = Tokens(*(count_of(usage, name) for name in _COUNTED))
        return Spent(tokens, text_field(event, "uuid"))

    @classmethod
    def written_at(cls, record: dict[str, Any]) -> float | None:
        """The time in milliseconds."""
        return time_of(record.get("time"))

    @classmethod
    def resuming(cls, session: str) -> Sequence[str]:
        """`kimi -r`; the folder of a session has its id as its name."""
        return ("kimi", "-r", session) if session.startswith("session_") else ()

    @classmethod
    def path_segments(cls, parts: Sequence[str]) -> Sequence[str]:
        """The session, and the agent unless it is the main one: no record names them."""
        *_, session, agents, agent, _ = ["", "", "", "", *parts]
        if agents != "agents":
            return ()
        return (session,) if agent == "main" else (session, agents, agent)

    @classmethod
    def title_in(cls, content: str) -> str | None:
        """The title in the state of the session."""
        with suppress(ValueError, RecursionError):
            state = json.loads(content)
            return text_field(state, "title") if is_object(state) else None
        return None

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Learn the directory, and follow the context."""
        self._records += 1
        kind = text_field(record, "type") or ""
        if text_field(record, "systemPrompt") is not None:
            self._prompt = place
        disclosed = object_field(record, "environmentDisclosure")
        self.work_dir = self.work_dir or text_field(disclosed, "cwd")
        match kind.removeprefix(_CONTEXT) if kind.startswith(_CONTEXT) else "":
            case "append_message":
                self._message(place, object_field(record, "message"))
            case "append_loop_event":
                event = object_field(record, "event")
                is_message = event.get("type") in {"step.begin", "tool.result"}
                self._live.append(_Entry(place, is_message=is_message))
            case "apply_compaction":
                self._compacted(place, record)
            case "undo":
                self._undo(whole_number(record.get("count")))
            case "clear":
                self._replaced("roll-back")
                self._live = []
            case _:
                pass

    def _message(self, place: int, message: dict[str, Any]) -> None:
        is_prompt = message.get("role") == "user" and _is_prompt(message)
        self._live.append(_Entry(place, is_prompt=is_prompt))
        self.odd += text_field(message, "role") is None
        if is_prompt:
            self._note_words(place, text_of(message.get("content")))

    def _compacted(self, place: int, record: dict[str, Any]) -> None:
        self._replaced("compaction")
        summary = _Entry(place, is_summary=True)
        if _is_legacy(record):
            gone = whole_number(record.get("compactedCount", record.get("count")))
            self._live = [summary, *_after_messages(self._live, gone)]
            return
        typed = [each for each in self._live if each.is_prompt]
        count = min(whole_number(record.get("keptUserMessageCount")), len(typed))
        head = min(whole_number(record.get("keptHeadUserMessageCount", 0)), count)
        last = count - head
        self._live = [*typed[:head], *(typed[-last:] if last else []), summary]

    def _undo(self, count: int) -> None:
        """Withdraw prompts; the program does nothing if there are fewer."""
        for at in reversed(range(len(self._live))):
            entry = self._live[at]
            if entry.is_summary or count <= 0:
                return
            count -= entry.is_prompt
            if entry.is_prompt and count == 0:
                self._replaced("roll-back")
                del self._live[at:]
                return

    def _replaced(self, end: End) -> None:
        self._keep_past(len(self._live), self._places, end)

    def _places(self) -> list[int]:
        begin = [] if self._prompt is None else [self._prompt]
        return [*begin, *(each.place for each in self._live)]

    def histories(self) -> list[History]:
        """What compactions and withdrawals replaced, and the live history as the last."""
        return [*self._past, *([History(self._places(), "live")] if self._live else [])]

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion()


class _Conversion(Converter):
    """Collects an answer; results and notes wait until all of its calls are known.

    Of two processes on one session, the step that began last is the open one: what comes later of
    the other step, Kimi Code itself does not send.
    """

    def __init__(self) -> None:
        self._step: str | None = None
        # The steps that another one replaced, and their calls.
        self._left: set[str] = set()
        self._answer: Message | None = None
        self._results: list[Message] = []
        self._waiting: list[Message] = []
        self._tokens = 0

    def messages(
        self,
        place: int,  # noqa: ARG002  # a record says all of itself
        record: dict[str, Any],
    ) -> Iterator[Message]:
        """Convert a record of the context."""
        match record.get("type"):
            case "context.append_loop_event":
                yield from self._event(object_field(record, "event"))
            case "context.append_message":
                message = _message(object_field(record, "message"))
                if message is not None and self._answer is not None:
                    self._waiting.append(message)
                elif message is not None:
                    yield message
            case "context.apply_compaction":
                yield from self.finish()
                yield {"role": "user", "content": _summary(record)}
                if not _is_legacy(record):
                    yield {"role": "user", "content": _CONTINUED}
            case _:
                prompt = text_field(record, "systemPrompt")
                if prompt is not None:
                    yield {"role": "_system_prompt", "content": prompt}

    def _is_left(self, event: dict[str, Any]) -> bool:
        """Whether an event is of a step that another one replaced."""
        if text_field(event, "stepUuid") in self._left:
            self._left.add(str(event.get("toolCallId")))
            return True
        return event.get("type") == "tool.result" and event.get("toolCallId") in self._left

    def _event(self, event: dict[str, Any]) -> Iterator[Message]:
        if self._is_left(event):
            return
        match event.get("type"):
            case "step.begin":
                yield from self.finish()
                self._leave_open_step()
                self._step = text_field(event, "uuid")
                self._answer = {"role": "assistant", "content": []}
            case "content.part":
                self._begun()["content"].append(_part(object_field(event, "part")))
            case "tool.call":
                call = tool_call(event.get("toolCallId"), event.get("name"), event.get("args", {}))
                self._begun().setdefault("tool_calls", []).append(call)
            case "tool.result":
                result = object_field(event, "result")
                content = _output(result.get("output"))
                failed = result.get("isError") is True
                message = tool_result(event.get("toolCallId"), content, failed=failed)
                if self._answer is None:
                    yield message
                else:
                    self._results.append(message)
            case "step.end":
                usage = object_field(event, "usage")
                if text_field(event, "uuid") in {self._step, None}:
                    self._step = None
                    self._tokens = sum(whole_number(each) for each in usage.values())
                # The end of any step closes the open one.
                self._leave_open_step()
                yield from self.finish()
            case _:
                pass

    def _leave_open_step(self) -> None:
        if self._step is not None:
            self._left.add(self._step)
        self._step = None

    def _begun(self) -> Message:
        """The answer; the record of its begin may be damaged."""
        self._answer = self._answer or {"role": "assistant", "content": []}
        return self._answer

    def finish(self) -> Iterator[Message]:
        """Yield the answer that was collected, and what waited for its end."""
        answer, tokens, waiting = self._answer, self._tokens, self._waiting
        results, self._results = self._results, []
        self._answer, self._tokens, self._waiting = None, 0, []
        if answer is not None and (answer["content"] or "tool_calls" in answer):
            yield {**answer, "content": simple(answer["content"])}
            if tokens:
                yield {"role": "_usage", "token_count": tokens}
        # Kimi Code sends them in the order of the calls, whichever was ready first.
        calls = [each["id"] for each in (answer or {}).get("tool_calls", ())]
        yield from sorted(results, key=lambda each: _place_in(calls, each["tool_call_id"]))
        yield from waiting


def _place_in(calls: list[str], identity: str) -> int:
    return calls.index(identity) if identity in calls else len(calls)


def _is_prompt(message: dict[str, Any]) -> bool:
    """Whether a person wrote a message, which can then be withdrawn."""
    origin = object_field(message, "origin")
    if origin.get("inTurn") is True:
        return False
    kind = origin.get("kind", "user")
    return kind == "user" or (kind in _BY_USER and origin.get("trigger") == "user-slash")


def _is_legacy(compaction: dict[str, Any]) -> bool:
    """Whether a compaction keeps the last messages, as before protocol 1.5."""
    keeps_prompts = compaction.get("keptUserMessageCount") is not None
    return not keeps_prompts or compaction.get("legacyTail") is True


def _after_messages(entries: list[_Entry], count: int) -> list[_Entry]:
    """The entries behind the first `count` messages."""
    for at, entry in enumerate(entries):
        if entry.is_message:
            if count == 0:
                return entries[at:]
            count -= 1
    return []


def _message(message: dict[str, Any]) -> Message | None:
    content, role = message.get("content"), text_field(message, "role")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)
    calls = [
        tool_call(each.get("id"), each.get("name"), each.get("arguments", {}))
        for each in objects(message.get("toolCalls"))
    ]
    if role is None or not (parts or calls):
        return None
    converted = simple([_part(each) for each in parts])
    if role == "tool":
        failed = message.get("isError") is True
        return tool_result(message.get("toolCallId"), converted, failed=failed)
    found: Message = {"role": role, "content": converted}
    return {**found, "tool_calls": calls} if calls else found


def _summary(record: dict[str, Any]) -> str:
    summary = record.get("summary")
    own = text_field(record, "contextSummary")
    given = (
        summary
        if isinstance(summary, str)
        else text_of(object_field(record, "summary").get("content"))
    )
    return own or given


def _output(output: object) -> str | list[dict[str, Any]]:
    if is_array(output):
        return simple([_part(each) for each in objects(output)])
    return output if isinstance(output, str) else ""


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of a content; an unknown one stays as it is."""
    match part.get("type"):
        case "text":
            return {"type": "text", "text": str(part.get("text", ""))}
        case "think":
            return {"type": "think", "think": str(part.get("think", ""))}
        case "image_url":
            named = object_field(part, "imageUrl") or object_field(part, "image_url")
            return image(str(named.get("url", "")))
        case _:
            return part

"""The transcripts of pi: a head, and then entries that are a tree.

The head is `{"type": "session", "id", "cwd", "version"}`. Each entry has `id` and `parentId`, and
the last one is the leaf. A `compaction` has a summary and names the first entry that it keeps as
`firstKeptEntryId`; a `branch_summary` is what a user takes along from a branch that is left;
`session_info` names the session. Files of version 1 have no ids: each entry follows the one before.
Source: `docs/session-format.md` of @mariozechner/pi-coding-agent 0.73.1, files that it wrote, and
the requests that it made.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from steno_agents.traces import Circumstances, Spent, Tokens, count_of
from steno_agents.transcript import (
    Converter,
    Message,
    dated,
    image,
    object_field,
    objects,
    simple,
    text_field,
    text_of,
    tool_call,
    tool_result,
)
from steno_agents.tree_transcript import TreeTranscript
from steno_protocol._json import is_array, whole_number

_COMPACTED: Final = (
    "The conversation history before this point was compacted into the following summary:\n\n"
    "<summary>\n{}\n</summary>"
)
_RETURNED: Final = (
    "The following is a summary of a branch that this conversation came back from:\n\n"
    "<summary>\n{}</summary>"
)
"""The words in which pi gives summaries to the model."""

_COUNTED: Final = ("input", "cacheRead", "cacheWrite", "output")
"""The fields of a usage in the order of `Tokens`."""

_ROLES: Final = frozenset({"user", "assistant", "toolResult", "bashExecution", "custom"})
_TOLD: Final = frozenset({"message", "custom_message", "branch_summary", "compaction"})


class Pi(TreeTranscript):
    """One file `<time>_<session>.jsonl` in `~/.pi/agent/sessions/--<directory>--`."""

    program: ClassVar[str] = "pi"
    stream: ClassVar[str] = "pi"
    resume: ClassVar[tuple[str, ...]] = ("pi", "--session")
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"usage"', b'"modelId"')

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is the head, or a message of the tree."""
        kind = text_field(record, "type")
        if kind == "session":
            return text_field(record, "cwd") is not None and text_field(record, "id") is not None
        role = text_field(object_field(record, "message"), "role")
        return kind == "message" and role in _ROLES and "parentId" in record

    @classmethod
    def is_record(cls, record: dict[str, Any]) -> bool:
        """Whether an object has the type and the time of an entry."""
        has_id = "id" in record and "parentId" in record
        return cls.recognises(record) or (has_id and text_field(record, "type") is not None)

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """The directory of the head, and the model of an answer or of a change."""
        model = text_field(object_field(record, "message"), "model")
        return Circumstances(
            work_dir=text_field(record, "cwd"), model=model or text_field(record, "modelId")
        )

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of an answer."""
        message = object_field(record, "message")
        usage = object_field(message, "usage")
        if not usage:
            return None
        tokens = Tokens(*(count_of(usage, name) for name in _COUNTED))
        return Spent(tokens, model=text_field(message, "model"))

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Learn session, directory, name and the tree."""
        self._records += 1
        kind = text_field(record, "type")
        if kind == "session":
            self.session = self.session or text_field(record, "id")
            self.work_dir = self.work_dir or text_field(record, "cwd")
            return
        if kind is None:
            return
        # Entries of version 1 have no ids.
        identity = text_field(record, "id") or f"entry {place}"
        parent = text_field(record, "parentId") if "parentId" in record else self._leaf
        message = object_field(record, "message")
        role = text_field(message, "role")
        self.odd += kind == "message" and role not in _ROLES
        number = self._add(identity, place, parent, speaks=kind in _TOLD)
        if kind == "compaction":
            self._compactions[number] = text_field(record, "firstKeptEntryId")
        elif kind == "session_info":
            self._title = text_field(record, "name") or self._title
        elif role == "user":
            self._note_words(place, text_of(message.get("content")))

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion()


class _Conversion(Converter):
    def messages(
        self,
        place: int,  # noqa: ARG002  # an entry says all of itself
        record: dict[str, Any],
    ) -> Iterator[Message]:
        """Convert an entry of the conversation."""
        match record.get("type"):
            case "compaction" if (summary := text_field(record, "summary")) is not None:
                yield dated({"role": "user", "content": _COMPACTED.format(summary)}, record)
            case "branch_summary" if (summary := text_field(record, "summary")) is not None:
                yield dated({"role": "user", "content": _RETURNED.format(summary)}, record)
            case "custom_message":
                parts = _parts(record.get("content"))
                if parts:
                    yield dated({"role": "user", "content": simple(parts)}, record)
            case "message":
                yield from _messages(object_field(record, "message"), record)
            case _:
                pass


def _messages(message: dict[str, Any], record: dict[str, Any]) -> Iterator[Message]:
    parts = _parts(message.get("content"))
    match message.get("role"):
        case "user" | "custom" if parts:
            yield dated({"role": "user", "content": simple(parts)}, record)
        case "assistant":
            yield from _answer(message, parts, record)
        case "toolResult":
            failed = message.get("isError") is True
            identity = message.get("toolCallId")
            yield dated(tool_result(identity, simple(parts), failed=failed), record)
        case "bashExecution" if message.get("excludeFromContext") is not True:
            yield dated({"role": "user", "content": _command(message)}, record)
        case _:
            pass


def _answer(
    message: dict[str, Any], parts: list[dict[str, Any]], record: dict[str, Any]
) -> Iterator[Message]:
    calls = [
        tool_call(each.get("id"), each.get("name"), each.get("arguments", {}))
        for each in parts
        if each.get("type") == "toolCall"
    ]
    said = [each for each in parts if each.get("type") != "toolCall"]
    if not (calls or said):
        return
    converted: Message = {"role": "assistant", "content": simple(said)}
    yield dated({**converted, "tool_calls": calls} if calls else converted, record)
    tokens = whole_number(object_field(message, "usage").get("totalTokens"))
    if tokens:
        yield {"role": "_usage", "token_count": tokens}


def _command(message: dict[str, Any]) -> str:
    """A command that the user ran, in the words in which pi gives it to the model."""
    output = text_field(message, "output")
    shown = "(no output)" if output is None else f"```\n{output}\n```"
    code = message.get("exitCode")
    if message.get("cancelled") is True:
        shown += "\n\n(command cancelled)"
    elif isinstance(code, int) and code:
        shown += f"\n\nCommand exited with code {code}"
    return f"Ran `{message.get('command')}`\n{shown}"


def _parts(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_part(each) for each in objects(content)] if is_array(content) else []


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of a content; an unknown one stays as it is."""
    match part.get("type"):
        case "text":
            return {"type": "text", "text": str(part.get("text", ""))}
        case "thinking":
            return {"type": "think", "think": str(part.get("thinking", ""))}
        case "image":
            media = text_field(part, "mimeType") or "image/png"
            return image(f"data:{media};base64,{part.get('data', '')}")
        case _:
            return part

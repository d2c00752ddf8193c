"""The transcripts of Claude Code: one file a session, its records a tree.

Each record with a `uuid` names its parent. An edited prompt gets the same parent as the prompt that
it replaces, so the records below the older one are an abandoned branch. A compaction begins a new
tree, whose first record names the old one as `logicalParentUuid`. One answer of the model is
several records with the same `message.id`, one for each part of its content.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from steno._sansio.foreign.transcript import (
    ForeignTranscript,
    Message,
    object_field,
    simple,
    text_field,
    tool_call,
)
from steno_protocol._json import is_array, is_object, whole_number

_TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
"""The field with the title, by type of record; types of records that a user sets come first."""

_USAGE: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)


class ClaudeCode(ForeignTranscript):
    """One file `<session>.jsonl` of a project folder, or `agent-<id>.jsonl` of a subagent."""

    program: ClassVar[str] = "Claude Code"
    stream: ClassVar[str] = "claude-code"

    def __init__(self) -> None:
        super().__init__()
        self._titles: dict[str, str] = {}
        self._is_sidechain: bool | None = None
        self._prompts: dict[str, str] = {}
        self._abandoned: set[str] = set()
        self._parents: dict[str, str | None] = {}
        self._answer: Message | None = None
        self._answer_id: str | None = None
        self._answer_tokens: int | None = None

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record names a session and has a type or a place in the tree of Claude Code."""
        if record.get("type") == "summary":
            return "leafUuid" in record
        is_node = "uuid" in record and "parentUuid" in record
        return "sessionId" in record and (is_node or "type" in record)

    def scan(self, record: dict[str, Any]) -> None:
        """Learn titles, the directory, and the branches that an edited prompt abandoned."""
        kind = text_field(record, "type")
        if kind in _TITLES and (title := text_field(record, _TITLES[kind])) is not None:
            self._titles[kind] = title
            self.title = next(self._titles[each] for each in _TITLES if each in self._titles)
        self.session = self.session or text_field(record, "sessionId")
        self.work_dir = self.work_dir or text_field(record, "cwd")
        uuid = text_field(record, "uuid")
        if uuid is None:
            return
        if self._is_sidechain is None:
            # The file of a subagent has sidechain records only.
            self._is_sidechain = record.get("isSidechain") is True
        parent = text_field(record, "parentUuid") or text_field(record, "logicalParentUuid")
        self._parents[uuid] = parent
        # Two prompts without a parent may be two conversations: both are kept.
        if parent is not None and _is_prompt(record) and self._is_part(record):
            before = self._prompts.get(parent)
            if before is not None:
                self._abandoned.add(before)
            self._prompts[parent] = uuid

    def messages(self, record: dict[str, Any]) -> Iterator[Message]:
        """Convert a record of the conversation; one of an abandoned branch yields nothing."""
        kind = text_field(record, "type")
        if kind not in {"user", "assistant"} or not self._is_part(record):
            return
        if self._is_abandoned(text_field(record, "uuid")):
            return
        message = object_field(record, "message")
        if kind == "assistant":
            yield from self._answer_part(record, message)
            return
        yield from self.finish()
        if record.get("isMeta") is True:
            return
        for converted in _user_messages(message):
            if converted["role"] == "user" and not record.get("isCompactSummary"):
                self._propose_title(_text_of(converted))
            yield _dated(converted, record)

    def finish(self) -> Iterator[Message]:
        """Yield the answer whose parts were collected, and its token count."""
        answer, tokens = self._answer, self._answer_tokens
        self._answer, self._answer_id, self._answer_tokens = None, None, None
        if answer is not None:
            answer["content"] = simple(answer["content"])
            yield answer
            if tokens is not None:
                yield {"role": "_usage", "token_count": tokens}

    def _answer_part(self, record: dict[str, Any], message: dict[str, Any]) -> Iterator[Message]:
        identity = text_field(message, "id") or text_field(record, "uuid")
        if identity != self._answer_id or self._answer is None:
            yield from self.finish()
            self._answer = _dated({"role": "assistant", "content": []}, record)
            self._answer_id = identity
        for part in _parts(message.get("content")):
            if part.get("type") == "tool_use":
                call = tool_call(part.get("id"), part.get("name"), part.get("input", {}))
                self._answer.setdefault("tool_calls", []).append(call)
            else:
                self._answer["content"].append(_part(part))
        usage = object_field(message, "usage")
        if any(name in usage for name in _USAGE):
            self._answer_tokens = sum(whole_number(usage.get(name)) for name in _USAGE)

    def _is_part(self, record: dict[str, Any]) -> bool:
        """Whether a record belongs to the file's own conversation, not to a subagent's in it."""
        return (record.get("isSidechain") is True) == bool(self._is_sidechain)

    def _is_abandoned(self, uuid: str | None) -> bool:
        """Whether a record is below a replaced prompt; the answer is kept for its descendants."""
        path: list[str] = []
        while uuid is not None and uuid not in self._abandoned:
            path.append(uuid)
            # A record that was visited before is on a live branch, or on a ring.
            uuid = self._parents.pop(uuid, None)
        if uuid is None:
            return False
        self._abandoned.update(path)
        return True


def _is_prompt(record: dict[str, Any]) -> bool:
    """Whether a user wrote the record: results of tools and notes of the program are none."""
    if record.get("type") != "user" or record.get("isMeta") is True:
        return False
    content = object_field(record, "message").get("content")
    return all(part.get("type") != "tool_result" for part in _parts(content))


def _user_messages(message: dict[str, Any]) -> Iterator[Message]:
    """The results of tools in a user record, each a message, and then the rest of it."""
    rest: list[dict[str, Any]] = []
    for part in _parts(message.get("content")):
        if part.get("type") == "tool_result":
            content = [_part(each) for each in _parts(part.get("content"))]
            result = {"role": "tool", "content": simple(content)}
            yield {**result, "tool_call_id": str(part.get("tool_use_id"))}
        else:
            rest.append(_part(part))
    if rest:
        yield {"role": "user", "content": simple(rest)}


def _parts(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if is_object(part)] if is_array(content) else []


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of a content; an unknown one stays as it is."""
    match part.get("type"):
        case "text":
            return {"type": "text", "text": str(part.get("text", ""))}
        case "thinking":
            return {"type": "think", "think": str(part.get("thinking", ""))}
        case "image":
            source = object_field(part, "source")
            data = f"data:{source.get('media_type')};base64,{source.get('data')}"
            url = data if source.get("type") == "base64" else str(source.get("url"))
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            return part


def _text_of(message: Message) -> str:
    texts = [part["text"] for part in _parts(message["content"]) if part.get("type") == "text"]
    return "\n".join(texts)


def _dated(message: Message, record: dict[str, Any]) -> Message:
    timestamp = text_field(record, "timestamp")
    return message if timestamp is None else {**message, "timestamp": timestamp}

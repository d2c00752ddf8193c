"""The rollouts of Codex: one file a session, in the order of what happened.

Since 0.32 each record is `{"timestamp", "type", "payload"}`; before that, the items stood alone.
The items of the model's interface are the conversation, and `event_msg` records repeat them for
the screen, so only the token counts of those are used.
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

_TYPES: Final = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
)

_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call"}
)

_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})

_NOTES: Final = ("<environment_context>", "<user_instructions>", "# AGENTS.md")
"""The beginnings of user messages that Codex itself writes."""


class Codex(ForeignTranscript):
    """One file `rollout-<time>-<session>.jsonl`."""

    program: ClassVar[str] = "Codex"
    stream: ClassVar[str] = "codex"

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is a rollout's, in the present or the old form."""
        if text_field(record, "type") in _TYPES and is_object(record.get("payload")):
            return True
        return record.get("record_type") == "state" or {"id", "timestamp", "instructions"} <= set(
            record
        )

    def scan(self, record: dict[str, Any]) -> None:
        """Learn the session and the directory, from the first record that has them."""
        payload = _payload(record)
        if text_field(record, "type") in {"session_meta", "turn_context"}:
            self.session = self.session or text_field(payload, "id")
            self.work_dir = self.work_dir or text_field(payload, "cwd")
        elif "instructions" in record:
            self.session = self.session or text_field(record, "id")

    def messages(self, record: dict[str, Any]) -> Iterator[Message]:
        """Convert a record of the conversation, or a token count."""
        payload = _payload(record)
        match record.get("type"):
            case "session_meta":
                prompt = _instructions(payload)
                if prompt is not None:
                    yield {"role": "_system_prompt", "content": prompt}
            case "event_msg":
                yield from _usage(payload)
            case "compacted":
                summary = text_field(payload, "message")
                if summary is not None:
                    yield _dated({"role": "user", "content": summary}, record)
            case "turn_context":
                return
            case _:
                for message in self._item(payload):
                    yield _dated(message, record)

    def _item(self, item: dict[str, Any]) -> Iterator[Message]:
        kind = text_field(item, "type")
        if kind == "message":
            content = simple([_part(part) for part in _objects(item.get("content"))])
            role = text_field(item, "role") or "assistant"
            if role == "user" and isinstance(content, str) and not content.startswith(_NOTES):
                self._propose_title(content)
            yield {"role": role, "content": content}
        elif kind == "reasoning":
            thoughts = [*_objects(item.get("summary")), *_objects(item.get("content"))]
            texts = [text for each in thoughts if (text := text_field(each, "text")) is not None]
            if texts:
                part = {"type": "think", "think": "\n\n".join(texts)}
                yield {"role": "assistant", "content": [part]}
        elif kind in _CALLS:
            yield {"role": "assistant", "content": [], "tool_calls": [_call(item)]}
        elif kind in _OUTPUTS:
            yield {
                "role": "tool",
                "content": _output(item.get("output")),
                "tool_call_id": str(item.get("call_id")),
            }


def _payload(record: dict[str, Any]) -> dict[str, Any]:
    """The item of a record; a record of the old form is the item itself."""
    return object_field(record, "payload") or record


def _instructions(meta: dict[str, Any]) -> str | None:
    base = object_field(meta, "base_instructions")
    return text_field(base, "text") or text_field(meta, "instructions")


def _usage(event: dict[str, Any]) -> Iterator[Message]:
    """The size of the context after a request, if an event tells it."""
    if event.get("type") == "token_count":
        usage = object_field(object_field(event, "info"), "last_token_usage")
        tokens = whole_number(usage.get("total_tokens"))
        if tokens:
            yield {"role": "_usage", "token_count": tokens}


def _call(item: dict[str, Any]) -> dict[str, Any]:
    kind = str(item.get("type"))
    name = text_field(item, "name") or kind.removesuffix("_call")
    arguments = item.get("arguments", item.get("input", item.get("action", {})))
    return tool_call(item.get("call_id") or item.get("id"), name, arguments)


def _output(output: object) -> str | list[dict[str, Any]]:
    """The result of a tool: a text, parts, or an object with one of them as `content`."""
    if is_object(output):
        return _output(output.get("content", ""))
    if is_array(output):
        return simple([_part(part) for part in _objects(output)])
    return output if isinstance(output, str) else ""


def _objects(content: object) -> list[dict[str, Any]]:
    return [part for part in content if is_object(part)] if is_array(content) else []


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part of a content; an unknown one stays as it is."""
    kind = text_field(part, "type")
    if kind in {"input_text", "output_text", "text"}:
        return {"type": "text", "text": str(part.get("text", ""))}
    if kind == "input_image":
        return {"type": "image_url", "image_url": {"url": str(part.get("image_url"))}}
    return part


def _dated(message: Message, record: dict[str, Any]) -> Message:
    timestamp = text_field(record, "timestamp")
    return message if timestamp is None else {**message, "timestamp": timestamp}

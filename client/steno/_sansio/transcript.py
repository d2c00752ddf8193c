"""Messages as text, for a model that only reads the conversation."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from steno_protocol._json import is_array
from steno_protocol.context import Message

THOUGHTS: Final = frozenset({"think", "thinking", "redacted_thinking", "reasoning"})
"""The types of thinking parts, which are left out."""

_TITLE: Final = re.compile(
    r"(?:^|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])\s*(?=\[(?:message|calls|result of the call)\b)"
)
"""The place before what a message, a call or a result begins with."""

_encode = msgspec.json.Encoder().encode


def message_text(number: int, message: Message) -> str:
    """One message as text.

    [message 3: assistant]
    I look into the file.
    [calls read_file, id call_7, with {"path":"a.py"}]
    """
    role = message.get("role")
    title = f"[message {number}: {role}]"
    if role == "tool":
        title = f"[message {number}: tool, result of the call {message.get('tool_call_id')}]"
    body = [*_content_texts(message.get("content")), *_call_texts(message.get("tool_calls"))]
    return "\n".join([title, *body]) + "\n"


def _content_texts(content: Any) -> list[str]:
    match content:
        case None | "":
            return []
        case str():
            return [_unforged(content)]
        case _ if is_array(content):
            return [text for part in content if (text := _part_text(part)) is not None]
        case _:
            return [_json(content)]


def _part_text(part: Any) -> str | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return _unforged(text)
        case {"type": str(kind)} if kind in THOUGHTS:
            return None
        case {"type": "tool_use", "name": name, "input": arguments}:
            return _call_text(name, part.get("id"), arguments)
        case {"type": "tool_result"}:
            inner = "\n".join(_content_texts(part.get("content")))
            return f"[result of the call {part.get('tool_use_id')}]\n{inner}"
        case {"type": str(kind)}:
            return _attachment_text(kind, part)
        case _:
            return _json(part)


def _attachment_text(kind: str, part: Mapping[str, Any]) -> str:
    """A part that is no text, by its kind and size: `[image_url: image/png, 1024 bytes]`."""
    match part.get(kind):
        case {"url": str(url)} if url.startswith("data:"):
            head, _, data = url.removeprefix("data:").partition(",")
            media, _, encoding = head.partition(";")
            size = len(data) * 3 // 4 if encoding.endswith("base64") else len(data)
            return f"[{kind}: {media or 'text/plain'}, {size} bytes]"
        case {"url": str(url)}:
            return f"[{kind}: {url}]"
        case _:
            return f"[{kind}: {len(_json(part))} characters of JSON]"


def _call_texts(calls: Any) -> list[str]:
    return [_tool_call_text(call) for call in calls] if is_array(calls) else []


def _tool_call_text(call: Any) -> str:
    match call:
        case {"function": {"name": name} as function}:
            return _call_text(name, call.get("id"), function.get("arguments"))
        case _:
            return f"[calls {_json(call)}]"


def _call_text(name: Any, call_id: Any, arguments: Any) -> str:
    given = _unforged(arguments) if isinstance(arguments, str) else _json(arguments)
    return f"[calls {name}, id {call_id}, with {given}]"


def _unforged(text: str) -> str:
    """A text in which no line looks like the beginning of a message, a call or a result."""
    return _TITLE.sub(r"\g<0>> ", text)


def _json(value: Any) -> str:
    return _encode(value).decode()

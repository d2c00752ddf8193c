"""Contents of Google's model interface as messages.

Gemini CLI and Qwen Code, which began as its fork, keep `{"role", "parts"}` as that interface names
them: `text`, with `thought` if the model only thinks it; `functionCall`; `functionResponse` with an
`output` or an `error`; `inlineData` and `fileData`.
Source: https://ai.google.dev/api/caching#Content, and files of Qwen Code 0.24.4 and Gemini CLI
0.61.0.
"""

import json
from collections.abc import Iterator
from typing import Any

from steno_agents.traces import Tokens, count_of
from steno_agents.transcript import (
    Message,
    image,
    object_field,
    objects,
    simple,
    text_field,
    tool_call,
    tool_result,
)
from steno_protocol._json import is_object


def content_parts(content: object) -> list[dict[str, Any]]:
    """Return the parts of a content, which may be a text, one part, or an array."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [content] if is_object(content) else objects(content)


def prompt_text(parts: list[dict[str, Any]]) -> str:
    """Return the texts of a prompt, one a line."""
    return "\n".join(text for part in parts if (text := text_field(part, "text")) is not None)


def answer(parts: list[dict[str, Any]]) -> Message | None:
    """Return an answer of the model as a message; None if it says nothing."""
    calls = [call for part in parts if (call := object_field(part, "functionCall"))]
    said = [_part(part) for part in parts if "functionCall" not in part and _says(part)]
    if not (calls or said):
        return None
    message: Message = {"role": "assistant", "content": simple(said)}
    if calls:
        message["tool_calls"] = [
            tool_call(call.get("id") or call.get("name"), call.get("name"), call.get("args", {}))
            for call in calls
        ]
    return message


def prompts(parts: list[dict[str, Any]]) -> Iterator[Message]:
    """Yield the results of tools in a content of the user, and then the rest as a message."""
    for part in parts:
        if response := object_field(part, "functionResponse"):
            yield _result(response)
    rest = [_part(part) for part in parts if "functionResponse" not in part and _says(part)]
    if rest:
        yield {"role": "user", "content": simple(rest)}


def _result(response: dict[str, Any]) -> Message:
    given = object_field(response, "response")
    failed = "error" in given and "output" not in given
    content = given.get("error") if failed else given.get("output", given)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    more = [_part(part) for part in objects(response.get("parts"))]
    whole = [{"type": "text", "text": text}, *more] if more else text
    return tool_result(response.get("id") or response.get("name"), whole, failed=failed)


def _says(part: dict[str, Any]) -> bool:
    return part.get("text") != "" and bool(part.keys() - {"thoughtSignature", "thought"})


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert a part; an unknown one stays as it is."""
    text, data, file = part.get("text"), object_field(part, "inlineData"), part.get("fileData")
    if isinstance(text, str):
        kind = "think" if part.get("thought") is True else "text"
        return {"type": kind, kind: text}
    if (bytes_ := text_field(data, "data")) is not None:
        media = text_field(data, "mimeType") or "image/png"
        if media.startswith("image/"):
            return image(f"data:{media};base64,{bytes_}")
    if is_object(file) and (uri := text_field(file, "fileUri")) is not None:
        return image(uri)
    return {"type": "other", **part}


def tokens_of(usage: dict[str, Any], prompt: str, cached: str, total: str) -> Tokens:
    """Return the tokens of a usage of Google's interface, by the names of three of its fields.

    The prompt includes what came from a cache, and the total what the model thought.
    """
    whole, read = count_of(usage, prompt), count_of(usage, cached)
    return Tokens(
        input=max(0, whole - read),
        cache_read=read,
        output=max(0, count_of(usage, total) - whole),
    )

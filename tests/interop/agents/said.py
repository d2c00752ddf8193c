"""A conversation as words, calls and results, whatever interface it was sent over."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

Kind = Literal["user", "assistant", "call", "result"]

_REMINDER: Final = re.compile(
    r"<(system-reminder|session_context)>.*?</\1>"
    r"|\A(?:Wall time: [\d.]+ seconds\n|<system>ERROR: Tool execution failed.</system>\n)+",
    re.DOTALL,
)
"""What a program adds anew to each request, and stores in no message."""


class Said(NamedTuple):
    """One thing that a conversation has.

    Attributes:
        kind: who said it, or a call of a tool, or its result.
        text: the words; of a call its arguments.
    """

    kind: Kind
    text: str


def of_chat(messages: Iterable[Any]) -> Iterator[Said]:
    """What the messages of a context, or of Chat Completions, say."""
    for message in messages:
        match message.get("role"):
            case "user":
                yield from _texts("user", message.get("content"))
            case "assistant":
                yield from _texts("assistant", message.get("content"))
                for call in message.get("tool_calls") or []:
                    yield _call(call["function"]["arguments"])
            case "tool":
                yield _result(message.get("content"))
            case _:
                pass


def of_claude(messages: Iterable[Any]) -> Iterator[Said]:
    """What the messages of Anthropic's interface say."""
    for message in messages:
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match part["type"]:
                case "text" if message["role"] in {"user", "assistant"}:
                    yield from _texts(message["role"], part["text"])
                case "tool_use":
                    yield _call(part["input"])
                case "tool_result":
                    yield _result(part.get("content"))
                case _:
                    pass


def joined(said: Iterable[Said]) -> list[Said]:
    """A conversation with prompts that follow each other as one, and without their blanks."""
    found: list[Said] = []
    for each in said:
        if found and each.kind == found[-1].kind == "user":
            found[-1] = Said("user", f"{found[-1].text} {each.text}")
        else:
            found.append(each)
    return [Said(each.kind, " ".join(each.text.split())) for each in found]


def of_contents(contents: Iterable[Any]) -> Iterator[Said]:
    """What the contents of Google's interface say; a result that is sent twice counts once."""
    answered: set[str] = set()
    for content in contents:
        for part in content["parts"]:
            match part:
                case {"functionResponse": {"id": identity}} if identity in answered:
                    continue
                case {"functionResponse": {"id": identity}}:
                    answered.add(identity)
                case _:
                    pass
            match part:
                case {"functionCall": {"args": arguments}}:
                    yield _call(arguments)
                case {"functionResponse": {"response": response}}:
                    yield _result(response.get("output", response.get("error")))
                case {"text": text} if not part.get("thought"):
                    yield from _texts("user" if content["role"] == "user" else "assistant", text)
                case _:
                    pass


def of_responses(items: Iterable[Any]) -> Iterator[Said]:
    """What the items of OpenAI's Responses say."""
    for item in items:
        match item.get("type", "message"):
            case "message" if item["role"] in {"user", "assistant"}:
                yield from _texts(item["role"], item["content"])
            case "function_call":
                yield _call(item["arguments"])
            case "function_call_output":
                yield _result(item["output"])
            case _:
                pass


def _texts(kind: Kind, content: object) -> Iterator[Said]:
    for text in _texts_in(content):
        shown = _REMINDER.sub("", text).strip()
        if shown:
            yield Said(kind, shown)


def _texts_in(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts: Iterable[Any] = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def _call(arguments: object) -> Said:
    value = json.loads(arguments) if isinstance(arguments, str) else arguments
    return Said("call", json.dumps(value, sort_keys=True))


def _result(content: object) -> Said:
    return Said("result", _REMINDER.sub("", "\n".join(_texts_in(content))).strip())

"""The request to a model for a summary, and the record of its answer.

`Session.compact` does the rest; another program can build its own compaction on these parts.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard, cast

import msgspec

from steno_protocol import limits
from steno_protocol._json import is_array
from steno_protocol.context import CHARS_PER_TOKEN, Message
from steno_protocol.errors import BadRequest

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
    body = _content_texts(message.get("content"))
    if is_array(calls := message.get("tool_calls")):
        body += [_tool_call_text(call) for call in calls]
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


__all__ = [
    "COMPACTION_PROMPT",
    "COMPACTION_SYSTEM_PROMPT",
    "BlockingSummarize",
    "Summarize",
    "Summary",
    "prepare",
    "summary_record",
]

COMPACTION_SYSTEM_PROMPT: Final = (
    "You write the notes from which an agent goes on with its work after its conversation was cut."
    " You answer with the notes alone."
)
"""The system prompt for the model that summarises."""

COMPACTION_PROMPT: Final = """\
The messages above are the older part of an agent's conversation. They are about to be removed, and
what you write now is all that the agent will still know of them. You call no tools and continue no
conversation: you only write the notes.

If there is not room for everything, this comes first, in this order:

1. The current task: what was asked for, what was being done last, and what the next step is.
2. Errors and their solutions: messages word for word, the cause, and what helped; of attempts that
   failed only what they taught.
3. The state of the code: which files were made or changed and how they are now, not how they came
   to be so. A short piece as it stands; of a long one its signatures and the lines that matter.
4. The environment: where things lie, versions, services, commands that work.
5. Decisions: what was chosen, what was rejected, and why.
6. What is still to do.

Names, paths, numbers and identifiers stay exact. What is unknown is left out, never guessed. What
was said several times is said once.

Write these sections, each in its tags, with "none" in one that stays empty:

<current_focus>
The task, where it stands, the next step.
</current_focus>

<environment>
One line for each fact.
</environment>

<completed_tasks>
One line for each task and its result.
</completed_tasks>

<active_issues>
One line for each problem or open task, and what is known about it.
</active_issues>

<code_state>
For each file that matters: its path, what it is for, and its state or the decisive lines.
</code_state>

<important_context>
Decisions with their reasons, wishes of the user, and all else that the agent needs.
</important_context>"""
"""The prompt after the messages; it asks for tagged sections."""

_INSTRUCTION: Final = """\
The user asks for the following in these notes. It goes before the order of priority given above
wherever the two differ:

"""

INTRODUCTION: Final = (
    "<system>The older part of this conversation was removed to make room. The notes that follow"
    " were made of it and stand in its place; the messages after them are as they were.</system>"
)


class Summary(msgspec.Struct, frozen=True):
    """The answer of a model.

    Attributes:
        content: its text, or its content parts; parts of thinking are dropped.
        output_tokens: how many tokens the answer has, as the model counted them; None is an
            estimate by its text.

    Example:
        >>> steno.Summary("The user said hi.", output_tokens=5).output_tokens
        5
    """

    content: str | Sequence[Mapping[str, Any]]
    output_tokens: int | None = None


Summarize = Callable[[list[Message]], Awaitable[str | Summary]]
"""A function that takes the messages of one request, and returns the answer of a model."""

BlockingSummarize = Callable[[list[Message]], str | Summary]
"""The blocking form of `Summarize`."""


def prepare(messages: Sequence[Message], instruction: str | None = None) -> list[Message]:
    """Make the request for a summary of `messages`.

    It is one user message: a text part for each message, with its number and role, then the prompt.
    Parts of thinking are left out; calls of tools are named with their arguments, their results
    with the id of the call; an image is shown by its type and size.

    Args:
        messages: the messages to summarise, oldest first; whatever they contain, they are read.
        instruction: a wish of the caller, which goes before the prompt's own order.
    """
    parts = [_text_part(message_text(number, each)) for number, each in enumerate(messages, 1)]
    prompt = COMPACTION_PROMPT
    if instruction is not None and instruction.strip():
        prompt = f"{prompt}\n\n{_INSTRUCTION}{instruction.strip()}"
    return [{"role": "user", "content": [*parts, _text_part(prompt)]}]


def summary_record(summary: str | Summary) -> Message:
    """Return the message that replaces the summarised messages.

    Raises:
        BadRequest: the summary has another type, or no text besides thinking.
    """
    parts = summary_parts(summary)
    return {"role": "user", "content": [_text_part(INTRODUCTION), *parts]}


def summary_parts(summary: str | Summary) -> list[Message]:
    """Return the content parts of a summary, without parts of thinking.

    Raises:
        BadRequest: as `summary_record`.
    """
    # No type checker may have seen the caller's code.
    content: Any = summary.content if isinstance(summary, Summary) else summary
    if isinstance(content, str):
        parts = [_text_part(content)]
    elif _is_parts(content):
        parts = [dict(part) for part in content if part.get("type") not in THOUGHTS]
    else:
        raise BadRequest(
            f"the summary is a {type(content).__name__}: return a str, or a Summary of a text or of"
            " content parts; nothing was changed"
        )
    if not summary_text(parts).strip():
        raise BadRequest("the summary has no text: ask the model again; nothing was changed")
    return parts


def summary_text(parts: Sequence[Message]) -> str:
    """The text of a summary's parts."""
    texts = (part.get("text") for part in parts if part.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))


def recorded_summary(record: Message) -> str:
    """The text of the summary in a message of `summary_record`, or of another client."""
    content = record.get("content")
    if not _is_parts(content):
        return str(content)
    return summary_text([dict(part) for part in content if part != _text_part(INTRODUCTION)])


def summary_tokens(summary: str | Summary) -> int | None:
    """The token count of a summary as reported by its model, or None."""
    tokens = summary.output_tokens if isinstance(summary, Summary) else None
    # The reply of a model's server is not trusted.
    return tokens if type(tokens) is int and 0 <= tokens <= limits.COUNT_MAX else None


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return len(text) // CHARS_PER_TOKEN


def _is_parts(content: Any) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    is_sequence = isinstance(content, Sequence) and not isinstance(content, bytes)
    return is_sequence and all(isinstance(part, Mapping) for part in cast("list[Any]", content))


def _text_part(text: str) -> Message:
    return {"type": "text", "text": text}

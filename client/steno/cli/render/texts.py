"""The texts of a record that a person may look for; pure."""

import json
from collections.abc import Iterator
from typing import Any

from steno_protocol._json import is_array, is_object


def texts_of(record: dict[str, Any]) -> Iterator[str]:
    """The texts of one record: its content, thoughts, and tool calls as `name(arguments)`."""
    content = record.get("content")
    if isinstance(content, str):
        yield content
    for part in content if is_array(content) else []:
        if is_object(part):
            yield from _strings(part, "text", "think")
    calls = record.get("tool_calls")
    for call in calls if is_array(calls) else []:
        function = call.get("function") if is_object(call) else None
        if is_object(function):
            yield f"{function.get('name')}({_arguments(function.get('arguments'))})"


def _strings(part: dict[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        value = part.get(name)
        if isinstance(value, str):
            yield value


def _arguments(value: object) -> str:
    """Arguments as they were given, their own escapes undone: a path is found as it is typed."""
    if not isinstance(value, str):
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return value
    if not is_object(decoded):
        return value
    return ", ".join(
        f"{name}={each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)}"
        for name, each in decoded.items()
    )

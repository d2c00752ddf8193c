"""What counts of a message: its text, read at a third of the cost, and whether it is a notice."""

from typing import Any, TypeAlias

import msgspec

from steno_protocol._json import is_array, is_object
from steno_protocol.records import is_checkpoint_notice


class Part(msgspec.Struct, gc=False):
    """One part of a content that is a list."""

    type: str = ""
    text: str | None = None


Content: TypeAlias = str | list[Part] | None
"""The content of a message of the usual shape."""


def chars_of(content: Content) -> int:
    """Characters of the text in a content, as `records.text_chars` counts them."""
    if isinstance(content, str):
        return len(content)
    return sum(len(part.text or "") for part in content or () if part.type == "text")


def is_notice(record: dict[str, Any]) -> bool:
    """Whether a user's message only shows a checkpoint to the model."""
    content = record.get("content")
    if is_array(content) and len(content) == 1 and is_object(content[0]):
        content = content[0].get("text")
    return isinstance(content, str) and is_checkpoint_notice(content)

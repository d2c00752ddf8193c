"""As much of a message's content as its text, a third of the cost of decoding all of it."""

from typing import TypeAlias

import msgspec


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

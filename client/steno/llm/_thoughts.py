"""Removal of `<think>` blocks from a model's text."""

import re
from typing import Final

_TAGS: Final = "think|thinking|thought|reasoning"
_BLOCK: Final = re.compile(rf"\s*<({_TAGS})>.*?</\1>", re.DOTALL | re.IGNORECASE)
_UNENDED: Final = re.compile(rf"\s*<({_TAGS})>", re.IGNORECASE)
_END_ALONE: Final = re.compile(rf"^[ \t]*</(?:{_TAGS})>[ \t]*$", re.MULTILINE | re.IGNORECASE)


def without_thoughts(text: str) -> str:
    """Return `text` without the thoughts at its beginning; "" when there is nothing else.

    Later tags are left alone: a summary may mention them.
    """
    while block := _BLOCK.match(text):
        text = text[block.end() :]
    if _UNENDED.match(text):
        return ""
    # Templates that open the block in the prompt leave only its end in the answer.
    end = _END_ALONE.search(text)
    return text[end.end() :].strip() if end is not None else text.strip()

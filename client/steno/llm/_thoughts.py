"""Thoughts in a model's text, as `<think>` blocks, which are left out."""

import re
from typing import Final

_TAGS: Final = "think|thinking|thought|reasoning"
_BLOCK: Final = re.compile(rf"\s*<({_TAGS})>.*?</\1>", re.DOTALL | re.IGNORECASE)
_UNENDED: Final = re.compile(rf"\s*<({_TAGS})>", re.IGNORECASE)
_END_ALONE: Final = re.compile(rf"^[ \t]*</(?:{_TAGS})>[ \t]*$", re.MULTILINE | re.IGNORECASE)


def without_thoughts(text: str) -> str:
    """`text` without the thoughts that it begins with; "" when it is nothing else.

    Tags that come later are left alone: a summary may well speak of them.
    """
    while block := _BLOCK.match(text):
        text = text[block.end() :]
    if _UNENDED.match(text):
        return ""
    # Templates that open the block in the prompt leave only its end in the answer.
    end = _END_ALONE.search(text)
    return text[end.end() :].strip() if end is not None else text.strip()

"""Pygments lexers by the names in fenced blocks."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, cast

from pygments import lexers
from pygments.lexer import Lexer
from pygments.util import ClassNotFound

_NAME_CHARS_MAX: Final = 40
"""A longer word is no name of a language."""

_NAMES_KEPT_MAX: Final = 64
"""Remembered answers: an unknown name costs a search through all installed lexers."""

# Its stubs leave the options without a type.
_lexer_of: Final = cast(
    "Callable[..., Lexer]",
    lexers.get_lexer_by_name,  # pyright: ignore[reportUnknownMemberType]  # see above
)


@lru_cache(_NAMES_KEPT_MAX)
def lexer_named(language: str) -> Lexer | None:
    """The lexer of a language, which keeps every character; None for an unknown language.

    Args:
        language: the text behind the fence; only its first word counts.
    """
    name = language.strip().partition(" ")[0]
    if not 0 < len(name) <= _NAME_CHARS_MAX:
        return None
    try:
        return _lexer_of(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None

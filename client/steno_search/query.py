"""What a person typed, as an expression of FTS5; pure.

    no space            records with both words
    "no space left"     with the words in this order
    conn*               with a word that begins so

Upper and lower case and accents make no difference. Everything else that a person types separates
words: nothing is an operator, so that no text is an error of syntax.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from steno_protocol.errors import BadRequest
from steno_search.limits import PREFIX_CHARS_MIN, QUERY_CHARS_MAX, TERMS_MAX
from steno_search.words import separated

Order = Literal["relevance", "time"]
"""The order of results: the best ones first, or the newest."""

_TERM: Final = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Filters:
    """What limits a search besides its words.

    Attributes:
        role: only records of this role.
        session: only sessions whose id begins so.
        since: only records written at this Unix time or later.
        until: only records written before this Unix time.
    """

    role: str | None = None
    session: str = ""
    since: float | None = None
    until: float | None = None


def terms(typed: str) -> list[str]:
    """The words, phrases and prefixes of a query, each in quotes as FTS5 takes them.

    Raises:
        BadRequest: it contains no word, is too long, or has too short a prefix.
    """
    if len(typed) > QUERY_CHARS_MAX:
        raise BadRequest(f"a search takes at most {QUERY_CHARS_MAX} characters: use fewer words")
    asked = [term for found in _TERM.finditer(typed) if (term := _term(found))]
    if not asked:
        raise BadRequest(
            f'there is no word in {typed[:80]!r}: a search takes words, "phrases" and prefixes*'
        )
    if len(asked) > TERMS_MAX:
        raise BadRequest(f"a search takes at most {TERMS_MAX} words: use fewer words")
    return asked


def _term(found: re.Match[str]) -> str:
    """One word or phrase in quotes; empty if nothing in it is a word."""
    phrase, star, word = found.groups()
    text, is_prefix = (word.rstrip("*"), word.endswith("*")) if word else (phrase, bool(star))
    if not any(map(str.isalnum, text)):
        return ""
    ending = text.rpartition(" ")[2]
    if is_prefix and len(ending) < PREFIX_CHARS_MIN and ending.isascii():
        raise BadRequest(f"{text[-40:]}* is too short: a prefix has three letters or more")
    quoted = separated(text).replace('"', '""')
    return f'"{quoted}"*' if is_prefix and text[-1].isalnum() else f'"{quoted}"'

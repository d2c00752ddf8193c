r"""Secrets that are known by the name before them, whatever they look like; pure.

    DB_PASS=hunter2    "password": "…"    --token X    Authorization: any words    Cookie: a=b; c=d

The guide states the rule (redaction.md).
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from steno_redact.normal import lowered

ASSIGNED: Final = "assigned-secret"
AUTHORIZATION: Final = "authorization"
COOKIE: Final = "cookie"

_KEYS: Final = (
    "api", "access", "private", "secret", "account", "auth", "encryption", "signing", "admin",
    "master", "service", "app", "application", "client", "deploy", "storage", "shared", "preshared",
    "webhook", "hmac",
)  # fmt: skip
"""Words before `key` that make it a secret."""

_HARMLESS: Final = (
    "next", "page", "continuation", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop",
    "start", "end", "special", "per", "first", "last", "max", "min", "cancel", "cancellation",
    "prompt", "completion", "reasoning", "image", "audio", "syntax", "current", "previous", "count",
)  # fmt: skip
"""Words before `token` that make it none."""

STEMS: Final = ("pass", "pwd", "secret", "token", "key", "auth", "cookie", "credential")
"""Every name contains one of them."""

# What may stand between a name and its value: the end of a quote or bracket, and a sign.
_IS: Final = r"[\"'`]?[\])]?[ \t]{0,8}(?P<sign>:=|=>|[:=])[ \t]{0,8}"
# A variable, a place for one, a call or a type is no value; seen at once, whatever follows.
_NO_VALUE: Final = r"(?!\$[({]|\{|<|%[A-Za-z_(])"
_VALUE: Final = (
    rf"(?:[rbfu]{{0,2}}(?P<quote>\"\"\"|[\"'`]){_NO_VALUE}"
    r"(?P<quoted>(?:(?!(?P=quote))[^\r\n]|(?P=quote)(?=\w)){1,8192})"
    rf"|{_NO_VALUE}(?![A-Za-z_&*][\w.:]{{0,200}}[(\[])"
    r"(?P<bare>[^\s\"'`;&<>|,)}\]=(\[]"
    r"(?:[^\s\"'`;&<>|,)}\]]|[,)}\]](?![\s\"'`,)}\];]|$)){0,8191}))"
)
# After a word that is an option of a command, or in .netrc, a space is enough.
_SPACED: Final = r"(?P<sign>[ \t]{1,8})"

_TAILS: Final = {
    "pass": r"pass(?:word|wd|phrase|code)?[0-9]{0,2}",
    "pwd": r"pwd[0-9]{0,2}",
    "secret": r"secret[0-9]{0,2}",
    "token": r"token[0-9]{0,2}",
    "key": r"key(?:-data)?[0-9]{0,2}",
    "auth": r"auth(?:orization)?",
    "cookie": r"cookie",
    "credential": r"credentials?",
}
_NAMES: Final = {stem: re.compile(tail) for stem, tail in _TAILS.items()}
_ASSIGNMENTS: Final = {
    stem: re.compile(rf"(?P<name>{tail}){_IS}{_VALUE}", re.IGNORECASE)
    for stem, tail in _TAILS.items()
}
_OPTIONS: Final = {
    stem: re.compile(rf"(?P<name>{tail}){_SPACED}{_VALUE}", re.IGNORECASE)
    for stem, tail in _TAILS.items()
}
_HEADER: Final = re.compile(
    rf"(?P<name>authorization|cookie){_IS}(?P<quote>[\"'`]?)(?P<rest>[^\r\n\"'`]{{1,8192}})",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(
    r"(?:bearer|basic|digest|token|ssws|apikey|negotiate|bot)[ \t]{1,8}", re.IGNORECASE
)
_BEFORE_CHARS: Final = 48
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+$|[A-Z0-9]+$")
_DASHES: Final = re.compile(r"(?<!\S)--[A-Za-z0-9-]{0,40}$")
_LOGIN: Final = re.compile(r"\blogin[ \t]{1,8}\S{1,40}\s{1,8}$")
_DOTTED: Final = re.compile(r"[A-Za-z_&*][\w.:]*")
_HAS_SIGN: Final = re.compile("[0-9;=]")
_AUTH_CHARS_MIN: Final = 16
"""A shorter value of `auth` is the name of a method."""

_WORDS: Final = frozenset(
    # They say that there is none, or of which type it is ...
    [
        "none",
        "null",
        "nil",
        "undefined",
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "str",
        "string",
        "bytes",
        "int",
        "integer",
        "number",
        "bool",
        "boolean",
        "float",
        "any",
        "object",
        "char",
        "text",
        "varchar",
        "secretstr",
        "optional",
        "required",
        "type",
        "default",
        "empty",
        "self",
        "this",
        "a",
        "an",
        "the",
        "and",
        "or",
        "of",
        "for",
        "to",
        "in",
        "on",
        "at",
        "as",
        "by",
        "from",
        "with",
        "is",
        "are",
        "was",
        "be",
        "if",
        "when",
        "must",
        "should",
        "may",
        "can",
        "not",
        "see",
        "used",
        "your",
        "my",
        "its",
        "it",
        "this",
        "that",
        "these",
        "each",
        "every",
        "any",
        "one",
        "only",
        "which",
        "what",
        "how",
        "who",
    ]
)
"""Values that are none."""

_REFERENCE: Final = re.compile(
    # A variable, a placeholder, a part of a template, or a mask of another program.
    r"\$[A-Z_][A-Z0-9_]*|\$[({].*|\{\{?.*|<.*|%[A-Za-z_(].*|\*{3,}|x{4,}|\.{3}|…"
    # A dotted name whose first word is one that programs use.
    r"|&?(?:self|this|os|process|env|config|settings|args|options|opts|request|req|ctx|context|params"
    r"|secrets|var|vars|local|kwargs|state|session|client|cls|props|data|user|module)(?:\??\.\w+)+[;,]?"
)
_NAME_LIKE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\??[;,.]?")
_NUMBER: Final = re.compile(r"[0-9][0-9_.,]*[kKmM]?")


FORMS: Final = (
    _KEYS, _HARMLESS, sorted(_TAILS.items()), _IS, _VALUE, sorted(_WORDS), _REFERENCE.pattern,
)  # fmt: skip
"""The rule; another one masks other texts."""


def spans(text: str, low: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and name of each secret, in no order; `low` is the text in lower case."""
    for stem in STEMS:
        at = low.find(stem)
        while at >= 0:
            found = _at(text, low, stem, at)
            if found is not None:
                yield found
            # Names inside of what is masked are masked; and each text is looked at once.
            at = low.find(stem, at + len(stem) if found is None else max(at + len(stem), found[1]))


def _at(text: str, low: str, stem: str, at: int) -> tuple[int, int, str] | None:
    """The secret after a name that contains the stem at a place."""
    if stem in {"auth", "cookie"} and (header := _HEADER.match(text, at)) is not None:
        return _in_header(text, header)
    name = _NAMES[stem].match(low, at)
    before = text[max(0, at - _BEFORE_CHARS) : at]
    # First, because a value may be long, and its text is full of other names.
    if name is None or not is_secret_name(before, text[at : name.end()]):
        return None
    match = _ASSIGNMENTS[stem].match(text, at)
    if match is None:
        match = _OPTIONS[stem].match(text, at) if _is_option(before) else None
        if match is None:
            return None
    elif match["name"].lower() == "pass" and _is_a_count(before, match):
        return None
    if not _is_value(match, text[match.end() : match.end() + 1]):
        return None
    group = "quoted" if match["bare"] is None else "bare"
    return *match.span(group), ASSIGNED


def _is_a_count(before: str, match: re.Match[str]) -> bool:
    """Whether `pass: ` is the line of a test run, not a name."""
    is_alone = not before[-1:].isalnum() and before[-1:] not in {"_", "-", "."}
    return is_alone and match["sign"].strip() == ":" and match["quoted"] is None


def _in_header(text: str, header: re.Match[str]) -> tuple[int, int, str] | None:
    is_cookie = header["name"].lower() == "cookie"
    start, end = header.span("rest")
    scheme = None if is_cookie else _SCHEME.match(text, start, end)
    if scheme is not None:
        start = scheme.end()
    value = text[start:end].rstrip()
    # In code, a name and its type, a call, or a place.
    if not value or _REFERENCE.fullmatch(value) or value.split("(")[0].lower() in _WORDS:
        return None
    if not header["quote"] and "=" in header["sign"] and _HAS_SIGN.search(value) is None:
        return None
    return start, start + len(value), COOKIE if is_cookie else AUTHORIZATION


def _is_option(before: str) -> bool:
    """Whether the name after this text is the option of a command, or of `.netrc`."""
    return _DASHES.search(before) is not None or _LOGIN.search(before) is not None


@lru_cache(maxsize=4096)
def key_name(key: str) -> str | None:
    """The name of the mask for the value under a key of a JSON object; None if it is no secret."""
    low = lowered(key)
    for stem in STEMS:
        at = low.rfind(stem)
        if at < 0 or _NAMES[stem].fullmatch(low, at) is None:
            continue
        word = low[at:]
        if word in {"cookie", "authorization"}:
            return COOKIE if stem == "cookie" else AUTHORIZATION
        if is_secret_name(key[:at], key[at:]):
            return ASSIGNED
    return None


def is_secret_name(before: str, name: str) -> bool:
    """Whether the value of a name is a secret.

    Args:
        before: the text before the last word of the name.
        name: the last word, as it is written.
    """
    low = name.lower().rstrip("0123456789")
    last = before[-1:]
    if low in {"pass", "auth"}:
        # No part of another word: `bypass` and `compass` are none.
        return not last.isalpha() or (name[0].isupper() and last.islower())
    if low not in {"token", "key", "key-data"}:
        return True
    word = _WORD.search(before[:-1] if last and last in "_-." else before)
    qualifier = "" if word is None else word[0].lower()
    if low == "token":
        return qualifier not in _HARMLESS
    return qualifier.endswith(_KEYS)


def is_value(name: str, value: str) -> bool:
    """Whether a value may be a secret: no type, no reference, and no number but as a password."""
    stripped = value.strip()
    low = name.lower()
    if not stripped or stripped.lower().rstrip(";,.") in _WORDS or _REFERENCE.fullmatch(stripped):
        return False
    if low == "auth":
        return len(stripped) >= _AUTH_CHARS_MIN and " " not in stripped
    is_password = low.startswith(("passw", "passp", "passc", "pwd", "secret"))
    return is_password or _NUMBER.fullmatch(stripped) is None


def _is_value(match: re.Match[str], after: str) -> bool:
    """Whether what stands behind a name in a text may be a secret."""
    bare = match["bare"]
    if not is_value(match["name"], bare or match["quoted"]):
        return False
    if bare is None:
        return True
    if after in {"(", "["} and _DOTTED.fullmatch(bare) is not None:
        return False
    # A variable or a type that has such a name itself.
    return _NAME_LIKE.fullmatch(bare) is None or key_name(bare.rstrip("?;,.")) is None

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
_SIGN: Final = re.compile(_IS)
# A variable, a place for one, a call or a type is no value; seen at once, whatever follows.
_NO_VALUE: Final = r"(?!\$[({]|\{|<|%[A-Za-z_(])"
_QUOTED: Final = r"(?:(?!(?P=quote))[^\r\n]|(?P=quote)(?=\w)){1,8192}"
# A value of `auth` has no spaces: with them, each name of a line would look at all of the line.
_QUOTED_WORD: Final = _QUOTED.replace(r"\r\n", r"\s")
_VALUE: Final = (
    rf"(?:[rbfu]{{0,2}}(?P<quote>\"\"\"|[\"'`]){_NO_VALUE}(?P<quoted>{_QUOTED})"
    rf"|{_NO_VALUE}(?![A-Za-z_&*][\w.:]{{0,200}}[(\[])"
    r"(?P<bare>[^\s\"'`;&<>|,)}\]=(\[]"
    r"(?:[^\s\"'`;&<>|,)}\]]|[,)}\]](?![\s\"'`,)}\];]|$)){0,8191}))"
)
# After a word that is an option of a command, or in .netrc, a space is enough.
_BLANKS: Final = frozenset(" \t")
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
_VALUES: Final = {**dict.fromkeys(_TAILS, _VALUE), "auth": _VALUE.replace(_QUOTED, _QUOTED_WORD)}
_ASSIGNMENTS: Final = {
    stem: re.compile(rf"(?P<name>{tail}){_IS}{_VALUES[stem]}", re.IGNORECASE)
    for stem, tail in _TAILS.items()
}
_OPTIONS: Final = {
    stem: re.compile(rf"(?P<name>{tail}){_SPACED}{_VALUES[stem]}", re.IGNORECASE)
    for stem, tail in _TAILS.items()
}
# The line of a test run.
_COUNT: Final = re.compile(
    r"pass[\"'`]?[\])]?[ \t]{0,8}:[ \t]{0,8}(?![=\s\"'`]|[rbfu]{1,2}[\"'`])", re.IGNORECASE
)
_HEADER: Final = re.compile(
    # The + keeps all spaces before a place: with fewer of them, the rest would begin with one.
    rf"(?P<name>authorization|cookie){_IS}+(?P<quote>[\"'`]?+){_NO_VALUE}(?P<rest>[^\r\n\"'`]{{1,8192}})",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(
    r"(?:bearer|basic|digest|token|ssws|apikey|negotiate|bot)[ \t]{1,8}", re.IGNORECASE
)
_BEFORE_CHARS: Final = 48
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+$|[A-Z0-9]+$")
_DASHES: Final = re.compile(r"(?<!\S)--[A-Za-z0-9-]{0,40}$")
_LOGIN: Final = re.compile(r"\blogin[ \t]{1,8}\S{1,40}\s{1,8}$")
_HAS_SIGN: Final = re.compile("[0-9;=]")
_AUTH_CHARS_MIN: Final = 16
"""A shorter value of `auth` is the name of a method."""

_LITERALS: Final = frozenset((
    "none", "null", "nil", "undefined", "true", "false", "yes", "no", "on", "off", "str", "string",
    "bytes", "int", "integer", "number", "bool", "boolean", "float", "any", "object", "char",
    "text", "varchar", "secretstr", "optional", "required", "type", "default", "empty", "self",
    "this",
))  # fmt: skip
"""Words of code that say that there is no value, or of which type it is."""

_WORDS: Final = _LITERALS | frozenset((
    "a", "an", "the", "and", "or", "of", "for", "to", "in", "at", "as", "by", "from", "with", "is",
    "are", "was", "be", "if", "when", "must", "should", "may", "can", "not", "see", "used", "your",
    "my", "its", "it", "that", "these", "each", "every", "one", "only", "which", "what", "how",
    "who",
))  # fmt: skip
"""With these, words of sentences."""

_REFERENCE: Final = re.compile(
    # A variable, a placeholder, a part of a template, or a mask of another program.
    r"\$[A-Z_][A-Z0-9_]*|\$[({].*|\{\{?.*|<.*|%[A-Za-z_(].*|\*{3,}|x{4,}|\.{3}|…"
    # A dotted name whose first word is one that programs use.
    r"|&?(?:self|this|os|process|env|config|settings|args|options|opts|request|req|ctx|context|params"
    r"|secrets|var|vars|local|kwargs|state|session|client|cls|props|data|user|module)(?:\??\.\w+)+[;,]?"
)
_NAME_LIKE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\??[;,.]?")
_PASSWORD: Final = re.compile("pass[wpc]|pwd|secret", re.IGNORECASE)
"""The names whose values may be numbers, wherever they stand."""

# At the end of a word.
_PASSWORD_WORD: Final = re.compile(r"(?:pass[a-z]{0,6}|pwd|secret)[0-9]{0,2}$", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9][0-9_.,]*[kKmM]?")


FORMS: Final = (
    _KEYS, _HARMLESS, sorted(_TAILS.items()), _IS, sorted(_VALUES.items()), sorted(_LITERALS),
    sorted(_WORDS), _REFERENCE.pattern, _PASSWORD_WORD.pattern,
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
    if name is None:
        return None
    before, end = text[max(0, at - _BEFORE_CHARS) : at], name.end()
    # First, because nearly every name in a text has no value.
    if _SIGN.match(text, end) is None and not (
        text[end : end + 1] in _BLANKS and _is_option(before)
    ):
        return None
    # Then this, because a value may be long, and its text is full of other names.
    if not is_secret_name(before, text[at:end]):
        return None
    if stem == "pass" and _is_a_count(before, text, at):
        return None
    match = _ASSIGNMENTS[stem].match(text, at)
    if match is None:
        match = _OPTIONS[stem].match(text, at) if _is_option(before) else None
    if match is None or not _is_value(match):
        return None
    group = "quoted" if match["bare"] is None else "bare"
    return *match.span(group), ASSIGNED


def _is_a_count(before: str, text: str, at: int) -> bool:
    """Whether `pass: ` is the line of a test run, not a name."""
    is_alone = not before[-1:].isalnum() and before[-1:] not in {"_", "-", "."}
    return is_alone and _COUNT.match(text, at) is not None


def _in_header(text: str, header: re.Match[str]) -> tuple[int, int, str] | None:
    is_cookie = header["name"].lower() == "cookie"
    start, end = header.span("rest")
    scheme = None if is_cookie else _SCHEME.match(text, start, end)
    if scheme is not None:
        start = scheme.end()
    value = text[start:end].rstrip()
    # In code, a name and its type, a call, or a place.
    if not value or _REFERENCE.fullmatch(value) or value.partition("(")[0].lower() in _LITERALS:
        return None
    if not header["quote"] and "=" in header["sign"] and _HAS_SIGN.search(value) is None:
        return None
    return start, start + len(value), COOKIE if is_cookie else AUTHORIZATION


def _is_option(before: str) -> bool:
    """Whether the name after this text is the option of a command, or of `.netrc`."""
    is_named = "--" in before and _DASHES.search(before) is not None
    return is_named or ("login" in before and _LOGIN.search(before) is not None)


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
    """Whether a text may be a secret under a name: not empty, no reference and no method."""
    stripped = value.strip()
    if not stripped or _REFERENCE.fullmatch(stripped):
        return False
    return name.lower() != "auth" or (len(stripped) >= _AUTH_CHARS_MIN and " " not in stripped)


def _is_name(word: str) -> bool:
    """Whether a word is a variable or a type that has the name of a secret itself.

    `my_secret` and `dbPassword` are; `supersecret`, `SUPERSECRET` and `hunter2pass` are passwords.
    """
    if key_name(word) is None:
        return False
    last = _PASSWORD_WORD.search(word)
    if last is None or not last.start():
        return True
    is_part = last[0][0].isupper() and not last[0].isupper()
    return is_part or word[last.start() - 1] == "_"


def _is_value(match: re.Match[str]) -> bool:
    """Whether what stands behind a name in a text may be a secret."""
    name, bare = match["name"], match["bare"]
    if not is_value(name, bare or match["quoted"]):
        return False
    if bare is None or name.isupper():
        return True
    if _NAME_LIKE.fullmatch(bare) is not None and _is_name(bare.rstrip("?;,.")):
        return False
    word, sign = bare.lower().rstrip(";,."), match["sign"]
    if sign.strip() and match.string[match.start("bare") - 1] == "=":
        return word not in _LITERALS
    # Else it may be code or a sentence: `token = a` and `token: 12`.
    return word not in _WORDS and (
        not sign.strip() or _PASSWORD.match(name) is not None or _NUMBER.fullmatch(bare) is None
    )

"""Finds and masks what the patterns match, in texts and in JSON values; pure.

    Redactor().text("key sk-proj-0123456789abcdefghij")    "key [redacted: openai-key]"

A mask stands in decoded texts, so that JSON stays JSON. Masking twice changes nothing more.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeGuard

from steno._redaction.limits import (
    CLEAN_CHARS_MAX,
    CLEAN_TEXTS_MAX,
    JSON_CHARS_MAX,
    JSON_LEVELS_MAX,
    PASSES_MAX,
    PREVIEW_CHARS_MAX,
)
from steno._redaction.patterns import BUILT_IN, BuiltIn, Pattern
from steno_protocol._json import is_object

_OPENING: Final = "[redacted: "
_SECRET_CHARS_MIN: Final = 8
"""A shorter value under the key of a secret is a placeholder or a flag."""

_TEXT_KEYS: Final = ("text", "think")
"""Keys of the texts of a message's parts, which models send in pieces."""


class Match(NamedTuple):
    """A part of a text that is a secret."""

    start: int
    end: int
    name: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A mask and what stands around it.

    Attributes:
        name: the name of the pattern.
        preview: the mask and a little of the text on both sides, on one line.
    """

    name: str
    preview: str


Report = Callable[[Finding], None]
"""Receives each finding as its text is masked."""


def _silent(_: Finding) -> None:
    """Report nothing."""


def mask_of(name: str) -> str:
    """The text that stands for a secret."""
    return f"{_OPENING}{name}]"


class Redactor:
    """Masks secrets.

    Args:
        patterns: what it looks for, the more exact ones first; none of them masks nothing.
    """

    def __init__(self, patterns: Sequence[Pattern] = BUILT_IN) -> None:
        self._patterns = tuple(patterns)
        names = "|".join(re.escape(pattern.name) for pattern in self._patterns)
        # Most short texts are keys, roles and names, which come back with every record.
        self._clean: set[str] = set()
        # Only the names of patterns: no secret can hide in the brackets of a mask.
        self._masks = re.compile(rf"\[redacted: ({names})\]") if names else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the patterns."""
        return tuple(pattern.name for pattern in self._patterns)

    def is_built_in(self, name: str) -> bool:
        """Whether a pattern of steno has this name and is on."""
        return any(each.name == name and isinstance(each, BuiltIn) for each in self._patterns)

    def has_mask(self, text: str) -> bool:
        """Whether a text contains a mask."""
        return self._masks is not None and self._masks.search(text) is not None

    def text(self, text: str) -> str:
        """A text with its secrets masked."""
        return self._text(text, _silent)

    def value(self, value: Any) -> Any:
        """A JSON value of the same shape with the secrets in its texts and keys masked.

        Texts of neighbouring parts of a message are searched together as well: a model sends them
        in pieces, and a secret may lie across two. Numbers are never masked.
        """
        return self._value(value, _silent)

    def fields(self, value: Mapping[str, Any], exact: frozenset[str]) -> dict[str, Any]:
        """The fields of an object, masked except those that are addresses."""
        return {
            name: each if name in exact else self._value(each, _silent)
            for name, each in value.items()
        }

    def findings(self, value: Any) -> list[Finding]:
        """What `value` would mask, in order."""
        found: list[Finding] = []
        self._value(value, found.append)
        return found

    def located(self, text: str) -> list[tuple[int, Finding]]:
        """What the patterns find in a text that is no JSON: where it begins, and the finding."""
        found = self._find(text)
        masked = "".join(_replaced([text], found))
        located: list[tuple[int, Finding]] = []
        longer = 0
        for match in found:
            mask, start = mask_of(match.name), match.start + longer
            shown = _preview(masked, Match(start, start + len(mask), match.name))
            located.append((match.start, Finding(match.name, self.text(shown))))
            longer += len(mask) - (match.end - match.start)
        return located

    def _value(self, value: Any, report: Report, nested: int = 0) -> Any:
        if not self._patterns:
            return value
        if isinstance(value, str):
            return self._json_text(value, report, nested)
        if is_object(value):
            return self._object(value, report, nested)
        if _is_sequence(value):
            return self._array([*value], report, nested)
        return value

    def _object(self, value: dict[str, Any], report: Report, nested: int) -> dict[str, Any]:
        masked: dict[str, Any] = {}
        for key, each in value.items():
            shown = self._text(key, report)
            while shown in masked:
                shown += "'"
            masked[shown] = self._under(key, each, report) or self._value(each, report, nested)
        return masked

    def _under(self, key: str, value: object, report: Report) -> str | None:
        """The mask of a value whose key says that it is a secret; None if it is none."""
        if not isinstance(value, str) or len(value) < _SECRET_CHARS_MIN or self.has_mask(value):
            return None
        if any(character.isspace() for character in value) or self._text(value, _silent) != value:
            return None
        for pattern in self._patterns:
            if pattern.has_key(key):
                mask = mask_of(pattern.name)
                report(Finding(pattern.name, f"{key[:PREVIEW_CHARS_MAX]}: {mask}"))
                return mask
        return None

    def _array(self, parts: list[Any], report: Report, nested: int) -> list[Any]:
        """The elements; if they are the parts of a message, a secret may lie across several."""
        for _ in range(PASSES_MAX):
            places = _texts_in(parts)
            # Together first: the beginning of a secret in one part may be masked on its own.
            joined = self._joined(parts, places, report) if len(places) > 1 else parts
            masked = [self._value(each, report, nested) for each in joined]
            if len(places) < 2 or masked == parts:
                return masked
            parts = masked
        return parts

    def _joined(self, parts: list[Any], places: list[tuple[int, str]], report: Report) -> list[Any]:
        texts = [str(parts[number][key]) for number, key in places]
        masked = list(parts)
        for (number, key), text in zip(places, self._settled(texts, report), strict=True):
            masked[number] = {**masked[number], key: text}
        return masked

    def _json_text(self, text: str, report: Report, nested: int) -> str:
        """A text; one that is JSON itself, as the arguments of a call are, stays JSON."""
        for _ in range(PASSES_MAX):
            masked = self._text(self._decoded(text, report, nested), report)
            if masked == text:
                break
            text = masked
        return text

    def _decoded(self, text: str, report: Report, nested: int) -> str:
        if text[:1] not in {"{", "["} or len(text) > JSON_CHARS_MAX or nested >= JSON_LEVELS_MAX:
            return text
        try:
            value = json.loads(text)
            masked = self._value(value, report, nested + 1)
            return text if masked == value else json.dumps(masked, ensure_ascii=False)
        except (ValueError, RecursionError):
            return text

    def _text(self, text: str, report: Report) -> str:
        if text in self._clean:
            return text
        masked = self._settled([text], report)[0]
        if masked == text and len(text) <= CLEAN_CHARS_MAX:
            if len(self._clean) >= CLEAN_TEXTS_MAX:
                self._clean.clear()
            self._clean.add(text)
        return masked

    def _settled(self, texts: list[str], report: Report) -> list[str]:
        """Texts that follow each other, masked until no pattern matches any longer."""
        masked = texts
        for _ in range(PASSES_MAX):
            found = self._find("".join(masked))
            if not found:
                if masked is not texts:
                    self._report(texts, masked, report)
                return masked
            masked = list(_replaced(masked, found))
        if rest := self._find("".join(masked)):
            # The patterns never come to rest.
            masked = [mask_of(rest[0].name)] * len(masked)
        self._report(texts, masked, report)
        return masked

    def _find(self, text: str) -> list[Match]:
        """The secrets in a text, in order; they do not overlap."""
        found = [
            Match(start, end, pattern.name)
            for pattern in self._patterns
            for start, end in pattern.spans(text)
            if 0 <= start < end
        ]
        return _merged(found, self._masks_in(text)) if found else found

    def _masks_in(self, text: str) -> list[Match]:
        if self._masks is None or _OPENING not in text:
            return []
        return [Match(*each.span(), each[1]) for each in self._masks.finditer(text)]

    def _report(self, before: Sequence[str], after: Sequence[str], report: Report) -> None:
        """Report the masks that were not there before."""
        old = Counter(match.name for text in before for match in self._masks_in(text))
        for text in after:
            for match in self._masks_in(text):
                if old[match.name] > 0:
                    old[match.name] -= 1
                else:
                    report(Finding(match.name, _preview(text, match)))


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is written as an array: the replies of the daemon have tuples, too."""
    return isinstance(value, list | tuple)


def _texts_in(parts: Sequence[Any]) -> list[tuple[int, str]]:
    """Number and key of each text of a message's parts."""
    return [
        (number, key)
        for number, part in enumerate(parts)
        if is_object(part)
        for key in _TEXT_KEYS
        if isinstance(part.get(key), str)
    ]


def _merged(found: Sequence[Match], masks: Sequence[Match]) -> list[Match]:
    """Matches in order; those that overlap each other or a mask are one, named by the first.

    A match inside of masks is done, and left out; one that goes on beyond a mask takes it in. The
    sort keeps the order of the patterns where two begin at the same character.
    """
    merged: list[Match] = []
    masked_chars: list[int] = []
    both = [(match, 0) for match in found]
    both += [(mask, mask.end - mask.start) for mask in masks]
    for match, chars in sorted(both, key=lambda each: each[0].start):
        if merged and match.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Match(last.start, max(last.end, match.end), last.name)
            masked_chars[-1] += chars
        else:
            merged.append(match)
            masked_chars.append(chars)
    return [
        match
        for match, chars in zip(merged, masked_chars, strict=True)
        if chars < match.end - match.start
    ]


def _replaced(texts: Sequence[str], found: Sequence[Match]) -> Iterator[str]:
    """Texts with a mask in place of the part of each match that lies in them."""
    ends = list(accumulate(len(text) for text in texts))
    for text, end in zip(texts, ends, strict=True):
        begin = end - len(text)
        pieces: list[str] = []
        at = begin
        for match in found:
            if match.start < end and begin < match.end:
                pieces += text[at - begin : max(at, match.start) - begin], mask_of(match.name)
                at = min(end, match.end)
        yield "".join([*pieces, text[at - begin :]])


def _preview(text: str, match: Match) -> str:
    first, last = max(0, match.start - PREVIEW_CHARS_MAX), match.end + PREVIEW_CHARS_MAX
    shown = " ".join(text[first:last].split())
    return f"{'…' if first else ''}{shown}{'…' if last < len(text) else ''}"

"""Finds and masks what the patterns match, in texts and in JSON values; pure.

    Redactor().text("key sk-proj-0123456789abcdefghij")    "key [redacted: openai-key]"

A mask stands in decoded texts, so that JSON stays JSON. Masking twice changes nothing more.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard
from zlib import crc32

from steno_protocol._json import is_object
from steno_redact.limits import (
    CLEAN_CHARS_MAX,
    CLEAN_TEXTS_MAX,
    DEPTH_MAX,
    JSON_CHARS_MAX,
    JSON_LEVELS_MAX,
    PASSES_MAX,
    PREVIEW_CHARS_MAX,
    RECORD_CHARS_MAX,
    SEARCH_CHARS_MIN,
    STEP_CHARS_MIN,
)
from steno_redact.named import STEMS, is_value
from steno_redact.normal import lowered
from steno_redact.patterns import DEFAULT, FORMS, Match, Patterns, Steps, unbounded

_OPENING: Final = "[redacted: "
TOO_LONG: Final = "too long to search"
"""The name of the mask of a record that takes too much work."""

_APART: Final = "\n\0\n"
"""Stands between texts that are searched together, and in no secret."""

_TEXT_KEYS: Final = ("text", "think")
"""Keys of the texts of a message's parts, which models send in pieces."""

_ROLE: Final = re.compile("[a-z_]{1,32}")


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


class _TooMuch(Exception):
    """A record takes more work than it may."""


class Redactor:
    """Masks secrets.

    Args:
        patterns: what it looks for; none of them masks nothing.
    """

    def __init__(self, patterns: Patterns = DEFAULT) -> None:
        self._own = tuple(patterns.own)
        self._built_in = patterns.built_in
        self._names = patterns.names
        # Most short texts are keys, roles and names, which come back with every record.
        self._clean: set[str] = set()
        names = "|".join(re.escape(name) for name in (*self._names, TOO_LONG))
        # Only the names of patterns: no secret can hide in the brackets of a mask.
        self._masks = re.compile(rf"\[redacted: ({names})\]")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the patterns."""
        return self._names

    @property
    def fingerprint(self) -> int:
        """A number that other patterns do not have."""
        own = [(each.name, each.expression) for each in self._own]
        return crc32(repr((own, self._built_in.names, FORMS)).encode("utf-8", "replace"))

    def is_built_in(self, name: str) -> bool:
        """Whether a pattern of steno has this name and is on."""
        return name in self._built_in.names

    def has_mask(self, text: str) -> bool:
        """Whether a text contains a mask."""
        return bool(self._names) and bool(self._masks_in(text))

    def is_mask(self, text: str) -> bool:
        """Whether a text is one mask, and nothing else."""
        return self._masks.fullmatch(text) is not None

    def text(self, text: str) -> str:
        """A text with its secrets masked."""
        try:
            return _Masking(self, _silent).text(text)
        except _TooMuch:
            return mask_of(TOO_LONG)

    def value(self, value: Any) -> Any:
        """A JSON value of the same shape with the secrets in its texts and keys masked.

        Texts of neighbouring parts of a message are searched together as well: a model sends them
        in pieces, and a secret may lie across two. Numbers are never masked. A value that takes too
        much work is masked as a whole: of an object, only the role stays.
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
        found = self.find(text)
        masked = "".join(_replaced([text], found))
        located: list[tuple[int, Finding]] = []
        longer = 0
        for match in found:
            mask, start = mask_of(match.name), match.start + longer
            shown = _preview(masked, Match(start, start + len(mask), match.name))
            located.append((match.start, Finding(match.name, self.text(shown))))
            longer += len(mask) - (match.end - match.start)
        return located

    def find(self, text: str, take: Steps = unbounded) -> list[Match]:
        """The secrets in a text, in order; they do not overlap.

        Args:
            text: what is searched.
            take: is called with a number of steps before they are made, and may raise.
        """
        found = [
            Match(start, end, pattern.name)
            for pattern in self._own
            for start, end in pattern.spans(text)
            if 0 <= start < end
        ]
        found += self._built_in.matches(text, take)
        return _merged(found, self._masks_in(text)) if found else found

    def key_name(self, key: str) -> str | None:
        """The name of the mask for the value under a key; None if it is no secret."""
        return self._built_in.key_name(key)

    def is_clean(self, text: str) -> bool:
        """Whether a short text was searched before, and has no secret."""
        return text in self._clean

    def note_clean(self, text: str) -> None:
        """Remember a text without a secret, if it is short."""
        if len(text) <= CLEAN_CHARS_MAX:
            if len(self._clean) >= CLEAN_TEXTS_MAX:
                self._clean.clear()
            self._clean.add(text)

    def report(self, before: Sequence[str], after: Sequence[str], report: Report) -> None:
        """Report the masks that were not there before."""
        old = Counter(match.name for text in before for match in self._masks_in(text))
        for text in after:
            for match in self._masks_in(text):
                if old[match.name] > 0:
                    old[match.name] -= 1
                else:
                    report(Finding(match.name, _preview(text, match)))

    def _value(self, value: Any, report: Report) -> Any:
        if not self._names:
            return value
        if not self._own and self._is_clean_value(value):
            return value
        try:
            return _Masking(self, report).value(value)
        except _TooMuch:
            report(Finding(TOO_LONG, mask_of(TOO_LONG)))
            return _wholly(value)

    def _is_clean_value(self, value: Any) -> bool:
        """Whether one search of all texts finds nothing, as for nearly every record."""
        texts: list[str] = []
        try:
            if self._collect(value, texts, 0, 0):
                return False
        except _TooMuch:
            return False
        text = _APART.join(texts)
        if len(text) > JSON_CHARS_MAX or self._built_in.matches(text):
            return False
        for each in texts:
            self.note_clean(each)
        return True

    def _collect(self, value: Any, texts: list[str], levels: int, depth: int) -> bool:
        """Collect the texts of a value; whether a key says that a value is a secret."""
        if isinstance(value, str):
            if value in self._clean:
                return False
            texts.append(value)
            decoded = _document(value) if levels < JSON_LEVELS_MAX else None
            return decoded is not None and self._collect(decoded, texts, levels + 1, depth)
        if depth >= DEPTH_MAX:
            raise _TooMuch
        if is_object(value):
            for key, each in value.items():
                if key not in self._clean:
                    texts.append(key)
                if self._built_in.key_name(key) is not None or self._collect(
                    each, texts, levels, depth + 1
                ):
                    return True
            return False
        if not _is_sequence(value):
            return False
        if len(places := _texts_in(value)) > 1:
            texts.append("".join([str(value[number][key]) for number, key in places]))
        return any(self._collect(each, texts, levels, depth + 1) for each in value)

    def _masks_in(self, text: str) -> list[Match]:
        if _OPENING not in text:
            return []
        return [Match(*each.span(), each[1]) for each in self._masks.finditer(text)]


class _Masking:
    """The masking of one value, with a bound on its work.

    Args:
        redactor: finds the secrets.
        report: receives the findings.
    """

    def __init__(self, redactor: Redactor, report: Report) -> None:
        self._redactor = redactor
        self._report = report
        self._left = RECORD_CHARS_MAX

    def value(self, value: Any, levels: int = 0, depth: int = 0) -> Any:
        """A value with its secrets masked.

        Args:
            value: a JSON value.
            levels: how many JSON texts it is inside of.
            depth: how many objects and arrays it is inside of.
        """
        if isinstance(value, str):
            return self._json_text(value, levels, depth)
        if depth >= DEPTH_MAX:
            raise _TooMuch
        if is_object(value):
            return self._object(value, levels, depth + 1)
        if _is_sequence(value):
            return self._array(value, levels, depth + 1)
        return value

    def text(self, text: str) -> str:
        """A text with its secrets masked."""
        if self._redactor.is_clean(text):
            return text
        masked = self._settled([text])[0]
        if masked == text:
            self._redactor.note_clean(text)
        return masked

    def _object(self, value: dict[str, Any], levels: int, depth: int) -> dict[str, Any]:
        masked: dict[str, Any] = {}
        names: Counter[str] = Counter()
        for key, each in value.items():
            shown = self.text(key)
            name = shown
            while shown in masked:
                names[name] += 1
                shown = f"{name} {names[name] + 1}"
            masked[shown] = self._under(key, each, levels, depth)
        return masked

    def _under(self, key: str, value: Any, levels: int, depth: int) -> Any:
        """The value under a key, which may say that it is a secret."""
        name = self._redactor.key_name(key)
        if name is None:
            return self.value(value, levels, depth)
        if _is_sequence(value):
            return [self._under(key, each, levels, depth) for each in value if depth < DEPTH_MAX]
        if not isinstance(value, str) or not is_value(_last_word(key), value):
            return self.value(value, levels, depth)
        masked = self.value(value, levels, depth)
        if isinstance(masked, str) and self._redactor.is_mask(masked):
            # It has a more exact name, or was masked before.
            return masked
        mask = mask_of(name)
        self._report(Finding(name, f"{key[:PREVIEW_CHARS_MAX]}: {mask}"))
        return mask

    def _array(self, parts: Sequence[Any], levels: int, depth: int) -> list[Any]:
        """The elements; if they are the parts of a message, a secret may lie across several."""
        if len(_texts_in(parts)) < 2:
            return [self.value(each, levels, depth) for each in parts]
        # Together first: the beginning of a secret in one part may be masked on its own.
        joined = self._joined([*parts], alone=False)
        masked = [self.value(each, levels, depth) for each in joined]
        for _ in range(PASSES_MAX):
            settled = self._joined(masked, alone=True)
            if settled == masked:
                break
            masked = settled
        return masked

    def _joined(self, parts: list[Any], *, alone: bool) -> list[Any]:
        """The parts, their texts searched together, and then each alone."""
        places = _texts_in(parts)
        texts = self._settled([str(parts[number][key]) for number, key in places])
        masked = list(parts)
        for (number, key), text in zip(places, texts, strict=True):
            shown = self.text(text) if alone else text
            if shown != masked[number][key]:
                masked[number] = {**masked[number], key: shown}
        return masked

    def _json_text(self, text: str, levels: int, depth: int) -> str:
        """A text; one that is JSON itself, as the arguments of a call are, stays JSON."""
        if self._redactor.is_clean(text):
            return text
        if levels >= JSON_LEVELS_MAX:
            return self.text(text)
        for _ in range(2):
            masked = self.text(self._decoded(text, levels, depth))
            if masked == text:
                break
            text = masked
        return text

    def _decoded(self, text: str, levels: int, depth: int) -> str:
        value = _document(text)
        if value is None:
            return text
        masked = self.value(value, levels + 1, depth)
        return text if masked == value else json.dumps(masked, ensure_ascii=False)

    def _settled(self, texts: list[str]) -> list[str]:
        """Texts that follow each other, masked until no pattern matches any longer."""
        masked = texts
        for _ in range(PASSES_MAX):
            found = self._find(masked)
            if not found:
                if masked is not texts:
                    self._redactor.report(texts, masked, self._report)
                return masked
            masked = _replaced(masked, found)
        if rest := self._find(masked):
            # The patterns never come to rest.
            masked = [mask_of(rest[0].name)] * len(masked)
        self._redactor.report(texts, masked, self._report)
        return masked

    def _find(self, texts: list[str]) -> list[Match]:
        text = texts[0] if len(texts) == 1 else "".join(texts)
        self._spend(len(text) + SEARCH_CHARS_MIN)
        return self._redactor.find(text, self._take)

    def _take(self, steps: int) -> None:
        self._spend(STEP_CHARS_MIN * steps)

    def _spend(self, chars: int) -> None:
        self._left -= chars
        if self._left < 0:
            raise _TooMuch


def _wholly(value: Any) -> Any:
    """The mask of a whole value; an object keeps its role."""
    mask = mask_of(TOO_LONG)
    if not is_object(value):
        return mask
    role = value.get("role")
    is_role = isinstance(role, str) and _ROLE.fullmatch(role) is not None
    return {"role": role, "content": mask} if is_role else {"content": mask}


def _document(text: str) -> Any:
    """The object or array that a text is as JSON; None if it is none."""
    if text[:1] not in {"{", "["} or len(text) > JSON_CHARS_MAX:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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


def _replaced(texts: Sequence[str], found: Sequence[Match]) -> list[str]:
    """Texts with a mask in place of the part of each match that lies in them."""
    replaced: list[str] = []
    begin = first = 0
    for text in texts:
        end = begin + len(text)
        pieces: list[str] = []
        at = begin
        number = first
        while number < len(found) and found[number].start < end:
            match = found[number]
            if begin < match.end and match.end > at:
                pieces += text[at - begin : max(at, match.start) - begin], mask_of(match.name)
                at = min(end, match.end)
            if match.end > end:
                # It goes on in the next text.
                break
            number += 1
        replaced.append("".join([*pieces, text[at - begin :]]))
        begin, first = end, number
    return replaced


def _last_word(key: str) -> str:
    """The last word of the name of a secret."""
    low = lowered(key)
    return low[max(low.rfind(stem) for stem in STEMS) :]


def _preview(text: str, match: Match) -> str:
    first, last = max(0, match.start - PREVIEW_CHARS_MAX), match.end + PREVIEW_CHARS_MAX
    shown = " ".join(text[first:last].split())
    return f"{'…' if first else ''}{shown}{'…' if last < len(text) else ''}"

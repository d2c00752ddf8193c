r"""The patterns that redaction looks for: built-in ones, and those of `config.toml`.

    [redact]
    ticket = 'TICKET-[0-9]{6}'      # a pattern of one's own
    bearer-token = false            # a built-in one, switched off

A group named `secret` is the part of a match that is masked; without one, all of it is.

The built-in patterns run on `re`, which backtracks. None of them can take more than linear time:
each begins with a literal text, and what follows is bounded or cannot begin again inside itself.
A pattern of the user runs on RE2, which never backtracks and has no timeout to choose; `re` has
none either, and holds the interpreter while it searches.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command
from steno_protocol.settings import REDACT_AT, Redact
from steno_redact import named
from steno_redact.limits import (
    CUT_LINES_MAX,
    KEY_CHARS_MAX,
    MATCHES_MIN,
    RE2_BYTES_MAX,
    SCAN_CHARS_MAX,
    VENDOR_CHARS_MIN,
)
from steno_redact.normal import Copy, Span, breaks, copies, escapes, joined, lowered
from steno_redact.vendors import BEGIN, HINTED, NAMES, ROWS, vendors_of


class Match(NamedTuple):
    """A part of a text that is a secret."""

    start: int
    end: int
    name: str


Steps = Callable[[int], None]
"""Is called with a number of steps of a search before they are made."""


def unbounded(_: int) -> None:
    """Let a search make all its steps."""


class Own:
    """A pattern of the user.

    Args:
        name: the name that its masks show.
        expression: a regular expression in the syntax of RE2.

    Raises:
        ModuleNotFoundError: google-re2 is not installed.
        ValueError: it is no such expression; the message says where.
    """

    def __init__(self, name: str, expression: str) -> None:
        # Imported here: a configuration without own patterns does not need it.
        engine: Any = import_module("re2")
        options = engine.Options()
        options.log_errors = False
        options.max_mem = RE2_BYTES_MAX
        try:
            self._compiled: Any = engine.compile(expression, options)
        except (engine.error, UnicodeEncodeError) as error:
            text = error.args[0]
            raise ValueError(text.decode() if isinstance(text, bytes) else str(error)) from None
        self._group: int = self._compiled.groupindex.get("secret", 0)
        self._name = name
        self.expression = expression

    @property
    def name(self) -> str:
        """The name that its masks show."""
        return self._name

    def spans(self, text: str) -> Iterator[Span]:
        """What it matches in a text, in order; after too many matches, the rest of the text."""
        left = max(MATCHES_MIN, SCAN_CHARS_MAX // max(1, len(text)))
        for found in self._compiled.finditer(_sound(text)):
            span: Span = found.span(self._group)
            if left == 0:
                yield span[0], len(text)
                return
            left -= 1
            yield span


def _sound(text: str) -> str:
    """A text of the same length without halves of surrogate pairs, which UTF-8 does not have."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# The quotes around a name or a value.
_QUOTE: Final = r"[\"'`]?"
_IS: Final = rf"{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}"

_TEXTS: Final[tuple[tuple[str, str, str], ...]] = (
    # name, the text that it begins with in small letters, expression
    (
        "private-key", "-----begin ",
        # Without an end, all that follows: half a key is as secret.
        (r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"\s{1,8}[A-Za-z0-9+/=:, .-]{16}(?s:.*?)"
        r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----|\Z)"),
    ),
    (
        "private-key", "private-lines:",
        (r"Private-Lines: [0-9]{1,4}\s{1,4}"
        r"(?P<secret>(?:[A-Za-z0-9+/=]{1,80}[\r\n]{1,2}){0,200}[A-Za-z0-9+/=]{1,80})"),
    ),
    (
        "aws-secret-key", "secret",
        rf"(?i:secret_?access_?key){_IS}(?P<secret>[A-Za-z0-9/+]{{40}}=?)",
    ),
    (
        "bearer-token", "bearer",
        (r"(?i:\bbearer)\s{1,8}"
        r"(?P<secret>(?=[A-Za-z_+/.~-]{0,200}[0-9])[A-Za-z0-9_+/.~-]{16,}={0,2})"),
    ),
    (
        "basic-auth", "authorization",
        rf"(?i:authorization){_IS}(?i:basic)\s{{1,8}}(?P<secret>[A-Za-z0-9+/]{{8,}}={{0,2}})",
    ),
    (
        "url-password", "://",
        r"://[^\s/:@\"'<>]{0,128}:(?P<secret>[^\s/@\"'<>]{1,256})@(?=[\w\[%$])",
    ),
)  # fmt: skip

_LIKE_A_KEY: Final = re.compile("[0-9]|[a-z][A-Z]")
"""What hardly a word has."""

_NAMED: Final = (named.AUTHORIZATION, named.COOKIE, named.ASSIGNED)

BUILT_IN: Final = tuple(dict.fromkeys((*(name for name, *_ in _TEXTS), *NAMES, *_NAMED)))
"""The names of the patterns that are on unless the configuration says otherwise."""


class BuiltIn:
    """The patterns that come with steno, those of a set of names.

    Args:
        names: of `BUILT_IN`.
    """

    def __init__(self, names: Collection[str] = BUILT_IN) -> None:
        self.names: tuple[str, ...] = tuple(name for name in BUILT_IN if name in names)
        self._texts = [
            (name, begin, re.compile(expression))
            for name, begin, expression in _TEXTS
            if name in self.names
        ]
        self._vendors = vendors_of(frozenset(self.names) & frozenset(NAMES))
        self._named = frozenset(self.names) & frozenset(_NAMED)

    def matches(self, text: str, take: Steps = unbounded) -> list[Match]:
        """The secrets in a text, the more exact patterns first; see `Redactor.find`."""
        if take is not unbounded:
            take(escapes(text))
        return [match for copy in copies(text) for match in self._in_copy(copy, take)]

    def _in_copy(self, copy: Copy, take: Steps) -> list[Match]:
        low = lowered(copy.text)
        spans = list(self._in_texts(copy.text, low))
        if len(copy.text) >= VENDOR_CHARS_MIN and self._vendors.may_match(copy.text):
            spans += self._vendors.spans(copy.text)
            take(breaks(copy.text))
            broken = joined(copy.text)
            if broken is not None:
                spans += self._broken(copy.text, broken)
        if self._named:
            spans += [each for each in named.spans(copy.text, low) if each[2] in self._named]
        take(len(spans))
        return [Match(*copy.span(start, end), name) for start, end, name in spans]

    def key_name(self, key: str) -> str | None:
        """The name of the mask for the value under a key of a JSON object; None if it is none."""
        name = named.key_name(key) if len(key) <= KEY_CHARS_MAX else None
        return name if name in self._named else None

    def _in_texts(self, text: str, low: str) -> Iterator[tuple[int, int, str]]:
        for name, begin, expression in self._texts:
            group = "secret" if "secret" in expression.groupindex else 0
            at = low.find(begin)
            while at >= 0:
                found = expression.match(text, at)
                if found is not None:
                    yield *found.span(group), name
                at = low.find(begin, max(at + 1, at if found is None else found.end()))

    def _broken(self, text: str, broken: Copy) -> Iterator[tuple[int, int, str]]:
        """The vendors' keys that a line break cuts."""
        reach = 0
        # The longest of those that begin together first, so that one is inside or goes on.
        for first, last, name in sorted(
            self._vendors.cut_spans(broken), key=lambda each: (each[0], -each[1])
        ):
            start, end = broken.span(first, last)
            if end > reach and (found := self._without_words(text, start, end)) is not None:
                reach = max(reach, found)
                yield start, found, name

    def _without_words(self, text: str, start: int, end: int) -> int | None:
        """The end of a key that line breaks cut, without words of further lines behind it.

        Returns:
            The end of all lines if there are more than `CUT_LINES_MAX`: to look at each takes the
            square of their number. None if the key is whole in one line, as another search finds.
        """
        if text.count("\n", start, end) + text.count("\r", start, end) > CUT_LINES_MAX:
            return end
        # A word of the next line is no part of a key that is whole without it.
        while (cut := max(text.rfind("\n", start, end), text.rfind("\r", start, end))) >= 0:
            if _LIKE_A_KEY.search(text[cut:end]) is not None or not self._vendors.is_one(
                text[start:cut]
            ):
                return end
            end = cut
        return None


FORMS: Final = (_TEXTS, BEGIN, ROWS, HINTED, named.FORMS)
"""All that the built-in patterns look for."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """What is looked for.

    Attributes:
        own: the patterns of the user; where two find the same, they name it.
        built_in: those of steno.
    """

    own: Sequence[Own] = ()
    built_in: BuiltIn = field(default_factory=partial(BuiltIn, ()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return *(each.name for each in self.own), *self.built_in.names


DEFAULT: Final = Patterns(built_in=BuiltIn())
"""The patterns of steno."""


def patterns_of(table: Mapping[str, Redact], source: str) -> Patterns:
    """The patterns in force.

    Args:
        table: the table `[redact]`: by name, an expression, or whether a built-in pattern is on.
        source: the path of the file, for errors.

    Raises:
        BadRequest: a pattern is not valid; the message names the file, the key and the remedy.
    """
    for name, value in table.items():
        if isinstance(value, bool) and name not in BUILT_IN:
            raise BadRequest(
                f"{source}: redact.{name} is no built-in pattern, which alone can be true or"
                " false: `steno redact --patterns` lists them"
            )
    own = [
        _own(name, expression, source)
        for name, expression in table.items()
        if isinstance(expression, str) and name != REDACT_AT
    ]
    # An own pattern of the same name replaces a built-in one.
    return Patterns(own, BuiltIn([name for name in BUILT_IN if table.get(name, True) is True]))


def _own(name: str, expression: str, source: str) -> Own:
    try:
        return Own(name, expression)
    except ModuleNotFoundError:
        raise BadRequest(
            f"{source}: redact.{name} needs google-re2: install it with `{extra_command('redact')}`"
        ) from None
    except ValueError as error:
        raise BadRequest(
            f"{source}: redact.{name} is no regular expression of RE2, which has no lookaround and"
            f" no references: {error}"
        ) from None

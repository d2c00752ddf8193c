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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from steno._redaction.limits import MATCHES_MIN, RE2_BYTES_MAX, SCAN_CHARS_MAX
from steno_protocol.errors import BadRequest

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""


class Pattern(Protocol):
    """A pattern with a name."""

    @property
    def name(self) -> str:
        """The name that its masks show."""
        ...

    def spans(self, text: str) -> Iterator[Span]:
        """What it matches in a text, in order."""
        ...

    def has_key(self, key: str) -> bool:
        """Whether the value of a JSON object under this key is a secret."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A pattern that comes with steno.

    Attributes:
        name: the name that its masks show.
        hints: texts of which every match contains one; they are found far faster.
        expression: the pattern.
        key: matches the keys of JSON objects whose values are secrets.
    """

    name: str
    hints: tuple[str, ...]
    expression: re.Pattern[str]
    key: re.Pattern[str] | None = None

    def spans(self, text: str) -> Iterator[Span]:
        """What it matches in a text, in order."""
        if any(hint in text for hint in self.hints):
            group = "secret" if "secret" in self.expression.groupindex else 0
            for found in self.expression.finditer(text):
                yield found.span(group)

    def has_key(self, key: str) -> bool:
        """Whether the value of a JSON object under this key is a secret."""
        return self.key is not None and self.key.fullmatch(key) is not None


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
            self._expression: Any = engine.compile(expression, options)
        except (engine.error, UnicodeEncodeError) as error:
            text = error.args[0]
            raise ValueError(text.decode() if isinstance(text, bytes) else str(error)) from None
        self._group: int = self._expression.groupindex.get("secret", 0)
        self._name = name

    @property
    def name(self) -> str:
        """The name that its masks show."""
        return self._name

    def spans(self, text: str) -> Iterator[Span]:
        """What it matches in a text, in order; after too many matches, the rest of the text."""
        left = max(MATCHES_MIN, SCAN_CHARS_MAX // max(1, len(text)))
        for found in self._expression.finditer(_sound(text)):
            span: Span = found.span(self._group)
            if left == 0:
                yield span[0], len(text)
                return
            left -= 1
            yield span

    def has_key(self, key: str) -> bool:  # noqa: ARG002  (of the protocol)
        """Never: it matches texts only."""
        return False


def _sound(text: str) -> str:
    """A text of the same length without halves of surrogate pairs, which UTF-8 does not have."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _pattern(name: str, hints: str, expression: str, key: str | None = None) -> BuiltIn:
    compiled_key = None if key is None else re.compile(key, re.IGNORECASE)
    return BuiltIn(name, tuple(hints.split()), re.compile(expression), compiled_key)


# A key begins where no word goes on, so that a long word is looked at once.
_BEGIN: Final = r"(?<![A-Za-z0-9_-])"
# The quotes around a name or a value, also inside of JSON text.
_QUOTE: Final = r"\\{0,3}[\"']?"
_IS: Final = rf"{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}"
# A digit tells a key from words, and from the name of a variable that holds the key.
_WITH_DIGIT: Final = r"(?=[A-Za-z_+/.~!@#$%^*-]{0,200}[0-9])"
_KEYS: Final = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|(?:auth|access|refresh|api|bot|session|github|gitlab|slack|npm|hf)[_-]?token"
    r"|client[_-]?secret)"
)

BUILT_IN: Final[tuple[BuiltIn, ...]] = (
    _pattern(
        "private-key", "-----BEGIN",
        # Without an end, all that follows: half a key is as secret.
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:\s|\\[rn]){1,8}[A-Za-z0-9+/=:, -]{16}(?s:.*?)"
        r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _pattern("anthropic-key", "sk-ant-", rf"{_BEGIN}sk-ant-[A-Za-z0-9_-]{{16,}}"),
    _pattern(
        "openai-key", "sk-",
        rf"{_BEGIN}sk-(?=[A-Za-z_-]{{0,200}}[0-9])[A-Za-z0-9_-]{{20,}}",
    ),
    _pattern("google-key", "AIza", rf"{_BEGIN}AIza[A-Za-z0-9_-]{{35}}"),
    _pattern(
        "github-token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"{_BEGIN}(?:gh[pousr]_[A-Za-z0-9]{{36,255}}|github_pat_[A-Za-z0-9_]{{22,255}})",
    ),
    _pattern("gitlab-token", "glpat-", rf"{_BEGIN}glpat-[A-Za-z0-9_-]{{20,}}"),
    _pattern("huggingface-token", "hf_", rf"{_BEGIN}hf_[A-Za-z0-9]{{30,}}"),
    _pattern("slack-token", "xox", rf"{_BEGIN}xox[abeprs]-[A-Za-z0-9-]{{10,}}"),
    _pattern(
        "stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_",
        rf"{_BEGIN}[sr]k_(?:live|test)_[A-Za-z0-9]{{16,}}",
    ),
    _pattern("npm-token", "npm_", rf"{_BEGIN}npm_[A-Za-z0-9]{{36}}"),
    _pattern("pypi-token", "pypi-AgE", rf"{_BEGIN}pypi-AgE[A-Za-z0-9_-]{{50,}}"),
    _pattern("aws-key-id", "AKIA ASIA", rf"{_BEGIN}(?:AKIA|ASIA)[A-Z0-9]{{16}}(?![A-Z0-9])"),
    _pattern(
        "aws-secret-key", "ecret_ ECRET_ ecretA",
        rf"(?i:secret_?access_?key){_IS}(?P<secret>[A-Za-z0-9/+]{{40}}=?)",
    ),
    _pattern(
        "jwt", "eyJ",
        rf"{_BEGIN}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{8,}}",
    ),
    _pattern(
        "bearer-token", "earer EARER",
        rf"(?i:\bbearer)\s{{1,8}}(?P<secret>{_WITH_DIGIT}[A-Za-z0-9_+/.~-]{{16,}}={{0,2}})",
    ),
    _pattern(
        "basic-auth", "asic ASIC",
        rf"(?i:authorization){_IS}(?i:basic)\s{{1,8}}(?P<secret>[A-Za-z0-9+/]{{8,}}={{0,2}})",
    ),
    _pattern(
        "url-password", "://",
        r"://[^\s/:@\"'<>\\]{0,128}:(?P<secret>[^\s/@\"'<>\\]{1,256})@",
    ),
    _pattern(
        "assigned-secret",
        "assword ASSWORD asswd ASSWD assphrase ASSPHRASE ecret ECRET"
        " _key _KEY -key -KEY Key apikey APIKEY oken OKEN",
        rf"(?i:{_KEYS}){_IS}"
        rf"(?P<secret>{_WITH_DIGIT}[A-Za-z0-9_+/.~!@#$%^*-]{{8,}}={{0,2}})",
        rf"(?:\w{{1,40}}[_-])?{_KEYS}",
    ),
)  # fmt: skip
"""The patterns that are on unless the configuration says otherwise, the more exact ones first."""

_BUILT_IN_NAMES: Final = tuple(pattern.name for pattern in BUILT_IN)


def patterns_of(table: Mapping[str, str | bool], source: str) -> Sequence[Pattern]:
    """The patterns in force.

    Args:
        table: the table `[redact]`: by name, an expression, or whether a built-in pattern is on.
        source: the path of the file, for errors.

    Raises:
        BadRequest: a pattern is not valid; the message names the file, the key and the remedy.
    """
    unknown = [name for name, on in table.items() if on is True or on is False]
    for name in unknown:
        if name not in _BUILT_IN_NAMES:
            raise BadRequest(
                f"{source}: redact.{name} is no built-in pattern, which alone can be true or"
                " false: `steno redact --patterns` lists them"
            )
    own = [
        _own(name, expression, source)
        for name, expression in table.items()
        if isinstance(expression, str)
    ]
    # An own pattern of the same name replaces a built-in one.
    return [*own, *(each for each in BUILT_IN if table.get(each.name, True) is True)]


def _own(name: str, expression: str, source: str) -> Own:
    try:
        return Own(name, expression)
    except ModuleNotFoundError:
        raise BadRequest(
            f"{source}: redact.{name} needs google-re2: install it with `pip install"
            " 'stenod[redact]'`"
        ) from None
    except ValueError as error:
        raise BadRequest(
            f"{source}: redact.{name} is no regular expression of RE2, which has no lookaround and"
            f" no references: {error}"
        ) from None

"""Markdown and code as trees of elements; pure.

A tree is a text, or a list of a tag, its attributes and its children:

    ["p", {}, "Run ", ["code", {}, "ls"], " first."]

The page creates each element by its name, from a list of harmless ones. No text of a transcript is
ever parsed as HTML, here or there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.token import STANDARD_TYPES, Text

from steno.cli.render.lexers import lexer_named
from steno.viewer.limits import CODE_CHARS_MAX, COLOURING_S_MAX, MARKDOWN_CHARS_MAX

Tree = str | list[Any]
"""A text, or `[tag, attributes, *children]`."""

Clock = Callable[[], float]
"""Seconds on a clock that never goes back."""

# Without HTML: a tag in a text is text. A line break is one, as agents and terminals write.
_PARSER: Final = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(
    ["table", "strikethrough"]
)

_TAGS: Final = frozenset(
    "p ul ol li blockquote em strong s table thead tbody tr th td".split()  # noqa: SIM905
)
_LINKS: Final = frozenset({"http", "https", "mailto"})
_HEADING_FIRST: Final = 4
"""The page has the headings above this level."""


def markdown(text: str, clock: Clock) -> list[Tree]:
    """The elements of a Markdown text; a very long one is one element with the text as it is."""
    if len(text) > MARKDOWN_CHARS_MAX:
        return [["pre", {}, text]]
    return _Builder(clock).build(_PARSER.parse(text))


def code(text: str, language: str, clock: Clock) -> list[Tree]:
    """The pieces of a program, each with the class of its kind; an unknown language has one."""
    lexer = None if len(text) > CODE_CHARS_MAX else lexer_named(language)
    if lexer is None:
        return [text]
    return [
        ["span", {"class": name}, piece] if (name := _class_of(kind)) else piece
        for kind, piece in _joined(_tokens(lexer, text, clock))
    ]


def _tokens(lexer: Lexer, text: str, clock: Clock) -> Iterator[tuple[Any, str]]:
    """The tokens of a program; what is left when the time is over is one token.

    Many lexers take a time that grows with the square of a hostile text: ten thousand line breaks
    in a block of C take five seconds.
    """
    # As every lexer changes a text before it begins.
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    until, done = clock() + COLOURING_S_MAX, 0
    for kind, piece in lexer.get_tokens(text):
        yield kind, piece
        done += len(piece)
        if clock() > until:
            yield Text, text[done:]
            return


def _joined(tokens: Iterator[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    """Tokens; neighbours of one kind are one."""
    before: Any | None = None
    pieces: list[str] = []
    for kind, piece in tokens:
        if before is not None and kind is not before:
            yield before, "".join(pieces)
            pieces.clear()
        before = kind
        pieces.append(piece)
    if before is not None:
        yield before, "".join(pieces)


def _class_of(kind: Any) -> str:
    """The standard class of the kind or of the first of its parents that has one."""
    while kind not in STANDARD_TYPES and kind.parent is not None:
        kind = kind.parent
    return STANDARD_TYPES.get(kind, "")


class _Builder:
    """A tree from the parser's list of opening, closing and single tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: list[list[Any]] = [["div", {}]]

    def build(self, tokens: Sequence[Token]) -> list[Tree]:
        """The trees of all tokens."""
        for token in tokens:
            self._take(token)
        return self._open[0][2:]

    def _take(self, token: Token) -> None:
        if token.type == "inline":
            for child in token.children or ():
                self._take(child)
        elif token.nesting > 0:
            self._begin(token)
        elif token.nesting < 0:
            self._end()
        else:
            self._add(_single(token, self._clock))

    def _begin(self, token: Token) -> None:
        node: list[Any] = [*_element(token)]
        self._add(node)
        self._open.append(node)

    def _end(self) -> None:
        self._open.pop()

    def _add(self, node: Tree) -> None:
        self._open[-1].append(node)


def _element(token: Token) -> tuple[str, dict[str, Any]]:
    """The tag and the attributes of an opening token."""
    tag = token.tag
    if token.type == "heading_open":
        return f"h{min(6, int(tag[1:]) + _HEADING_FIRST - 1)}", {}
    if token.type == "link_open":
        href = str(token.attrs.get("href", ""))
        return ("a", {"href": href}) if _is_link(href) else ("span", {"class": "no-link"})
    if tag == "ol":
        start = token.attrs.get("start")
        return tag, {"start": start} if isinstance(start, int) else {}
    if token.hidden:
        # The paragraph of a tight list item.
        return "span", {}
    return (tag, {}) if tag in _TAGS else ("span", {})


def _single(token: Token, clock: Clock) -> Tree:
    match token.type:
        case "text" | "text_special":
            return token.content
        case "softbreak" | "hardbreak":
            return ["br", {}]
        case "hr":
            return ["hr", {}]
        case "code_inline":
            return ["code", {}, token.content]
        case "fence" | "code_block":
            return ["pre", {}, ["code", {}, *code(token.content, token.info, clock)]]
        case "image":
            return _picture(token.attrs, token.content)
        case _:
            return token.content


def _picture(attrs: Mapping[str, Any], text: str) -> Tree:
    """An image of the text: its description and address, and never a request for it."""
    href = str(attrs.get("src", ""))
    shown = f"[image: {text or href[:80]}]"
    return ["a", {"href": href}, shown] if _is_link(href) else shown


def _is_link(href: str) -> bool:
    try:
        return urlsplit(href).scheme.lower() in _LINKS
    except ValueError:
        return False

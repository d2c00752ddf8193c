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
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.token import STANDARD_TYPES, Text

from steno_present.lexers import lexer_named
from steno_view.limits import (
    CODE_CHARS_MAX,
    COLOURING_S_MAX,
    MARKDOWN_CHARS_MAX,
    MARKDOWN_STEPS_MAX,
    RECORD_MARKDOWN_CHARS_MAX,
)

Tree = str | list[Any]
"""A text, or `[tag, attributes, *children]`."""

Clock = Callable[[], float]
"""Seconds on a clock that never goes back."""

_BUDGET: Final = "budget"
"""The name of the rule that counts, and of the budget in the parser's environment."""

_TAGS: Final = frozenset(
    "p ul ol li blockquote em strong s table thead tbody tr th td".split()  # noqa: SIM905
)
_LINKS: Final = frozenset({"http", "https", "mailto"})
_HEADING_FIRST: Final = 4
"""The page has the headings above this level."""


class _Spent(Exception):
    """A text takes more steps than its record has left."""


class Budget:
    """The work that one record may cost, however many texts it has."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._steps = MARKDOWN_STEPS_MAX
        self._chars = RECORD_MARKDOWN_CHARS_MAX
        self._colours_s = COLOURING_S_MAX

    def take(self, steps: int) -> None:
        """Take steps of the parser.

        Raises:
            _Spent: there are not as many left.
        """
        self._steps -= steps
        if self._steps < 0:
            raise _Spent

    def parse(self, text: str) -> list[Token] | None:
        """The parser's list for a text; None if it would cost too much."""
        self._chars -= len(text)
        if len(text) > MARKDOWN_CHARS_MAX or self._chars < 0 or self._steps < 0:
            return None
        try:
            return _PARSER.parse(text, {_BUDGET: self})
        except _Spent:
            return None

    def tokens(self, lexer: Lexer, text: str) -> Iterator[tuple[Any, str]]:
        """The tokens of a program, as long as the record has time for colours."""
        begun = self.clock()
        try:
            yield from _tokens(lexer, text, self.clock, begun + self._colours_s)
        finally:
            self._colours_s -= self.clock() - begun

    @property
    def has_colours(self) -> bool:
        """Whether there is time left for colours."""
        return self._colours_s > 0


def _counted_inline(state: StateInline, silent: bool) -> bool:  # noqa: ARG001  # a rule
    """A rule that matches nothing and counts the places where the parser tries its rules."""
    state.env[_BUDGET].take(1)
    return False


def _counted_block(state: StateBlock, line: int, end: int, silent: bool) -> bool:  # noqa: ARG001
    """The same for lines; the first line of a table counts the cells that it may have.

    The parser fills each row up to the width of the table: a few characters make many cells.
    """
    cells = state.src.count("|", state.bMarks[line], state.eMarks[line])
    rows = 0
    if cells > 1:
        rows = next((each - line for each in range(line, end) if state.isEmpty(each)), end - line)
    state.env[_BUDGET].take(1 + cells * rows // _CELLS_PER_STEP)
    return False


_CELLS_PER_STEP: Final = 2
"""An empty cell of a table takes half of the time of a step."""


def _parser() -> MarkdownIt:
    """Without HTML: a tag in a text is text. A line break is one, as agents and terminals write."""
    made = MarkdownIt("commonmark", {"html": False, "breaks": True})
    made.enable(["table", "strikethrough"])
    made.inline.ruler.before("text", _BUDGET, _counted_inline)
    made.block.ruler.before("table", _BUDGET, _counted_block)
    return made


_PARSER: Final = _parser()


def markdown(text: str, budget: Budget) -> list[Tree]:
    """The elements of a Markdown text; one that costs too much is shown as it is, with a note."""
    tokens = budget.parse(text)
    if tokens is None:
        note = "Shown as it is: its Markdown would take too long."
        return [["p", {"class": "muted"}, note], ["pre", {}, text]]
    return _Builder(budget).build(tokens)


def code(text: str, language: str, budget: Budget) -> list[Tree]:
    """The pieces of a program, each with the class of its kind; an unknown language has one."""
    is_coloured = len(text) <= CODE_CHARS_MAX and budget.has_colours
    lexer = lexer_named(language) if is_coloured else None
    if lexer is None:
        return [text]
    return [
        ["span", {"class": name}, piece] if (name := _class_of(kind)) else piece
        for kind, piece in _joined(budget.tokens(lexer, text))
    ]


def _tokens(lexer: Lexer, text: str, clock: Clock, until: float) -> Iterator[tuple[Any, str]]:
    """The tokens of a program; what is left when the time is over is one token.

    Many lexers take a time that grows with the square of a hostile text: ten thousand line breaks
    in a block of C take five seconds.
    """
    # As every lexer changes a text before it begins.
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    done = 0
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

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
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
            self._add(_single(token, self._budget))

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


def _single(token: Token, budget: Budget) -> Tree:
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
            return ["pre", {}, ["code", {}, *code(token.content, token.info, budget)]]
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

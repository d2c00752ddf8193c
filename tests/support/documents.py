"""The project's documents as commands, code and tables."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FENCE: Final = re.compile(
    r"^(?:<!-- (?P<marker>[^>]*?) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SPAN: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SEPARATORS: Final = {"&&", "||", "|", ";", "&", ">", "<", "#"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `marker` is the comment right above it, `line` where its code begins."""

    language: str
    code: str
    marker: str | None
    line: int


def blocks(document: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    text = document.read_text()
    return [
        Block(found["language"], found["code"], found["marker"], _line(text, found.start("code")))
        for found in _FENCE.finditer(text)
    ]


def code_lines(document: Path) -> Iterator[str]:
    """Every line of code but Python: those of the fenced blocks, then each `span` in the prose."""
    for block in blocks(document):
        if block.language != "python":
            yield from block.code.splitlines()
    yield from _SPAN.findall(_FENCE.sub("", document.read_text()))


def command_words(line: str, command: str) -> Iterator[list[str]]:
    """The arguments of each call of `command` in a line of shell, up to the next pipe or `;`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:  # a lone apostrophe: prose, no shell
        return
    for index, word in enumerate(words):
        if word == command or word.endswith(f"/{command}"):
            yield _until_separator(words[index + 1 :])


def table_rows(document: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of any level, without its head."""
    below = re.split(rf"^#+ {heading}$", document.read_text(), maxsplit=1, flags=re.MULTILINE)[1:]
    rows = re.search(r"(?:^\|.*\n?)+", below[0], re.MULTILINE) if below else None
    lines = rows[0].splitlines()[2:] if rows else []
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def _until_separator(words: list[str]) -> list[str]:
    ends = [index for index, word in enumerate(words) if word in _SEPARATORS]
    return words[: ends[0]] if ends else words


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1

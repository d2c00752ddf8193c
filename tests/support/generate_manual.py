"""The manual of the command: a man page, a plain text, and the pages of the guide.

`PYTHONPATH=tests python -m support.generate_manual` writes them.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, assert_never

from steno_cli.command_table import GROUPS
from steno_cli.parser import build_parser
from steno_protocol import __version__
from support.manual import (
    Block,
    Code,
    Heading,
    Paragraph,
    Table,
    common_options,
    group,
    manual,
    names,
)
from support.project import PROJECT

MAN_PAGE: Final = PROJECT / "client" / "steno.1"
PLAIN: Final = PROJECT / "client" / "steno_cli" / "manual" / "steno.txt"
INDEX: Final = PROJECT / "client" / "guide" / "commands.md"
PAGES: Final = PROJECT / "client" / "guide" / "commands"

_PAGE_INTRODUCTION: Final = (
    "\nGenerated from the command's own help; [the command](../commands.md) has the common options"
    " and the exit codes.\n"
)
_COLUMNS: Final = 79
_CODE: Final = re.compile(r"`([^`]+)`")


def generated() -> dict[Path, str]:
    """The text of each generated file."""
    blocks = manual()
    parser = build_parser()
    pages = {
        page_of(title): "".join(
            [
                f"# Commands: {title}\n",
                _PAGE_INTRODUCTION,
                *_markdown(group(parser, title, level=2)),
            ]
        )
        for title in GROUPS
    }
    return {
        MAN_PAGE: "".join(_roff(blocks)),
        PLAIN: "\n".join(_plain(blocks)) + "\n",
        INDEX: _index(INDEX.read_text(), "".join(_markdown([common_options(parser)]))),
        **pages,
    }


def page_of(title: str) -> Path:
    """The page of a group of commands."""
    return PAGES / f"{title.replace(' ', '-')}.md"


def _index(page: str, options: str) -> str:
    """The hand-written page with its generated parts."""
    return _replaced(_replaced(page, "commands", _command_list()), "common options", options)


def _command_list() -> str:
    parts = []
    for title, commands in GROUPS.items():
        link = page_of(title).relative_to(INDEX.parent)
        rows = "".join(f"| {names(name)} | {summary} |\n" for name, summary in commands.items())
        parts.append(f"\n| [{title}]({link}) | |\n| --- | --- |\n{rows}")
    return "".join(parts)


def _replaced(page: str, name: str, text: str) -> str:
    """The page with the text between the two markers of a generated part replaced."""
    begin, end = f"<!-- generated: {name} -->\n", "<!-- end of generated -->"
    head, _, rest = page.partition(begin)
    assert rest, f"the page has no part {name!r}"
    return f"{head}{begin}{text}\n{end}{rest.partition(end)[2]}"


def _markdown(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Heading(level, text):
                yield f"\n{'#' * level} {text}\n"
            case Paragraph(text):
                yield "\n" + text.replace(". ", ".\n") + "\n"
            case Code(lines):
                yield "\n```text\n" + "".join(f"{line}\n" for line in lines) + "```\n"
            case Table(head, rows):
                yield f"\n| {head} | meaning |\n| --- | --- |\n"
                yield from (f"| `{_cell(term)}` | {_cell(text)} |\n" for term, text in rows)
            case _:
                assert_never(block)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(blocks: Iterable[Block]) -> Iterator[str]:
    yield f"steno {__version__}"
    for block in blocks:
        match block:
            case Heading(1, text):
                yield from ("", text.upper())
            case Heading(_, text):
                yield from ("", f"  {text}")
            case Paragraph(text):
                yield from ("", *_wrapped(text, 4))
            case Code(lines):
                yield from ("", *(f"    {line}" for line in lines))
            case Table(_, rows):
                yield ""
                for term, text in rows:
                    yield from (f"    {term}", *_wrapped(text, 12))
            case _:
                assert_never(block)


def _wrapped(text: str, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(
        text, _COLUMNS, initial_indent=margin, subsequent_indent=margin,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _roff(blocks: Iterable[Block]) -> Iterator[str]:
    yield f'.TH STENO 1 "" "steno {__version__}" "User Commands"\n.nh\n'
    for block in blocks:
        match block:
            case Heading(1, text):
                yield f".SH {_roff_text(text.upper())}\n"
            case Heading(_, text):
                yield f'.SS "{_roff_text(text)}"\n'
            case Paragraph(text):
                yield f".PP\n{_roff_text(text)}\n"
            case Code(lines):
                code = "\n".join(map(_roff_line, lines))
                yield f".PP\n.RS 4\n.nf\n{code}\n.fi\n.RE\n"
            case Table(_, rows):
                yield from (
                    f".TP\n\\fB{_roff_text(term)}\\fR\n{_roff_text(text)}\n" for term, text in rows
                )
            case _:
                assert_never(block)


def _roff_text(text: str) -> str:
    return _CODE.sub(r"\\fB\1\\fR", _roff_line(text))


def _roff_line(line: str) -> str:
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    # A dot or an apostrophe at the beginning of a line would be a request.
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    PLAIN.parent.mkdir(exist_ok=True)
    for path, written in generated().items():
        path.write_text(written)

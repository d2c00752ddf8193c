"""The manual of the command as blocks, from its parsers and the hand-written pages."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from house.parsers import subcommands
from steno_cli.arguments import COMMON
from steno_cli.command_table import ALIASES, GOING_BACK, GROUPS
from steno_cli.exits import MEANINGS
from steno_cli.parser import build_parser
from support.documents import table_rows
from support.project import PROJECT

CONFIGURATION: Final = PROJECT / "client" / "guide" / "configuration.md"


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section; 1 is the largest level."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Prose, with code in backticks."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of a shell, as they are."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Terms, which are code, with their explanations."""

    head: str
    rows: tuple[tuple[str, str], ...]


Block = Heading | Paragraph | Code | Table


def manual() -> list[Block]:
    """The whole manual, in the order of a man page."""
    parser = build_parser()
    blocks: list[Block] = [
        Heading(1, "Name"),
        Paragraph("steno - read and write the sessions of agents"),
        Heading(1, "Synopsis"),
        Code(("steno [OPTIONS] COMMAND ...", "steno help [--all] [COMMAND ...]")),
        Heading(1, "Description"),
        Paragraph(parser.description or ""),
        Paragraph(
            "Data goes to stdout, messages go to stderr; with `--json` both are JSON. SESSION may"
            " be a unique prefix of an id, except for `open` and for `delete` with `--key`."
        ),
    ]
    blocks += [Heading(1, "Going back"), Paragraph(GOING_BACK)]
    for title in GROUPS:
        blocks += [Heading(1, f"Commands: {title}"), *group(parser, title, level=2)]
    return [
        *blocks,
        Heading(1, "Common options"),
        Paragraph("Every command takes these options, before or after its name."),
        common_options(parser),
        Heading(1, "Exit codes"),
        Table("code", tuple((str(code.value), text) for code, text in MEANINGS.items())),
        Heading(1, "Environment"),
        Table("variable", _hand_written("Environment")),
        Heading(1, "Files"),
        Table("file", _hand_written("Files")),
    ]


def group(parser: argparse.ArgumentParser, title: str, *, level: int) -> Iterator[Block]:
    """The commands of one purpose, each with its arguments, options and examples."""
    there = subcommands(parser)
    for name in GROUPS[title]:
        yield from _command(there[name], level)
        for action in subcommands(there[name]).values():
            yield from _command(action, level + 1)


def common_options(parser: argparse.ArgumentParser) -> Table:
    """The options that every command takes."""
    return Table("option", tuple(_rows(parser, is_common=True)))


def names(command: str) -> str:
    """The command as typed, with its aliases."""
    aliases = (alias for alias, meant in ALIASES.items() if meant == command)
    return ", ".join(f"`steno {name}`" for name in (command, *aliases))


def _command(parser: argparse.ArgumentParser, level: int) -> Iterator[Block]:
    yield Heading(level, parser.prog)
    yield Code((_usage(parser),))
    command = parser.prog.removeprefix("steno ")
    also = [f"`steno {alias}`" for alias, meant in ALIASES.items() if meant == command]
    yield Paragraph(" ".join([*(f"Also {each}." for each in also), parser.description or ""]))
    if rows := tuple(_rows(parser, is_common=False)):
        yield Table("argument", rows)
    _, *examples = (parser.epilog or "example:").splitlines()
    if not subcommands(parser):
        yield Paragraph("For example:")
        yield Code(tuple(line.strip() for line in examples))


def _rows(parser: argparse.ArgumentParser, *, is_common: bool) -> Iterator[tuple[str, str]]:
    # argparse has no public access to a parser's arguments.
    for action in parser._actions:
        is_own = not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        if is_own and (action.dest in COMMON) == is_common and action.dest != "version":
            yield _invocation(action), argparse.HelpFormatter("steno")._expand_help(action)


def _usage(parser: argparse.ArgumentParser) -> str:
    shown = [each for each in parser._actions if each.required or not each.option_strings]
    return " ".join([parser.prog, "[OPTIONS]", *map(_invocation, shown)])


def _invocation(action: argparse.Action) -> str:
    """An option with its value, or an argument, as a command line has it."""
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    value: Any = action.metavar
    if value is None:
        choices = ",".join(map(str, action.choices or ()))
        value = f"{{{choices}}}" if choices else action.dest.upper()
    many = {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}
    value = many.get(str(action.nargs), value)
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def _hand_written(heading: str) -> tuple[tuple[str, str], ...]:
    rows = table_rows(CONFIGURATION, heading)
    return tuple((term.replace("`", ""), text) for term, text in rows)

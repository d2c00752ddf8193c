"""The subcommand `completion`: what a shell needs to complete `steno` with Tab.

The scripts beside this module know how; the tables of commands and options come from the command
line itself, so they are never behind it.
"""

import argparse
import shlex
from argparse import Namespace
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from steno.cli.exits import Exit
from steno.cli.parser import build_parser
from steno.cli.render.output import Output

_KINDS: Final = {
    "session": "session",
    "prefix": "session",
    "target": "target",
    "targets": "target",
    "folder": "folder",
}
"""What an argument of this name is completed with."""

# argparse offers no public way to ask a parser what it understands, hence its underscored names.
# pyright: reportPrivateUsage=false


def completion(options: Namespace, output: Output) -> int:
    """Print the script for a shell."""
    script = rendered(options.shell)
    if output.as_json:
        output.document({"shell": options.shell, "script": script})
    else:
        output.raw(script.encode())
    return Exit.DONE


def rendered(shell: str) -> str:
    """The completion script for `bash` or `zsh`."""
    folder = files("steno.cli").joinpath("completions")
    core, front = (folder.joinpath(f"{name}.sh").read_text() for name in ("core", shell))
    first = "#compdef steno\n" if shell == "zsh" else ""
    return "\n".join([first + core, *_tables(build_parser()), front])


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Shell functions with the arguments of each command."""
    commands = dict(_commands(parser, ""))
    yield from _cases("_steno_describe", (
        (name, _description(each)) for name, each in commands.items()
    ))  # fmt: skip
    yield from _cases("_steno_names", (
        (name, _printed(f"{action}\t{summary}" for action, summary in _actions(each)))
        for name, each in commands.items()
        if _subparsers(each)
    ))  # fmt: skip
    yield from _cases("_steno_choices", (
        (word, _printed(choices))
        for name, each in commands.items()
        for word, choices in _choices(name, each)
    ))  # fmt: skip


def _cases(function: str, cases: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield f"{function}() {{\n    case $1 in"
    for word, body in cases:
        yield f"        {shlex.quote(word)}) {body} ;;"
    yield "    esac\n}\n"


def _commands(
    parser: argparse.ArgumentParser, name: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in _subparsers(parser):
        for word, sub in action.choices.items():
            yield from _commands(sub, f"{name} {word}".strip())


def _subparsers(
    parser: argparse.ArgumentParser,
) -> list["argparse._SubParsersAction[argparse.ArgumentParser]"]:
    return [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in _subparsers(parser):
        for each in action._choices_actions:
            yield each.dest, each.help or ""


def _description(parser: argparse.ArgumentParser) -> str:
    """What a command takes: its arguments by kind, and its options without and with a value."""
    options = [each for each in parser._actions if each.option_strings]
    flags = [word for each in options if each.nargs == 0 for word in each.option_strings]
    valued = [word for each in options if each.nargs != 0 for word in each.option_strings]
    kinds = [
        "choice" if each.choices else _KINDS.get(each.dest, "other")
        for each in parser._actions
        if not each.option_strings
    ]
    actions = "yes" if _subparsers(parser) else ""
    return " ".join(
        f"_steno_{name}={shlex.quote(' '.join(words))};"
        for name, words in (
            ("kinds", kinds), ("flags", flags), ("valued", valued), ("actions", [actions]),
        )
    )[:-1]  # fmt: skip


def _choices(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """What options and arguments with a closed list can be."""
    for each in parser._actions:
        if each.choices is None or isinstance(each, argparse._SubParsersAction):
            continue
        words = [str(choice) for choice in each.choices]
        for word in [f"{name} {option}" for option in each.option_strings] or [name]:
            yield word, words


def _printed(lines: Iterator[str] | list[str]) -> str:
    return "printf '%s\\n' " + " ".join(shlex.quote(line) for line in lines)

"""The contents of an argparse parser, for tests of the documents."""

import argparse
from collections.abc import Iterator

# argparse has no public access to a parser's arguments, hence its underscored names.


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each subcommand; an alias is no subcommand of its own."""
    return {
        name: sub
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, sub in action.choices.items()
        if sub.prog.split()[-1] == name
    }


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Every option string of a parser, without those that argparse adds by itself."""
    return {
        option
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS
        for option in action.option_strings
    }


def arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, object]]:
    """Name, help and default of every argument and option; a flag that is off has none."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            default = None if action.nargs == 0 else action.default
            yield action.dest, action.help or "", default


def all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its subcommands, however deep."""
    yield parser
    for sub in subcommands(parser).values():
        yield from all_parsers(sub)


def subcommand_in(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    """The subcommand that a call names: its first word that is no option and no option's value."""
    valued = {
        option
        for action in parser._actions
        if action.nargs != 0
        for option in action.option_strings
    }
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            return word
        is_value = word in valued
    return None

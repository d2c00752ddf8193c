"""The parser of the command line, which imports only the command that is called."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any, Final, NoReturn, cast

from steno_cli.arguments import HelpFormatter, add_command, add_common, is_utf8
from steno_cli.command_table import (
    ALIASES,
    COMMANDS,
    FIRST,
    GOING_BACK,
    GROUPS,
    MODULES,
    RENAMED,
)
from steno_cli.exits import MEANINGS, Exit
from steno_present.safe_text import printable
from steno_protocol import __version__

_CLOSE_MAX: Final = 3
"""Suggestions in an error; more of them would hide its text."""

_LISTED_MAX: Final = 8
"""Choices that an error lists: more of them would hide its text."""

_FLAGS: Final = ("--json", "--help", "--version")
"""The options before a command that take no value; argparse accepts their beginnings."""

_PATHS: Final = frozenset({"root", "socket", "key_file", "output", "folder", "target", "targets"})
"""Arguments that are paths, which need not be UTF-8."""

_COMMON_LINE: Final = "`steno help options` describes the common options, such as --json."

_EXIT_CODES: Final = "exit codes:\n" + "\n".join(
    f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()
)

_MORE: Final = (
    "`steno help --all` lists all commands and the exit codes, `steno help manual` shows the whole"
    " manual."
)


def build_parser(
    words: Sequence[str] | None = None, *, lists_all: bool = False
) -> argparse.ArgumentParser:
    """The command line of `steno`.

    Args:
        words: the words to be parsed; only their command is imported. Without a command, none is
            imported. None imports every command.
        lists_all: its help lists all commands instead of those of the first help.
    """
    parser = _Parser(
        prog="steno",
        usage="steno [OPTIONS] COMMAND ...",
        description="Read and write agent sessions, and manage the daemon that owns them."
        " A command that needs the daemon starts it.",
        epilog=_EXIT_CODES if lists_all else _MORE,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"steno {__version__}")
    # With `prog`, argparse does not format a usage to find it out. The groups list the commands.
    commands = parser.add_subparsers(
        prog="steno", dest="command", metavar="COMMAND", parser_class=_Parser,
        help=argparse.SUPPRESS,
    )  # fmt: skip
    for title, group in (GROUPS if lists_all else FIRST).items():
        rows = [f"{_names(name):<14} {COMMANDS[name]}" for name in group]
        parser.add_argument_group(title, "\n".join(rows))
    if not lists_all:
        parser.add_argument_group("which way back", GOING_BACK)
    add_common(parser, is_top=True)
    called = None if words is None else _called(words)
    for name, summary in COMMANDS.items():
        if words is None or name == called:
            import_module(module_of(name))
            add_command(commands, name)
        elif called is None:
            # Errors suggest one of all commands.
            commands.add_parser(name, help=summary, aliases=_aliases(name))
    return parser


def _names(command: str) -> str:
    """A command and its aliases.

    >>> _names("sessions"), _names("show")
    ('sessions, ls', 'show')
    """
    return ", ".join([command, *_aliases(command)])


def _aliases(command: str) -> list[str]:
    return [alias for alias, meant in ALIASES.items() if meant == command]


def _called(words: Sequence[str]) -> str | None:
    """The command in the words; None if there is none.

    >>> _called(["--root", "demo", "--json", "show", "demo"]), _called(["stats"])
    ('show', 'status')
    """
    words = _renamed(words)
    place = _place_of_command(words)
    name = None if place is None else ALIASES.get(words[place], words[place])
    return name if name in COMMANDS else None


def _renamed(words: Sequence[str]) -> Sequence[str]:
    """The words with the present name of their command.

    >>> _renamed(["--root", "stat", "stat", "demo"])
    ['--root', 'stat', 'info', 'demo']
    """
    place = _place_of_command(words)
    if place is None or words[place] not in RENAMED:
        return words
    return [*words[:place], *RENAMED[words[place]], *words[place + 1 :]]


def _place_of_command(words: Sequence[str]) -> int | None:
    """The index of the first word that is neither an option nor its value."""
    is_value = False
    for place, word in enumerate(words):
        if not is_value and not word.startswith("-"):
            return place
        is_flag = "=" in word or any(flag.startswith(word) for flag in _FLAGS)
        is_value = not is_value and word.startswith("--") and not is_flag
    return None


def module_of(command: str) -> str:
    """The module of a command; `import` is a keyword of Python and gets an underscore.

    >>> module_of("show"), module_of("title"), module_of("import")
    ('steno_cli.commands.show', 'steno_cli.commands.keeping', 'steno_cli.commands.import_')
    """
    name = MODULES.get(command, command)
    return f"steno_cli.commands.{name}{'_' if iskeyword(name) else ''}"


class _Parser(argparse.ArgumentParser):
    """argparse, with an optional last argument after options: `append ID --role user TEXT`.

    Before Python 3.13, argparse regards such an argument as missing after an option.
    """

    def parse_args(  # type: ignore[override]  # the overloads are for namespaces, never passed here
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """As in argparse; a wrong command line ends with SystemExit(2)."""
        words = sys.argv[1:] if args is None else args
        options, rest = self.parse_known_args(_renamed(words), namespace)
        name, read = getattr(options, "late", ("", str))
        if name and getattr(options, name) is None and (word := _take_value(rest)) is not None:
            try:
                setattr(options, name, read(word))
            except argparse.ArgumentTypeError as error:
                self.error(f"argument {name.upper()}: {error}")
        if many := getattr(options, "dashed", ""):
            # argparse regards words of this argument that begin with a dash as unknown options.
            dashed = [word for word in rest if not word.startswith("--")]
            setattr(options, many, [*getattr(options, many), *dashed])
            rest = [word for word in rest if word.startswith("--")]
        if (odd := _not_utf8(options)) is not None:
            self.error(f"argument {odd.upper()}: it is not UTF-8, and only paths may be so")
        if rest:
            odd = " ".join(rest)
            text = f"unrecognized arguments: {odd}; see `steno {options.command} --help`"
            self.exit(Exit.USAGE, f"steno: {printable(text, one_line=True)}\n")
        return options

    def parse_known_args(  # type: ignore[override]  # the overloads are for other namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As in argparse, except that `-5` means `-n 5` where there is a `-n`."""
        words = sys.argv[1:] if args is None else args
        given = argparse.Namespace() if namespace is None else namespace
        return super().parse_known_args([*self._with_counts(words)], given)

    def _with_counts(self, words: Sequence[str]) -> Iterator[str]:
        options = self._option_string_actions
        before = ""
        for word in words:
            is_value = before in options and options[before].nargs != 0
            if "-n" in options and not is_value and word[:1] == "-" and word[1:].isdecimal():
                yield "-n"
                yield word[1:]
            else:
                yield word
            before = word

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Suggest the nearest choice instead of a list of all."""
        if action.choices is None or value in action.choices:
            return
        # Imported here: most words are right.
        from steno_protocol.spelling import close_spellings  # noqa: PLC0415

        choices = [str(each) for each in action.choices]
        close = close_spellings(str(value), choices, _CLOSE_MAX)
        what = "" if action.metavar is None else f"{str(action.metavar).lower()} "
        message = f"there is no {what}{str(value)!r}"
        if close:
            message += f": did you mean {' or '.join(close)}?"
        elif len(choices) <= _LISTED_MAX:
            message += f": choose from {', '.join(choices)}"
        raise argparse.ArgumentError(None if action.metavar else action, message)

    def format_help(self) -> str:
        """As in argparse, with one line for the common options."""
        return f"{super().format_help()}\n{_COMMON_LINE}\n"

    def _print_message(self, message: str, file: Any = None) -> None:
        """As in argparse, which passes over a failure to write, but not for help and version."""
        is_text_asked_for = file is not None and file is sys.stdout
        if not is_text_asked_for:
            super()._print_message(message, file)
            return
        sys.stdout.write(message)
        sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        """Print one line instead of argparse's usage."""
        message = printable(message, one_line=True)
        see = " See" if message.endswith("?") else "; see"
        self.exit(Exit.USAGE, f"steno: {message}{see} `{self.prog} --help`\n")


def _not_utf8(options: argparse.Namespace) -> str | None:
    """The name of an argument that is not valid UTF-8; None if there is none."""
    for name, value in vars(options).items():
        words = cast("list[object]", value) if isinstance(value, list) else [value]
        for word in words if name not in _PATHS else ():
            if isinstance(word, str) and not word.isascii() and not is_utf8(word):
                return name
    return None


def _take_value(rest: list[str]) -> str | None:
    """Remove and return the value at the beginning of `rest`; after `--` any word is a value."""
    if rest[:1] == ["--"] and len(rest) > 1:
        del rest[0]
        return rest.pop(0)
    if rest and (rest[0] == "-" or not rest[0].startswith("-")):
        return rest.pop(0)
    return None

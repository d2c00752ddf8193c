"""The parser of the command line, which imports only the command that is called."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Final, NoReturn, cast

from steno.cli.arguments import HelpFormatter, add_common, is_utf8
from steno.cli.command_table import COMMANDS
from steno.cli.exits import MEANINGS, Exit
from steno_protocol import __version__

_FLAGS: Final = ("--json", "--help", "--version")
"""The options before a command that take no value; argparse accepts their beginnings."""

_PATHS: Final = frozenset({"root", "socket", "key_file", "output", "folder", "target", "targets"})
"""Arguments that are paths, which need not be UTF-8."""

_EPILOG: Final = "exit codes:\n" + "\n".join(
    f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()
)


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The command line of `steno`.

    Args:
        words: the words to be parsed; only their command is imported. Without a command, all
            commands are listed and none is imported. None imports every command.
    """
    parser = _Parser(
        prog="steno",
        description="Read and write agent sessions, and manage the daemon that owns them."
        " A command that needs the daemon starts it.",
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"steno {__version__}")
    add_common(parser, is_top=True)
    # With `prog`, argparse does not format a usage to find it out.
    commands = parser.add_subparsers(
        prog="steno", dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    called = None if words is None else _called(words)
    for name, summary in COMMANDS.items():
        if words is None or name == called:
            import_module(module_of(name)).add_parser(commands)
        elif called is None:
            # Help and errors list all commands.
            commands.add_parser(name, help=summary)
    return parser


def _called(words: Sequence[str]) -> str | None:
    """The command in the words, after options and their values; None if there is none.

    >>> _called(["--root", "demo", "--json", "show", "demo"])
    'show'
    """
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            return word if word in COMMANDS else None
        is_flag = "=" in word or any(flag.startswith(word) for flag in _FLAGS)
        is_value = not is_value and word.startswith("--") and not is_flag
    return None


def module_of(command: str) -> str:
    """The module of a command; `import` is a keyword of Python and gets an underscore.

    >>> module_of("show"), module_of("import")
    ('steno.cli.commands.show', 'steno.cli.commands.import_')
    """
    return f"steno.cli.commands.{command}{'_' if iskeyword(command) else ''}"


class _Parser(argparse.ArgumentParser):
    """argparse, with an optional last argument after options: `append ID --role user TEXT`.

    Before Python 3.13, argparse regards such an argument as missing after an option.
    """

    def parse_args(  # type: ignore[override]  # the overloads are for namespaces, never passed here
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """As in argparse; a wrong command line ends with SystemExit(2)."""
        options, rest = self.parse_known_args(args, namespace)
        name, read = getattr(options, "late", ("", str))
        if name and getattr(options, name) is None and (word := _take_value(rest)) is not None:
            try:
                setattr(options, name, read(word))
            except argparse.ArgumentTypeError as error:
                self.error(f"argument {name.upper()}: {error}")
        if many := getattr(options, "dashed", ""):
            # argparse regards words of this argument that begin with a dash as unknown options.
            getattr(options, many).extend(word for word in rest if not word.startswith("--"))
            rest = [word for word in rest if word.startswith("--")]
        if (odd := _not_utf8(options)) is not None:
            self.error(f"argument {odd.upper()}: it is not UTF-8, and only paths may be so")
        if rest:
            words = " ".join(rest)
            text = f"unrecognized arguments: {words}; see `steno {options.command} --help`"
            self.exit(Exit.USAGE, f"steno: {text}\n")
        return options

    def error(self, message: str) -> NoReturn:
        """Print one line instead of argparse's usage."""
        self.exit(Exit.USAGE, f"steno: {message}; see `{self.prog} --help`\n")


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

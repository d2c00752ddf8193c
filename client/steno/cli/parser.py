"""The command line of `steno`: which subcommands there are, and how their options are read."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Final, NoReturn, cast

from steno.cli.arguments import HelpFormatter, Subcommands, add_common, is_utf8
from steno.cli.exits import MEANINGS, Exit
from steno_protocol import __version__

GROUPS: Final = {
    "reading": ("sessions", "stat", "show", "read", "tail"),
    "searching": ("grep",),
    "writing": ("open", "append", "checkpoint", "revert", "clear", "usage", "prompt"),
    "history": ("timeline", "restore"),
    "branching": ("fork", "undo"),
    "mail": ("dmail",),
    "compaction": ("compact",),
    "keeping": ("title", "label", "archive", "unarchive", "delete"),
    "moving": ("export", "import"),
    "checking": ("verify", "repair"),
    "wire": ("wire", "turns", "replay", "emit"),
    "service": (
        "status", "start", "stop", "restart", "logs", "clients", "config", "stats", "doctor",
        "service", "gc",
    ),
    "access": ("keys",),
    "shell": ("completion",),
    "demonstration": ("demo",),
}  # fmt: skip
"""Each module of `steno.cli.parsers` and the subcommands in it, in the order of `steno --help`."""

_PATHS: Final = frozenset({"root", "socket", "key_file", "output", "folder", "target", "targets"})
"""Arguments that name files, which may have any name."""

_EPILOG: Final = "exit codes:\n" + "\n".join(
    f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()
)


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The command line of `steno`.

    Args:
        words: what it is to read; the subcommands that are not among them are left out, which
            spares half the time, unless there are none or the first word should have been one.
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
    # With `prog` given, argparse need not make a formatter to find it out.
    commands = parser.add_subparsers(
        prog="steno", dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for add in _adders(words):
        add(commands)
    return parser


def _adders(words: Sequence[str]) -> Iterator[Callable[[Subcommands], None]]:
    """What makes each subcommand: `add_<command>` of the module of its group."""
    known = {name for names in GROUPS.values() for name in names}
    # An option of every command may come first, and its value may be called like a command.
    is_wrong = bool(words) and not words[0].startswith("-") and words[0] not in known
    wanted = known if is_wrong else known.intersection(words) or known
    for group, names in GROUPS.items():
        for name in names:
            if name in wanted:
                yield getattr(import_module(f"steno.cli.parsers.{group}"), f"add_{name}")


class _Parser(argparse.ArgumentParser):
    """argparse, but an optional last argument may follow options: `append ID --role user TEXT`.

    Until Python 3.13 argparse takes such an argument for missing once it has met an option.
    """

    def parse_args(  # type: ignore[override]  # its overloads exist for namespaces we never pass
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """As argparse; a wrong command line ends with SystemExit(2)."""
        options, rest = self.parse_known_args(args, namespace)
        name, read = getattr(options, "late", ("", str))
        if name and getattr(options, name) is None and (word := _take_value(rest)) is not None:
            try:
                setattr(options, name, read(word))
            except argparse.ArgumentTypeError as error:
                self.error(f"argument {name.upper()}: {error}")
        if many := getattr(options, "dashed", ""):
            # What argparse takes for unknown options are words of this argument.
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
        """One line instead of argparse's whole usage."""
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
    """Take the value that leads `rest` off it; after `--` anything is one."""
    if rest[:1] == ["--"] and len(rest) > 1:
        del rest[0]
        return rest.pop(0)
    if rest and (rest[0] == "-" or not rest[0].startswith("-")):
        return rest.pop(0)
    return None

"""The parts of command lines: commands, shared arguments and their types."""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from steno.parts import HANDLE_PATTERN
from steno_cli.command_table import ALIASES, COMMANDS
from steno_cli.render.output import Output
from steno_protocol import limits
from steno_protocol.errors import StenoError
from steno_protocol.paths import check_key, check_name, check_stream, endpoints_of
from steno_protocol.positions import Position
from steno_protocol.records import check_role

ReadT = TypeVar("ReadT")

Subcommands = Any
"""The result of `add_subparsers`; argparse does not export its type."""

Handler = Callable[[argparse.Namespace, Output], int]
"""The function that carries out a command: its options in, its exit code out."""


class HelpFormatter(argparse.HelpFormatter):
    """The formatter of argparse with a short usage, without the common options.

    A text of several lines keeps its lines.
    """

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],  # noqa: ARG002  (of argparse)
        prefix: str | None = None,
    ) -> None:
        """Show all optional options as one word."""
        shown = [each for each in actions if each.required or not each.option_strings]
        words = argparse.Action(["OPTIONS"], "", nargs=0)
        super().add_usage(usage, [words, *shown], (), prefix)

    def add_argument(self, action: argparse.Action) -> None:
        """Leave out the common options; `steno help options` describes them."""
        if action.dest not in COMMON:
            super().add_argument(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(f"{indent}{line}".rstrip() for line in text.split("\n"))


def common_options() -> str:
    """The help text of the options that every command takes."""
    parser = argparse.ArgumentParser("steno", usage=argparse.SUPPRESS, add_help=False)
    add_common(parser, is_top=True)
    return parser.format_help()


COMMON: Final = frozenset({"root", "socket", "endpoint", "key_file", "name", "timeout", "json"})
"""The options that every command takes."""


Option = Callable[[Any], Any]
"""Adds an argument, an option or a default to a parser, or to a group of its options."""


class Declared(NamedTuple):
    """A command, or an action of one such as `steno keys list`.

    Attributes:
        summary: one line for the list of the commands or actions.
        more: the rest of its help text.
        options: what its command line has.
        example: one call, or one a line.
        run: the function that carries it out; None if its actions have their own.
        short_help: False leaves `-h` free; `--help` is always there.
    """

    summary: str
    more: str
    options: Sequence[Option]
    example: str
    run: Handler | None
    short_help: bool = True


_DECLARED: Final[dict[str, Declared]] = {}
"""The commands whose modules are imported, and their actions, by name."""


def command(
    name: str, more: str, *options: Option, example: str, short_help: bool = True
) -> Callable[[Handler], Handler]:
    """Declare the command that a function carries out; its summary is in the table of the commands.

    Args:
        name: the name of the command.
        more: the rest of its help text, after the summary; empty for none.
        options: what its command line has.
        example: one call, or one a line.
        short_help: False leaves `-h` free.
    """

    def declare(run: Handler) -> Handler:
        _DECLARED[name] = Declared(COMMANDS[name], more, options, example, run, short_help)
        return run

    return declare


def command_with_actions(name: str, more: str, *, example: str) -> None:
    """Declare a command of which each action has a function of its own."""
    _DECLARED[name] = Declared(COMMANDS[name], more, (), example, None)


def action(
    name: str, summary: str, more: str, *options: Option, example: str
) -> Callable[[Handler], Handler]:
    """Declare the action that a function carries out; `name` is that of the command and its own."""

    def declare(run: Handler) -> Handler:
        _DECLARED[name] = Declared(summary, more, options, example, run)
        return run

    return declare


def add_command(commands: Subcommands, name: str) -> None:
    """Add a command whose module is imported to those of `steno`."""
    aliases = [alias for alias, meant in ALIASES.items() if meant == name]
    parser = _add(commands, name, _DECLARED[name], aliases)
    # Under an alias, argparse would store the alias.
    parser.set_defaults(command=name)
    if _DECLARED[name].run is None:
        # With `prog`, argparse does not take the usage as the beginning of theirs.
        under = parser.add_subparsers(
            prog=parser.prog, dest="action", metavar="ACTION", required=True
        )
        for each, declared in _DECLARED.items():
            if each.startswith(f"{name} "):
                _add(under, each.removeprefix(f"{name} "), declared)


def _add(
    commands: Subcommands, name: str, declared: Declared, aliases: Sequence[str] = ()
) -> argparse.ArgumentParser:
    summary = declared.summary
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        aliases=aliases,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {declared.more}".rstrip(),
        epilog="\n  ".join(["example:", *declared.example.splitlines()]),
        formatter_class=HelpFormatter,
        add_help=declared.short_help,
    )
    if not declared.short_help:
        parser.add_argument("--help", action="help", help="show this help message and exit")
    if declared.run is not None:
        parser.set_defaults(run=declared.run)
    add_common(parser, is_top=False)
    every(*declared.options)(parser)
    return parser


def argument(*names: str, **how: Any) -> Option:
    """An argument or option, with the words of argparse."""
    return lambda parser: parser.add_argument(*names, **how)


def flag(*names: str, **how: Any) -> Option:
    """An option without a value."""
    return argument(*names, action="store_true", **how)


def default(**values: Any) -> Option:
    """Values of options that no user gives."""
    return lambda parser: parser.set_defaults(**values)


def every(*options: Option) -> Option:
    """Several arguments and options that belong together."""

    def add(parser: Any) -> None:
        for option in options:
            option(parser)

    return add


def one_of(*options: Option) -> Option:
    """Options of which a call has at most one."""

    return lambda parser: every(*options)(parser.add_mutually_exclusive_group())


def titled(title: str, *options: Option) -> Option:
    """Options that stand together in the help."""

    return lambda parser: every(*options)(parser.add_argument_group(title))


def _parsed(parse: Callable[[str], ReadT]) -> Callable[[str], ReadT]:
    """The type of what a parser of the protocol reads, whose error is one of the command line."""

    def read(text: str) -> ReadT:
        try:
            return parse(text)
        except StenoError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return read


position = _parsed(Position.parse)
role = _parsed(check_role)
stream_name = _parsed(check_stream)
_key = _parsed(check_key)


def is_utf8(text: str) -> bool:
    r"""Whether UTF-8 can encode a text; undecodable bytes of the shell arrive as surrogates.

    >>> is_utf8("\udcff")
    False
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def title_text(text: str) -> str:
    """The type of a title."""
    if any(character < " " or character == "\x7f" for character in text):
        raise argparse.ArgumentTypeError("a title is one line without control characters")
    return _no_longer(text, limits.TITLE_CHARS_MAX)


def _no_longer(text: str, most: int) -> str:
    if len(text) > most:
        raise argparse.ArgumentTypeError(
            f"it has {len(text)} characters, at most {most} are allowed: make it shorter"
        )
    return text


def path_text(text: str) -> str:
    """The type of a path; an empty one would mean the present folder by accident."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: name one, `.` for the present folder")
    return text


def whole_number(text: str) -> int:
    """The type of a number of at least 0."""
    return number_from(0)(text)


def number_from(least: int) -> Callable[[str], int]:
    """The type of a number of at least `least`."""
    # Python's integers have no bound; those of messages and files have one.
    return between(least, limits.COUNT_MAX)


def between(least: int, most: int) -> Callable[[str], int]:
    """The type of a number from `least` to `most`, both included."""

    end = f"to {most}" if most < limits.COUNT_MAX else f"on, up to {most}"

    def read(text: str) -> int:
        is_short = text.removeprefix("-").isdecimal() and len(text) <= len(str(limits.COUNT_MAX))
        if not (is_short and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {least} {end}")
        return int(text)

    return read


def checkpoint(text: str) -> int | str:
    """The type of a checkpoint's id or handle; the daemon knows which ones exist."""
    try:
        return int(text)
    except ValueError:
        if re.match(HANDLE_PATTERN, text, re.ASCII):
            return text
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is neither the number of a checkpoint, for example 0, nor a handle"
        ) from None


def _checkpoint_or_line(text: str) -> int | str | Position:
    return position(text) if re.fullmatch(r"[0-9]+:[0-9]+", text) else checkpoint(text)


def number_where(is_valid: Callable[[float], bool], message: str) -> Callable[[str], float]:
    """The type of a number that fulfils a condition; in an error, the message follows the text."""

    def checked(text: str) -> float:
        with suppress(ValueError):
            if is_valid(found := float(text)):
                return found
        raise argparse.ArgumentTypeError(f"{text!r} {message}")

    return checked


seconds = number_where(
    lambda found: 0 < found <= limits.REQUEST_TIMEOUT_S_MAX, "is not a number of seconds above 0"
)
days = number_where(lambda found: 0 <= found < 1e6, "is not a number of days")


def add_common(parser: argparse.ArgumentParser, *, is_top: bool) -> None:
    """Add the options that stand before or after the command; the later one counts."""
    group = parser.add_argument_group("options of every command")
    for option in _COMMON_OPTIONS:
        added: argparse.Action = option(group)
        if not is_top:
            # Below the top, a default must not replace an option given before the command.
            added.default = argparse.SUPPRESS


_COMMON_OPTIONS: Final = (
    argument(
        "--root", metavar="DIR", type=path_text,
        help="the folder of the sessions (default: STENO_HOME, or the state folder)",
    ),
    argument(
        "--socket", metavar="PATH", type=path_text,
        help="the daemon's socket (default: STENO_SOCKET, or in the root)",
    ),
    argument(
        "--endpoint", metavar="ADDRESS", type=_parsed(lambda text: ",".join(endpoints_of(text))),
        help="a daemon on another machine, tcp://host:port, or several of a cluster joined by"
        " commas (default: STENO_ENDPOINT)",
    ),
    argument(
        "--key-file", metavar="FILE", type=path_text,
        help="the key file for it, made by `steno keys new` (default: STENO_KEY_FILE)",
    ),
    argument(
        "--name", metavar="NAME", type=_parsed(check_name),
        help="the author of changes, stored in each line as _by (default: the login name)",
    ),
    argument(
        "--timeout", metavar="SECONDS", type=seconds, help="deadline of the command (default: 30)"
    ),
    flag("--json", help="print JSON, including errors"),
)  # fmt: skip


# --- the arguments that several commands have ----------------------------------------------------

session_argument = every(
    argument("session", metavar="SESSION", help="a session id or a unique prefix"),
    default(by_prefix=True),
)
checkpoint_argument = argument(
    "checkpoint", metavar="CHECKPOINT", type=checkpoint,
    help="the id of the checkpoint, or its handle, which is printed with a new one",
)  # fmt: skip
checkpoint_or_line_argument = argument(
    "checkpoint", metavar="CHECKPOINT", type=_checkpoint_or_line,
    help="the id of the checkpoint, its handle, or the position of a line, for example 0:12",
)  # fmt: skip
after_option = argument("--after", metavar="POSITION", type=position, help="start after POSITION")
until_option = argument("--until", metavar="POSITION", type=position, help="stop at POSITION")
span_options = every(after_option, until_option)
follow_option = flag("-f", "--follow", help="print new records as they become durable")
add_user_message_option = flag(
    "--add-user-message", help="also append a user message that names the checkpoint"
)
keep_option = flag("--keep", help="do not remove the temporary folder afterwards")
no_create_option = flag("--no-create", help="fail if the session does not exist")
create_options = every(
    default(makes_root=True),
    one_of(
        flag("--create", help="create the session if it does not exist, in a mount too"),
        no_create_option,
    ),
)
"""For a change that creates a missing session."""

title_option = argument(
    "--title", metavar="TEXT", type=title_text,
    help="the title of the new session (default: derived from SESSION's)",
)  # fmt: skip
why_option = argument(
    "--why", metavar="TEXT", type=partial(_no_longer, most=limits.WHY_CHARS_MAX),
    help="the reason, kept in the timeline",
)  # fmt: skip
expect_option = argument(
    "--expect", metavar="POSITION", type=position, help="fail unless the session's head is POSITION"
)


def optional_argument(name: str, read: Callable[[str], Any], summary: str) -> Option:
    """A last argument that is optional and may follow options."""
    return every(
        argument(name, metavar=name.upper(), nargs="?", type=read, help=summary),
        default(late=(name, read)),
    )


def prefix_argument(summary: str = "only sessions whose id starts with PREFIX") -> Option:
    """PREFIX, which chooses sessions."""
    return optional_argument("prefix", str, summary)


def key_option(more: str = "", *, given: str = "") -> Option:
    """The option --key of a change.

    Args:
        more: a further clause of its help.
        given: the argument without which the command only reads.
    """
    help_text = "idempotency key: a repeated command with the same key is applied once"
    return every(
        default(changes=given or True),
        argument(
            "--key", metavar="KEY", type=_key, help=f"{help_text}; {more}" if more else help_text
        ),
    )


def change_options(key: str = "", *, given: str = "") -> Option:
    """The options of a command that changes a session; the arguments are those of `key_option`."""
    return every(
        key_option(key, given=given),
        expect_option,
        argument(
            "--durability", choices=("synced", "written", "replicated"), default="synced",
            help="when the command returns: synced, on the disk (default), written, in the page"
            " cache, or replicated, on a majority of the cluster's servers",
        ),
    )  # fmt: skip

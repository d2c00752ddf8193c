"""The parts of command lines: commands, shared arguments and their types."""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from steno.parts import HANDLE_PATTERN
from steno_cli.command_table import ALIASES, COMMANDS
from steno_cli.render.output import Output
from steno_protocol import limits
from steno_protocol.errors import StenoError
from steno_protocol.paths import check_key, check_name, check_stream, endpoints_of
from steno_protocol.positions import Position
from steno_protocol.records import check_role

_DURABILITIES: Final = ("synced", "written", "replicated")

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


def command(
    commands: Subcommands,
    name: str,
    run: Handler | None,
    more: str = "",
    *,
    example: str,
    short_help: bool = True,
) -> argparse.ArgumentParser:
    """Add a command; its summary is that of the table of the commands.

    Args:
        commands: the subcommands of `steno`.
        name: the name of the command.
        run: the function that carries it out; None if its actions have their own.
        more: the rest of its help text, after the summary.
        example: one call, or one a line.
        short_help: False leaves `-h` free; `--help` is always there.
    """
    parser = action(
        commands, name, run, COMMANDS[name], more,
        example=example, short_help=short_help,
        aliases=[alias for alias, command in ALIASES.items() if command == name],
    )  # fmt: skip
    # Under an alias, argparse would store the alias.
    parser.set_defaults(command=name)
    return parser


def action(
    commands: Subcommands,
    name: str,
    run: Handler | None,
    summary: str,
    more: str = "",
    *,
    example: str,
    short_help: bool = True,
    aliases: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Add an action of a command, such as `steno keys list`; the arguments are those of `command`.

    Args:
        commands: the actions of the command.
        name: the name of the action.
        run: the function that carries it out.
        summary: one line for the list of the actions.
        more: the rest of its help text.
        example: one call, or one a line.
        short_help: False leaves `-h` free.
        aliases: other names of the action.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        aliases=aliases,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {more}".rstrip(),
        epilog="\n  ".join(["example:", *example.splitlines()]),
        formatter_class=HelpFormatter,
        add_help=short_help,
    )
    if not short_help:
        parser.add_argument("--help", action="help", help="show this help message and exit")
    if run is not None:
        parser.set_defaults(run=run)
    add_common(parser, is_top=False)
    return parser


def actions(parser: argparse.ArgumentParser) -> Subcommands:
    """Let a command have actions; returns the object to which they are added."""
    # With `prog`, argparse does not take the usage as the beginning of theirs.
    return parser.add_subparsers(prog=parser.prog, dest="action", metavar="ACTION", required=True)


def add_common(parser: argparse.ArgumentParser, *, is_top: bool) -> None:
    """Add the options that stand before or after the command; the later one counts."""

    def default(value: object) -> object:
        # Below the top, a default must not replace an option given before the command.
        return value if is_top else argparse.SUPPRESS

    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "--root", metavar="DIR", type=path_text, default=default(None),
        help="the folder of the sessions (default: STENO_HOME, or the state folder)",
    )  # fmt: skip
    group.add_argument(
        "--socket", metavar="PATH", type=path_text, default=default(None),
        help="the daemon's socket (default: STENO_SOCKET, or in the root)",
    )  # fmt: skip
    group.add_argument(
        "--endpoint", metavar="ADDRESS", type=_endpoint, default=default(None),
        help="a daemon on another machine, tcp://host:port, or several of a cluster joined by"
        " commas (default: STENO_ENDPOINT)",
    )  # fmt: skip
    group.add_argument(
        "--key-file", metavar="FILE", type=path_text, default=default(None),
        help="the key file for it, made by `steno keys new` (default: STENO_KEY_FILE)",
    )  # fmt: skip
    group.add_argument(
        "--name", metavar="NAME", type=_name, default=default(None),
        help="the author of changes, stored in each line as _by (default: the login name)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=default(None),
        help="deadline of the command (default: 30)",
    )  # fmt: skip
    group.add_argument(
        "--json", action="store_true", default=default(False), help="print JSON, including errors"
    )


def session_argument(parser: argparse.ArgumentParser, *, by_prefix: bool = True) -> None:
    """Add SESSION, the first argument of most commands.

    Args:
        parser: of the command.
        by_prefix: a unique prefix of an id is accepted; False for a command that creates a session
            of that very id.
    """
    summary = "a session id or a unique prefix" if by_prefix else "the full session id"
    parser.add_argument("session", metavar="SESSION", help=summary)
    parser.set_defaults(by_prefix=by_prefix)


def optional_argument(
    parser: argparse.ArgumentParser, name: str, read: Callable[[str], Any], summary: str
) -> None:
    """Add a last argument that is optional and may follow options."""
    parser.add_argument(name, metavar=name.upper(), nargs="?", type=read, help=summary)
    parser.set_defaults(late=(name, read))


def checkpoint_argument(parser: argparse.ArgumentParser) -> None:
    """Add CHECKPOINT, the id of a checkpoint or its handle."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=checkpoint,
        help="the id of the checkpoint, or its handle, which is printed with a new one",
    )  # fmt: skip


def checkpoint_or_line_argument(parser: argparse.ArgumentParser) -> None:
    """Add CHECKPOINT, the id of a checkpoint, its handle, or the position of a line."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=_checkpoint_or_line,
        help="the id of the checkpoint, its handle, or the position of a line, for example 0:12",
    )  # fmt: skip


def span_options(parser: argparse.ArgumentParser) -> None:
    """Add --after and --until, the ends of a span of a file."""
    parser.add_argument("--after", metavar="POSITION", type=position, help="start after POSITION")
    parser.add_argument("--until", metavar="POSITION", type=position, help="stop at POSITION")


def add_user_message_option(parser: argparse.ArgumentParser) -> None:
    """Add --add-user-message, for a command that creates a checkpoint."""
    parser.add_argument(
        "--add-user-message",
        action="store_true",
        help="also append a user message that names the checkpoint",
    )


def keep_option(parser: argparse.ArgumentParser) -> None:
    """Add --keep, for a demonstration in a temporary folder."""
    parser.add_argument(
        "--keep", action="store_true", help="do not remove the temporary folder afterwards"
    )


def no_create_option(container: Any) -> None:
    """Add --no-create to a parser or a group of options."""
    container.add_argument(
        "--no-create", action="store_true", help="fail if the session does not exist"
    )


def create_options(parser: argparse.ArgumentParser) -> None:
    """Add --create and --no-create, for a change that creates a missing session."""
    parser.set_defaults(makes_root=True)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--create",
        action="store_true",
        help="create the session if it does not exist, in a mount too",
    )
    no_create_option(group)


def title_option(parser: argparse.ArgumentParser) -> None:
    """Add --title, for a command that makes a new session from another one."""
    parser.add_argument(
        "--title",
        metavar="TEXT",
        type=title_text,
        help="the title of the new session (default: derived from SESSION's)",
    )


def key_option(parser: argparse.ArgumentParser) -> None:
    """Add --key alone, for a change without the other options of `change_options`."""
    parser.set_defaults(changes=True)
    _add_key(parser)


def why_option(parser: argparse.ArgumentParser) -> None:
    """Add --why, the reason in the timeline."""
    parser.add_argument("--why", metavar="TEXT", type=_why, help="the reason, kept in the timeline")


def change_options(
    parser: argparse.ArgumentParser, key: str = "", *, given: str = "", durable: bool = False
) -> None:
    """Add the options of a command that changes a session: --key, --expect and --durability.

    Args:
        parser: of the command.
        key: a further clause for the help of --key.
        given: the argument without which the command only reads.
        durable: the change is always synced, so that there is no --durability.
    """
    parser.set_defaults(changes=given or True)
    _add_key(parser, f"; {key}" if key else "")
    parser.add_argument(
        "--expect", metavar="POSITION", type=position,
        help="fail unless the session's head is POSITION",
    )  # fmt: skip
    if durable:
        return
    parser.add_argument(
        "--durability", choices=_DURABILITIES, default="synced",
        help="when the command returns: synced, on the disk (default), written, in the page cache,"
        " or replicated, on a majority of the cluster's servers",
    )  # fmt: skip


def _add_key(parser: argparse.ArgumentParser, more: str = "") -> None:
    parser.add_argument(
        "--key", metavar="KEY", type=_key,
        help=f"idempotency key: a repeated command with the same key is applied once{more}",
    )  # fmt: skip


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
_endpoint = _parsed(lambda text: ",".join(endpoints_of(text)))
_key = _parsed(check_key)
_name = _parsed(check_name)


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


def _why(text: str) -> str:
    return _no_longer(text, limits.WHY_CHARS_MAX)


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
    """The type of what a revert drops first."""
    return position(text) if re.fullmatch(r"[0-9]+:[0-9]+", text) else checkpoint(text)


def seconds(text: str) -> float:
    """The type of a time span above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= limits.REQUEST_TIMEOUT_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def days(text: str) -> float:
    """The type of a number of days, 0 included."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days")
    return found

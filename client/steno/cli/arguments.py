"""What the command lines are built from: a subcommand, shared arguments, and their types."""

import argparse
from collections.abc import Callable
from typing import Any, Final, TypeVar

from steno_protocol import limits
from steno_protocol.errors import StenoError
from steno_protocol.paths import check_endpoint, check_key, check_name
from steno_protocol.positions import Position

_DURABILITIES: Final = ("synced", "written")

ReadT = TypeVar("ReadT")

Subcommands = Any
"""What `add_subparsers` returns; argparse keeps its type to itself."""


class HelpFormatter(argparse.HelpFormatter):
    """argparse's, but the indented lines of an epilog stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        first, *rest = text.split("\n")
        return "\n".join([super()._fill_text(first, width, indent), *rest])


def command(
    commands: Subcommands,
    name: str,
    handler: str,
    summary: str,
    more: str = "",
    *,
    example: str,
    short_help: bool = True,
) -> argparse.ArgumentParser:
    """Add a subcommand.

    Args:
        commands: where to.
        name: how it is called.
        handler: what carries it out, `module:function` below `steno.cli`; empty when its own
            subcommands do.
        summary: what it does, for the list of all commands.
        more: what else its own help says.
        example: one call, or one a line.
        short_help: False leaves `-h` free; `--help` is always there.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {more}".rstrip(),
        epilog="\n  ".join(["example:", *example.splitlines()]),
        formatter_class=HelpFormatter,
        add_help=short_help,
    )
    if not short_help:
        parser.add_argument("--help", action="help", help="show this help message and exit")
    if handler:
        parser.set_defaults(handler=handler)
    add_common(parser, is_top=False)
    return parser


def actions(parser: argparse.ArgumentParser) -> Subcommands:
    """What the subcommands of a subcommand are added to."""
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def add_common(parser: argparse.ArgumentParser, *, is_top: bool) -> None:
    """Options that stand before or after the subcommand; the later one counts."""

    def default(value: object) -> object:
        # Below the top an option that is not given must not undo one that was given before it.
        return value if is_top else argparse.SUPPRESS

    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "--root", metavar="DIR", type=place, default=default(None),
        help="the folder of the sessions (default: STENO_HOME, or the state folder)",
    )  # fmt: skip
    group.add_argument(
        "--socket", metavar="PATH", type=place, default=default(None),
        help="the daemon's socket (default: STENO_SOCKET, or in the root)",
    )  # fmt: skip
    group.add_argument(
        "--endpoint", metavar="ADDRESS", type=_endpoint, default=default(None),
        help="a daemon on another machine, tcp://host:port (default: STENO_ENDPOINT)",
    )  # fmt: skip
    group.add_argument(
        "--key-file", metavar="FILE", type=place, default=default(None),
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
    """SESSION, the first argument of most commands.

    Args:
        parser: of the command.
        by_prefix: the beginning of an id will do when it is that of one session only; not for what
            creates a session of that very id.
    """
    summary = "a session id or a unique prefix" if by_prefix else "the full session id"
    parser.add_argument("session", metavar="SESSION", help=summary)
    parser.set_defaults(by_prefix=by_prefix)


def optional_argument(
    parser: argparse.ArgumentParser, name: str, read: Callable[[str], Any], summary: str
) -> None:
    """A last argument that may be left out, and may follow options."""
    parser.add_argument(name, metavar=name.upper(), nargs="?", type=read, help=summary)
    parser.set_defaults(late=(name, read))


def no_create(parser: argparse.ArgumentParser) -> None:
    """--no-create, for what makes a session that is missing."""
    parser.set_defaults(makes_root=True)
    parser.add_argument(
        "--no-create", action="store_true", help="fail if the session does not exist"
    )


def create(parser: argparse.ArgumentParser) -> None:
    """--create and --no-create, for a change that makes its session if that is missing."""
    parser.set_defaults(makes_root=True)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--create",
        action="store_true",
        help="create the session if it does not exist, in a mount too",
    )
    group.add_argument(
        "--no-create", action="store_true", help="fail if the session does not exist"
    )


def title(parser: argparse.ArgumentParser) -> None:
    """--title, for what makes a session of another one."""
    parser.add_argument(
        "--title",
        metavar="TEXT",
        type=title_text,
        help="the title of the new session (default: derived from SESSION's)",
    )


def key(parser: argparse.ArgumentParser) -> None:
    """--key alone, for a change that has no other option of `mutation`."""
    parser.set_defaults(changes=True)
    _add_key(parser)


def why(parser: argparse.ArgumentParser) -> None:
    """Add --why, the reason in the timeline."""
    parser.add_argument("--why", metavar="TEXT", type=_why, help="the reason, kept in the timeline")


def mutation(
    parser: argparse.ArgumentParser, key: str = "", *, given: str = "", durable: bool = False
) -> None:
    """The options of what changes a session.

    Args:
        parser: of the command.
        key: what else there is to say about --key.
        given: the argument without which the command only looks.
        durable: it is always synced, so there is no --durability.
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
        help="when the command returns: synced, on the disk (default), or written, in the page"
        " cache",
    )  # fmt: skip


def _add_key(parser: argparse.ArgumentParser, more: str = "") -> None:
    parser.add_argument(
        "--key", metavar="KEY", type=_key,
        help=f"idempotency key: a repeated command with the same key is applied once{more}",
    )  # fmt: skip


def position(text: str) -> Position:
    """The type of a position."""
    return _read(Position.parse, text)


def is_utf8(text: str) -> bool:
    r"""Whether UTF-8 can hold a text; bytes of another encoding come from the shell as surrogates.

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


def place(text: str) -> str:
    """The type of a path: an empty one would be the folder that one happens to be in."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: name one, `.` for the present folder")
    return text


def _endpoint(text: str) -> str:
    return _read(check_endpoint, text)


def _name(text: str) -> str:
    return _read(check_name, text)


def _key(text: str) -> str:
    return _read(check_key, text)


def _read(parse: Callable[[str], ReadT], text: str) -> ReadT:
    """What the protocol's own parser makes of `text`, its refusal as one of the command line."""
    try:
        return parse(text)
    except StenoError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def count(text: str) -> int:
    """The type of a number from 0 on."""
    return number_from(0)(text)


def number_from(least: int) -> Callable[[str], int]:
    """The type of a number that is not below `least`."""

    def read(text: str) -> int:
        # Python counts further than any message or file does.
        is_short = text.removeprefix("-").isdecimal() and len(text) <= len(str(limits.COUNT_MAX))
        value = int(text) if is_short else least - 1
        if not least <= value <= limits.COUNT_MAX:
            raise argparse.ArgumentTypeError(
                f"{text[:40]!r} is not a number from {least} on, up to {limits.COUNT_MAX}"
            )
        return value

    return read


def checkpoint_id(text: str) -> int:
    """The type of a checkpoint's id; which ids there are, the daemon says."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not the number of a checkpoint, for example 0"
        ) from None


def seconds(text: str) -> float:
    """The type of a time span that takes time."""
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


def between(text: str, least: int, most: int) -> int:
    """A number with bounds, both within."""
    if not (text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
    return int(text)

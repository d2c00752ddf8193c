"""The command line of `steno`: subcommands, options, and which function carries each out."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from steno.cli.exits import MEANINGS, Exit
from steno_protocol import __version__
from steno_protocol.errors import StenoError
from steno_protocol.limits import REPLAY_PAUSE_S_MAX
from steno_protocol.places import check_name
from steno_protocol.positions import Position

_ROLES: Final = ("user", "assistant", "system", "tool")
_DURABILITIES: Final = ("synced", "written")

_EPILOG: Final = "exit codes:\n" + "\n".join(
    f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()
)

_Subcommands = Any
"""What `add_subparsers` returns; argparse keeps its type to itself."""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The command line of `steno`.

    Args:
        only: the one subcommand that is asked for, which spares the time to make the others; a
            word that names none gets them all.
    """
    parser = _Parser(
        prog="steno",
        description="Read and write agent sessions, and look after the daemon that owns them."
        " A daemon is started when a command needs one and none runs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"steno {__version__}")
    _add_common(parser, is_top=True)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    adders = {add.__name__.removeprefix("_add_"): add for add in _adders()}
    for add in [adders[only]] if only in adders else adders.values():
        add(commands)
    return parser


def _adders() -> tuple[Callable[[_Subcommands], None], ...]:
    """What makes each subcommand, in the order of `steno --help`."""
    return (
        _add_sessions, _add_show, _add_read, _add_tail,
        _add_append, _add_checkpoint, _add_revert, _add_clear, _add_usage, _add_prompt,
        _add_timeline, _add_restore, _add_wire, _add_replay, _add_emit,
        _add_status, _add_start, _add_stop, _add_restart, _add_logs, _add_clients, _add_demo,
    )  # fmt: skip


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
        if rest:
            words = " ".join(rest)
            told = f"unrecognized arguments: {words}; see `steno {options.command} --help`"
            self.exit(Exit.USAGE, f"steno: {told}\n")
        return options

    def error(self, message: str) -> NoReturn:
        """One line instead of argparse's whole usage."""
        self.exit(Exit.USAGE, f"steno: {message}; see `{self.prog} --help`\n")


# --- reading -------------------------------------------------------------------------------------


def _add_sessions(commands: _Subcommands) -> None:
    parser = _command(commands, "sessions", "reading:sessions", "list the sessions")
    _optional(parser, "prefix", str, "of their ids")


def _add_show(commands: _Subcommands) -> None:
    parser = _command(
        commands, "show", "showing:show", "show a conversation to a person",
        "Messages, tool calls and their results, checkpoints and token counts in order. Thoughts"
        " and long results are folded, images are named by type and size.",
    )  # fmt: skip
    _session(parser)
    past = parser.add_mutually_exclusive_group()
    past.add_argument(
        "--at", metavar="POSITION", type=_position, help="show what there was before a position"
    )
    past.add_argument(
        "--generation", metavar="N", type=_count, help="show a generation that was left behind"
    )
    past.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on"
    )
    parser.add_argument("--full", action="store_true", help="fold nothing")


def _add_read(commands: _Subcommands) -> None:
    parser = _command(
        commands, "read", "reading:read", "print records as they lie in the file",
        "Lines that are no records are passed over and counted on stderr.",
    )  # fmt: skip
    _session(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--after", metavar="POSITION", type=_position, help="begin here")
    start.add_argument("--generation", metavar="N", type=_count, help="read all of a generation")
    parser.add_argument("--until", metavar="POSITION", type=_position, help="end here")
    parser.add_argument(
        "--strict", action="store_true", help="fail at the first line that is no record"
    )


def _add_tail(commands: _Subcommands) -> None:
    parser = _command(
        commands, "tail", "reading:tail", "print the last records",
        "With -f it goes on with each record once it is durable, without gap or duplicate, across"
        " rewrites and restarts of the daemon.",
    )  # fmt: skip
    _session(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-n", "--lines", metavar="N", type=_count, default=10, help="(default: 10)")
    start.add_argument("--after", metavar="POSITION", type=_position, help="begin here")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on"
    )
    parser.add_argument(
        "--wire", action="store_const", dest="handler", const="events:tail",
        default="reading:tail", help="the events of the wire file, not the records",
    )  # fmt: skip


# --- writing -------------------------------------------------------------------------------------


def _add_append(commands: _Subcommands) -> None:
    parser = _command(
        commands, "append", "writing:append", "append messages",
        "Appends TEXT as one message, or the records on stdin, one JSON object a line. Prints the"
        " head of the session once they are durable. Creates the session if there is none.",
    )  # fmt: skip
    _session(parser)
    _optional(parser, "text", str, "the content of one message")
    parser.add_argument("--role", choices=_ROLES, help="of that message (default: user)")
    parser.add_argument(
        "--batch", action="store_true", help="append all of stdin as one atomic batch"
    )
    _no_create(parser)
    _mutation(parser, key="of stdin, line N gets KEY-N unless it is a --batch")


def _add_checkpoint(commands: _Subcommands) -> None:
    parser = _command(
        commands, "checkpoint", "writing:checkpoint", "mark a place to come back to; prints its id"
    )
    _session(parser)
    parser.add_argument(
        "--add-user-message", action="store_true", help="let the model see the checkpoint, too"
    )
    _no_create(parser)
    _mutation(parser)


def _add_revert(commands: _Subcommands) -> None:
    parser = _command(
        commands, "revert", "writing:revert", "drop a checkpoint and all that follows it",
        "Prints the new head. What is dropped stays in a file beside the session's own and can be"
        " brought back with `steno restore`.",
    )  # fmt: skip
    _session(parser)
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=int, help="its id")
    _why(parser)
    _mutation(parser)


def _add_clear(commands: _Subcommands) -> None:
    parser = _command(
        commands, "clear", "writing:clear", "drop everything, the system prompt too",
        "Prints the new head. What is dropped stays in a file beside the session's own and can be"
        " brought back with `steno restore`.",
    )  # fmt: skip
    _session(parser)
    _why(parser)
    _mutation(parser)


def _add_usage(commands: _Subcommands) -> None:
    parser = _command(
        commands, "usage", "writing:usage", "show the token counts, or append one",
        "With TOKENS it appends a token count; without, it prints those that were told.",
    )  # fmt: skip
    _session(parser)
    _optional(parser, "tokens", _count, "how many tokens the context has")
    _mutation(parser)


def _add_prompt(commands: _Subcommands) -> None:
    parser = _command(
        commands, "prompt", "writing:prompt", "show the system prompt, or put one first",
        "With TEXT (or - for stdin) it writes the system prompt, on a session with content by a"
        " rewrite; without, it prints the present one.",
    )  # fmt: skip
    _session(parser)
    _optional(parser, "text", str, "the prompt, or - for stdin")
    _no_create(parser)
    _mutation(parser)


def _add_restore(commands: _Subcommands) -> None:
    parser = _command(
        commands, "restore", "writing:restore", "bring back a generation that was left behind",
        "What is there now is left behind in its turn, so a restore can be undone.",
    )  # fmt: skip
    _session(parser)
    parser.add_argument("generation", metavar="GENERATION", type=_count)
    _why(parser)
    _mutation(parser)


def _add_timeline(commands: _Subcommands) -> None:
    parser = _command(
        commands, "timeline", "history:timeline", "draw what ever happened to a session",
        "A tree of its generations: what each rewrite kept and left behind, by whom, when and why.",
    )  # fmt: skip
    _session(parser)


# --- the wire file -------------------------------------------------------------------------------


def _add_wire(commands: _Subcommands) -> None:
    parser = _command(
        commands, "wire", "events:wire", "list the events of a session's wire file",
        "Position, time, type and payload, one event a line. Lines that are no events are passed"
        " over and counted on stderr.",
    )  # fmt: skip
    _session(parser)
    _wire_span(parser)


def _add_replay(commands: _Subcommands) -> None:
    parser = _command(
        commands, "replay", "events:replay", "list the events with the pauses between them",
        f"A pause longer than {REPLAY_PAUSE_S_MAX:g} s is cut to that.",
    )  # fmt: skip
    _session(parser)
    _wire_span(parser)
    parser.add_argument(
        "--speed", metavar="N", type=_speed, default=1.0,
        help="so many times as fast; 0 waits for nothing (default: 1)",
    )  # fmt: skip


def _add_emit(commands: _Subcommands) -> None:
    parser = _command(
        commands, "emit", "writing:emit", "append an event to a session's wire file",
        "Prints the head of the wire file once the event is durable. Creates the session if there"
        " is none.",
    )  # fmt: skip
    _session(parser)
    parser.add_argument("type", metavar="TYPE", help="what kind of event it is")
    _optional(parser, "payload", str, "a JSON object, or - for stdin (default: {})")
    parser.add_argument(
        "--timestamp", metavar="SECONDS", type=float, help="when it was, Unix time (default: now)"
    )
    _no_create(parser)
    _mutation(parser)


def _wire_span(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--after", metavar="POSITION", type=_position, help="begin here")
    parser.add_argument("--until", metavar="POSITION", type=_position, help="end here")


# --- the daemon ----------------------------------------------------------------------------------


def _add_status(commands: _Subcommands) -> None:
    _command(commands, "status", "service:status", "say how the daemon is; starts none")


def _add_start(commands: _Subcommands) -> None:
    _command(
        commands, "start", "service:start", "start the daemon and print where it listens",
        "Prints the address, also when the daemon runs already.",
    )  # fmt: skip


def _add_stop(commands: _Subcommands) -> None:
    _command(
        commands, "stop", "service:stop", "let the daemon finish what is queued, and end",
        "Returns when everything is on the disk and the root is free for another daemon.",
    )  # fmt: skip


def _add_restart(commands: _Subcommands) -> None:
    _command(commands, "restart", "service:restart", "stop the daemon and start it again")


def _add_logs(commands: _Subcommands) -> None:
    parser = _command(commands, "logs", "logs:logs", "print the daemon's log; starts none")
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="the last N lines only")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on"
    )


def _add_clients(commands: _Subcommands) -> None:
    parser = _command(commands, "clients", "service:clients", "say who is connected; starts none")
    _optional(parser, "session", str, "only those who follow this one")


def _add_demo(commands: _Subcommands) -> None:
    parser = _command(
        commands, "demo", "demo:demo", "see the main job done, and proved from the file",
        "Several processes write one session at once while another follows it; the daemon is"
        " killed in the middle. Then the file itself has to show that every acknowledged record"
        " is there exactly once and in order. Without --root it takes a throwaway folder.",
    )  # fmt: skip
    parser.add_argument(
        "--agents", metavar="N", type=_agents, default=4, help="processes (default: 4)"
    )
    parser.add_argument(
        "--turns", metavar="N", type=_turns, default=300, help="of each (default: 300)"
    )


# --- parts ---------------------------------------------------------------------------------------


def _command(
    commands: _Subcommands, name: str, handler: str, summary: str, more: str = ""
) -> argparse.ArgumentParser:
    described = f"{summary[0].upper()}{summary[1:]}. {more}"
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=described)
    parser.set_defaults(handler=handler)
    _add_common(parser, is_top=False)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, is_top: bool) -> None:
    """Options that stand before or after the subcommand; the later one counts."""

    def default(value: object) -> object:
        # Below the top an option that is not given must not undo one that was given before it.
        return value if is_top else argparse.SUPPRESS

    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "--root", metavar="DIR", default=default(None),
        help="the folder that holds the sessions (default: STENO_HOME, or the state folder)",
    )  # fmt: skip
    group.add_argument(
        "--socket", metavar="PATH", default=default(None),
        help="where the daemon listens (default: STENO_SOCKET, or in the root)",
    )  # fmt: skip
    group.add_argument(
        "--name", metavar="NAME", type=_name, default=default(None),
        help="who writes, kept in each line as _by (default: the login name)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, default=default(None),
        help="give up after this long (default: 30)",
    )  # fmt: skip
    group.add_argument(
        "--json", action="store_true", default=default(False), help="write JSON, also of errors"
    )


def _session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="the id of a session")


def _optional(
    parser: argparse.ArgumentParser, name: str, read: Callable[[str], Any], summary: str
) -> None:
    parser.add_argument(name, metavar=name.upper(), nargs="?", type=read, help=summary)
    parser.set_defaults(late=(name, read))


def _no_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-create", action="store_true", help="refuse when there is no such session"
    )


def _why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--why", metavar="TEXT", help="the reason, kept in the timeline")


def _mutation(parser: argparse.ArgumentParser, key: str = "") -> None:
    more = f"; {key}" if key else ""
    parser.add_argument(
        "--key", metavar="KEY", help=f"names this command: sent again it is applied once{more}"
    )
    parser.add_argument(
        "--expect", metavar="POSITION", type=_position,
        help="refuse unless the session ends here",
    )  # fmt: skip
    parser.add_argument(
        "--durability", choices=_DURABILITIES, default="synced",
        help="what is true when the command returns: synced, on the disk (default); written, in"
        " the page cache",
    )  # fmt: skip


def _position(text: str) -> Position:
    try:
        return Position.parse(text)
    except StenoError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _name(text: str) -> str:
    try:
        return check_name(text)
    except StenoError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _speed(text: str) -> float:
    return 0.0 if text == "0" else _seconds(text)


def _agents(text: str) -> int:
    return _between(text, 1, 32)


def _turns(text: str) -> int:
    return _between(text, 10, 100_000)


def _take_value(rest: list[str]) -> str | None:
    """Take the value that leads `rest` off it; after `--` anything is one."""
    if rest[:1] == ["--"] and len(rest) > 1:
        del rest[0]
        return rest.pop(0)
    if rest and (rest[0] == "-" or not rest[0].startswith("-")):
        return rest.pop(0)
    return None


def _between(text: str, least: int, most: int) -> int:
    if not (text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
    return int(text)

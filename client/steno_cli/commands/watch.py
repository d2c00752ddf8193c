"""`steno watch`: the transcripts of other agents, followed until a signal."""

import signal
from argparse import Namespace
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from steno_cli.arguments import argument, command, default, path_text
from steno_cli.connection import connected, own_root
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_follow.watch import Begun, watch
from steno_follow.watching import Seen
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, size

_NOWHERE: Final = "none of the folders that agents write is there yet"


class _Ended(BaseException):
    """A signal came. Whatever it interrupts, the next watcher finds and completes."""


@command(
    "watch",
    "Imports each transcript of another agent below PATH and follows it: what its program adds"
    " is in steno seconds later. Without PATH, the folders of Claude Code, Codex, Gemini CLI,"
    " Copilot CLI, Kimi Code, pi and Qwen Code, and opencode's database. The files are only"
    " read. A line is printed for each session that begins or grows. The command may be killed"
    " at any time: the next one goes on where it was. The root must be on this machine.",
    argument(
        "paths", metavar="PATH", type=path_text, nargs="*",
        help="a folder, or one transcript",
    ),
    default(changes=True, makes_root=True),
    example="steno watch\nsteno watch ~/.claude/projects",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Follow the files until SIGINT or SIGTERM, which are its regular end.

    Raises:
        BrokenPipeError: the reader of stdout has gone.
    """
    try:
        with _ended_by_signals(), connected(options) as client:
            events = watch(client, own_root(client), [Path(each) for each in options.paths])
            with closing(events):
                for event in events:
                    _print(event, output)
    except _Ended:
        return Exit.DONE
    raise AssertionError("the watch ends by a signal only")


@contextmanager
def _ended_by_signals() -> Generator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise _Ended

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _print(event: Begun | Seen | str | None, output: Output) -> None:
    match event:
        case None:
            output.flush()
            if not output.has_reader:
                raise BrokenPipeError
        case str():
            output.say(event)
        case Begun(files, complete, places):
            where = ", ".join(map(str, places)) or _NOWHERE
            output.say(f"watching {count(files, 'file')} ({complete} complete) in {where}")
        case Seen():
            _print_seen(event, output)


def _print_seen(seen: Seen, output: Output) -> None:
    if output.as_json:
        output.document(contract.watched(
            seen.session, seen.path, seen.state, seen.file_bytes, seen.messages
        ))  # fmt: skip
    elif seen.state == "left_out":
        output.say(f"{seen.path} is left out: {', '.join(seen.notes)}")
        return
    elif seen.state == "grown":
        added = f"+{count(seen.messages, 'record')}, {size(seen.file_bytes)}"
        output.write(printable(f"{seen.session}  {added}"))
    else:
        output.write(printable(f"{seen.session}  {seen.state}: {seen.path}"))
    for note in seen.notes:
        output.say(note)

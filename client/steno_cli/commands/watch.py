"""`steno watch`: the transcripts of other agents, followed until a signal."""

import os
import signal
import tempfile
import time
from argparse import Namespace
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

from steno_agents.opencode import DATABASE
from steno_agents.places import database_of, places_of
from steno_cli.arguments import Subcommands, command, path_text
from steno_cli.connection import connected, own_root
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_follow.file_watch import FileWatch
from steno_follow.inotify import Inotify
from steno_follow.limits import WATCH_RESCAN_S
from steno_follow.masking import writing_redactor
from steno_follow.opencode_mirror import DatabaseMirror
from steno_follow.source_tree import database_at
from steno_follow.watching import AWAY, Seen, Watcher
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, size
from steno_protocol import paths


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "watch", run,
        "Imports each transcript of another agent below PATH and follows it: what its program adds"
        " is in steno seconds later. Without PATH, the folders of Claude Code, Codex, Gemini CLI,"
        " Copilot CLI, Kimi Code, pi and Qwen Code, and opencode's database. The files are only"
        " read. A line is printed for each session that begins or grows. The command may be killed"
        " at any time: the next one goes on where it was. The root must be on this machine.",
        example="steno watch\nsteno watch ~/.claude/projects",
    )  # fmt: skip
    parser.add_argument(
        "paths", metavar="PATH", type=path_text, nargs="*", help="a folder, or one transcript"
    )
    parser.set_defaults(changes=True, makes_root=True)


class _Ended(BaseException):
    """A signal came. Whatever it interrupts, the next watcher finds and completes."""


def run(options: Namespace, output: Output) -> int:
    """Follow the files until SIGINT or SIGTERM, which are its regular end."""
    places, databases = _places([Path(each) for each in options.paths])
    try:
        with (
            _ended_by_signals(),
            tempfile.TemporaryDirectory(prefix="steno-") as aside,
            closing(Inotify()) as notes,
            connected(options) as client,
        ):
            mirrors = list(_mirrors(databases, Path(aside)))
            mirrored = {each.folder: each.database for each in mirrors}
            tree = own_root(client) / paths.SESSIONS
            with closing(FileWatch(places, mirrored)) as watch:
                redactor_for = writing_redactor(tree.parent)
                watcher = Watcher(client, tree, redactor_for, watch, mirrors=mirrors)
                _watch(watcher, watch, notes, output)
    except _Ended:
        return Exit.DONE
    raise AssertionError("the watch ends by a signal only")


def _places(given: list[Path]) -> tuple[list[Path], list[Path]]:
    """The folders and files to watch, and the databases."""
    if not given:
        home = Path.home()
        places = [Path(each) for each in places_of(home, os.environ)]
        return places, [Path(database_of(home, os.environ)).resolve()]
    databases = {each: database_at(each, DATABASE) for each in given}
    found = [each.resolve() for each in databases.values() if each is not None]
    return [each for each in given if databases[each] is None], found


def _mirrors(databases: list[Path], aside: Path) -> Iterator[DatabaseMirror]:
    for number, database in enumerate(databases):
        folder = aside / str(number)
        folder.mkdir(mode=0o700)
        yield DatabaseMirror(database, folder)


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


def _watch(watcher: Watcher, watch: FileWatch, notes: Inotify, output: Output) -> None:
    """Look and work by turns.

    Raises:
        BrokenPipeError: the reader of stdout has gone.
    """
    is_away, looked_at = False, time.monotonic()
    watcher.look()
    _print_begin(watcher, watch, output)
    while True:
        for folder in watch.new_folders:
            notes.add(Path(folder))
        for path, why in watch.left_out:
            output.say(f"{path} is left out: {why}")
        is_away = _work(watcher, output, is_away=is_away)
        output.flush()
        if not output.has_reader:
            raise BrokenPipeError
        rest_s = max(0.0, looked_at + WATCH_RESCAN_S - time.monotonic())
        if is_away:
            time.sleep(rest_s)
        changed = notes.wait(0 if is_away else min(rest_s, watcher.pause_s(rest_s)))
        if time.monotonic() >= looked_at + WATCH_RESCAN_S:
            looked_at = time.monotonic()
            watcher.look()
        else:
            watcher.look(changed)


def _work(watcher: Watcher, output: Output, *, is_away: bool) -> bool:
    """Bring files up to their ends; returns whether the daemon is away."""
    try:
        for seen in watcher.work():
            _print_seen(seen, output)
    except AWAY as error:
        if not is_away:
            output.say(f"{error.message}: the watch waits for the daemon, and nothing is lost")
        return True
    if is_away:
        output.say("the daemon is there again")
    return False


def _print_begin(watcher: Watcher, watch: FileWatch, output: Output) -> None:
    files = count(len(watch.files), "file")
    places = [*watch.tops, *watcher.databases]
    where = ", ".join(map(str, places)) or "none of the folders that agents write is there yet"
    output.say(f"watching {files} ({watcher.idle} complete) in {where}")


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

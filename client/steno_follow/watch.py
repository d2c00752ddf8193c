"""Places that are watched until a signal: looks, waits and work by turns."""

import os
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from steno import BlockingClient
from steno_agents.opencode import DATABASE
from steno_agents.places import database_of, places_of
from steno_follow.file_watch import FileWatch
from steno_follow.inotify import Inotify
from steno_follow.limits import WATCH_RESCAN_S
from steno_follow.masking import writing_redactor
from steno_follow.opencode_mirror import DatabaseMirror
from steno_follow.source_tree import database_at
from steno_follow.watching import AWAY, Seen, Watcher
from steno_protocol import paths


@dataclass(frozen=True, slots=True)
class Begun:
    """A watch has begun.

    Attributes:
        files: the number of files that are there.
        complete: how many of them are sessions up to their ends.
        places: the folders, files and databases that are there.
    """

    files: int
    complete: int
    places: Sequence[Path]


def watch(
    client: BlockingClient, root: Path, given: Sequence[Path]
) -> Generator[Begun | Seen | str | None]:
    """Follow the transcripts of other agents without end.

    Args:
        client: of the daemon of the root.
        root: a root on this machine.
        given: folders, files and databases; the places of all known programs if empty.

    Yields:
        What was done, what there is to say, and None whenever nothing is due.

    Raises:
        BadRequest: the patterns of the root's masks are not valid.
        StenoError: the daemon refused a request that is about no file.
    """
    places, databases = _places(given)
    with tempfile.TemporaryDirectory(prefix="steno-") as aside, closing(Inotify()) as notes:
        mirrors = list(_mirrors(databases, Path(aside)))
        mirrored = {each.folder: each.database for each in mirrors}
        with closing(FileWatch(places, mirrored)) as files:
            redactor_for = writing_redactor(root)
            watcher = Watcher(client, root / paths.SESSIONS, redactor_for, files, mirrors=mirrors)
            yield from _watched(watcher, files, notes)


def _places(given: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The folders and files to watch, and the databases."""
    if not given:
        home = Path.home()
        places = [Path(each) for each in places_of(home, os.environ)]
        return places, [Path(database_of(home, os.environ)).resolve()]
    databases = {each: database_at(each, DATABASE) for each in given}
    found = [each.resolve() for each in databases.values() if each is not None]
    return [each for each in given if databases[each] is None], found


def _mirrors(databases: Sequence[Path], aside: Path) -> Iterator[DatabaseMirror]:
    for number, database in enumerate(databases):
        folder = aside / str(number)
        folder.mkdir(mode=0o700)
        yield DatabaseMirror(database, folder)


def _watched(
    watcher: Watcher, files: FileWatch, notes: Inotify
) -> Iterator[Begun | Seen | str | None]:
    """Look and work by turns."""
    is_away, looked_at = False, time.monotonic()
    watcher.look()
    yield Begun(len(files.files), watcher.idle, [*files.tops, *watcher.databases])
    while True:
        for folder in files.new_folders:
            notes.add(Path(folder))
        for path, why in files.left_out:
            yield f"{path} is left out: {why}"
        was_away, is_away = is_away, False
        try:
            yield from watcher.work()
        except AWAY as error:
            is_away = True
            if not was_away:
                yield f"{error.message}: the watch waits for the daemon, and nothing is lost"
        if was_away and not is_away:
            yield "the daemon is there again"
        yield None
        rest_s = max(0.0, looked_at + WATCH_RESCAN_S - time.monotonic())
        if is_away:
            time.sleep(rest_s)
        changed = notes.wait(0 if is_away else min(rest_s, watcher.pause_s(rest_s)))
        if time.monotonic() >= looked_at + WATCH_RESCAN_S:
            looked_at = time.monotonic()
            watcher.look()
        else:
            watcher.look(changed)

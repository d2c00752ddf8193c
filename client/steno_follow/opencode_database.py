"""The database of opencode as a folder of transcripts, one file a session; only read.

    <temporary>/opencode.db/ses_1.jsonl                       a session
    <temporary>/opencode.db/ses_1/subagents/ses_2.jsonl       the session of its subagent

A row that opencode still changes is left out until it is whole: the answer that is being written.
A message of the user loses the summary of its changes to files, which opencode adds later. So the
lines of a session that goes on begin with the lines of the earlier import.
"""

import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote

from steno.local import make_private
from steno_agents.opencode import DATABASE, SUBAGENTS
from steno_protocol._json import is_object, whole_number
from steno_protocol.errors import BadRequest, Busy

_LOCKED_S: Final = 5.0
"""The time to wait for another program that has the database locked; opencode writes briefly."""

_DEPTH_MAX: Final = 8
"""Subagents below subagents; opencode's have no tool to start more of them by default."""

_WATCH_LOCKED_S: Final = 0.5
"""The same for a watch, which has other files to follow and comes again."""

_RECENT_MAX: Final = 64
"""Sessions whose messages a watch looks at for a later change: opencode changes a message up to
seconds after its session."""

_SESSIONS: Final = "SELECT id, parent_id, directory, title, revert, time_updated FROM session"
_LATEST: Final = "SELECT MAX(time_updated) FROM message WHERE session_id = ?"
_MESSAGES: Final = (
    "SELECT id, session_id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
)
_PARTS: Final = "SELECT id, message_id, data FROM part WHERE message_id = ? ORDER BY id"

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""An id, which becomes the name of a file."""

_Row = tuple[Any, ...]


@contextmanager
def as_transcripts(database: Path) -> Generator[Path]:
    """A temporary folder with a transcript of each session.

    Raises:
        Busy: another program has the database locked, or has changed it meanwhile.
        BadRequest: it is no database of opencode, or is damaged.
        OSError: the folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="steno-") as aside:
        folder = Path(aside) / DATABASE
        folder.mkdir(mode=0o700)
        with _opened(database.resolve(), _LOCKED_S) as rows:
            _write(rows, folder, {}, is_whole=True)
        yield folder


def write_changed(database: Path, folder: Path, known: Mapping[str, int]) -> dict[str, int]:
    """Write a transcript of each session that has changed.

    Args:
        database: the database.
        folder: where earlier calls have written theirs.
        known: the time of the state of each session that is known, by its place in the folder.

    Returns:
        The same for the sessions that are there now.

    Raises:
        Busy: another program has the database locked, or has changed it meanwhile.
        BadRequest: it is no database of opencode, or is damaged.
        OSError: the folder cannot be written.
    """
    with _opened(database, _WATCH_LOCKED_S) as rows:
        return _write(rows, folder, known, is_whole=not known)


@contextmanager
def _opened(database: Path, locked_s: float) -> Generator[sqlite3.Connection]:
    """One reading transaction: all sessions are of one moment."""
    # Without a log of changes the file is whole, and is read without the files that SQLite would
    # make beside it.
    log = database.with_name(f"{database.name}-wal")
    is_alone = not log.exists() or log.stat().st_size == 0
    mode = "immutable=1" if is_alone else "mode=ro"
    before = _shape(database)
    uri = f"file:{quote(str(database))}?{mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=locked_s)) as rows:
            rows.execute("PRAGMA query_only = 1")
            rows.execute("BEGIN")
            yield rows
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise Busy(
                f"{database} is locked by another program: wait until that is done, or close"
                " it, and import it again"
            ) from None
        raise _unreadable(database, error) from None
    except sqlite3.DatabaseError as error:
        raise _unreadable(database, error) from None
    if is_alone and _shape(database) != before:
        raise Busy(f"{database} changed while it was read: import it again")


def _unreadable(database: Path, error: sqlite3.Error) -> BadRequest:
    return BadRequest(f"{database} cannot be read as a database of opencode: {error}")


def _write(
    rows: sqlite3.Connection, folder: Path, known: Mapping[str, int], *, is_whole: bool
) -> dict[str, int]:
    """Write the sessions whose time is another one than is known.

    Args:
        rows: the database.
        folder: where to.
        known: the times that are known.
        is_whole: the messages of all sessions are looked at, and not of the recent ones only.
    """
    sessions = {str(row[0]): row for row in rows.execute(_SESSIONS)}
    if not all(map(_ID.fullmatch, sessions)):
        raise BadRequest("it has a session whose id is no name of a file: not imported")
    newest = sorted(sessions, key=lambda each: whole_number(sessions[each][5]), reverse=True)
    recent = set(newest if is_whole else newest[:_RECENT_MAX])
    found: dict[str, int] = {}
    for identity, row in sessions.items():
        place = PurePath(*_places(row, sessions), identity)
        latest = whole_number(row[5])
        before = known.get(str(place), -1)
        if identity in recent or before < 0:
            (changed,) = rows.execute(_LATEST, (identity,)).fetchone()
            latest = max(latest, whole_number(changed))
        found[str(place)] = latest = max(latest, before)
        if latest != before:
            parents = _parents(row, sessions)
            _write_session(rows, row, parents, latest, folder / f"{place}.jsonl")
    return found


def _places(row: _Row, sessions: dict[str, _Row]) -> list[str]:
    """The folders above the file of a session."""
    return [part for each in _parents(row, sessions) for part in (each, SUBAGENTS)]


def _shape(database: Path) -> tuple[int, int]:
    found = database.stat()
    return found.st_size, found.st_mtime_ns


def _parents(row: _Row, sessions: dict[str, _Row]) -> list[str]:
    """The sessions above the one of a subagent, the first one first."""
    found: list[str] = []
    above = row[1]
    while above in sessions and above not in found and len(found) < _DEPTH_MAX:
        found.insert(0, str(above))
        above = sessions[above][1]
    return found


def _write_session(
    rows: sqlite3.Connection, session: _Row, parents: list[str], updated: int, path: Path
) -> None:
    identity, _, directory, title, revert, _ = session
    make_private(path.parent)
    head = {
        "table": "session", "id": identity, "parents": parents, "directory": directory,
        "title": title, "revert": _value(revert), "updated": updated,
    }  # fmt: skip
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8", errors="replace") as file:
        for record in chain([head], _records(rows, identity)):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    os.utime(new, (updated / 1000, updated / 1000))
    new.replace(path)


def _records(rows: sqlite3.Connection, session: str) -> Iterator[dict[str, Any]]:
    """The messages of a session, each followed by its parts."""
    messages = rows.execute(_MESSAGES, (session,)).fetchall()
    for number, (identity, _, content) in enumerate(messages):
        data = _value(content)
        if not is_object(data):
            continue
        is_last = number == len(messages) - 1
        if is_last and data.get("role") == "assistant" and not _is_over(data):
            return
        if data.get("role") == "user":
            data.pop("summary", None)
        yield {"table": "message", "id": identity, "session_id": session, "data": data}
        for part, message, inside in rows.execute(_PARTS, (identity,)):
            yield {"table": "part", "id": part, "message_id": message, "data": _value(inside)}


def _is_over(answer: dict[str, Any]) -> bool:
    """Whether an answer is whole, or ended with an error."""
    time = answer.get("time")
    return "error" in answer or (is_object(time) and "completed" in time)


def _value(content: object) -> Any:
    """The value of a column with JSON; None if it has none."""
    try:
        return json.loads(content) if isinstance(content, str) else None
    except (ValueError, RecursionError):
        return None

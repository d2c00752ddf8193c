"""A database as opencode writes it: the three tables of its conversations."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE session (
    id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
    directory text NOT NULL, title text NOT NULL, version text NOT NULL, revert text,
    time_created integer NOT NULL, time_updated integer NOT NULL
);
CREATE TABLE message (
    id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL,
    FOREIGN KEY (session_id) REFERENCES session(id) ON DELETE CASCADE
);
CREATE TABLE part (
    id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL,
    FOREIGN KEY (message_id) REFERENCES message(id) ON DELETE CASCADE
);
"""

Record = dict[str, Any]


def connected(path: Path) -> sqlite3.Connection:
    """An open database with a write-ahead log, as the program itself has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'part'").fetchall():
        database.executescript(SCHEMA)
    return database


def write(path: Path, *sessions: Sequence[Record]) -> None:
    """Make a database of sessions, each as its rows in the form of a transcript."""
    with closing(connected(path)) as database:
        for rows in sessions:
            insert(database, rows)


def insert(database: sqlite3.Connection, rows: Iterable[Record]) -> None:
    """Add rows: the session, and its messages with their parts."""
    session = ""
    for number, row in enumerate(rows):
        content = json.dumps(row.get("data"))
        match row["table"]:
            case "session":
                session = row["id"]
                parent = row["parents"][-1] if row["parents"] else None
                revert = None if row["revert"] is None else json.dumps(row["revert"])
                database.execute(
                    "INSERT INTO session VALUES (?, 'global', ?, 'a', ?, ?, '1.18.33', ?, 1, 1)",
                    (session, parent, row["directory"], row["title"], revert),
                )
            case "message":
                session = row["session_id"]
                created = row["data"]["time"]["created"]
                database.execute(
                    "INSERT INTO message VALUES (?, ?, ?, 0, ?)",
                    (row["id"], session, created, content),
                )
            case _:
                database.execute(
                    "INSERT INTO part VALUES (?, ?, ?, ?, 0, ?)",
                    (row["id"], row["message_id"], session, number, content),
                )


def imported_file(content: bytes) -> list[Record]:
    """The rows that `opencode import` makes of a file."""
    document = json.loads(content)
    info = document["info"]
    rows: list[Record] = [
        {"table": "session", "id": info["id"], "parents": [], "directory": info["directory"],
         "title": info["title"], "revert": None},
    ]  # fmt: skip
    for message in document["messages"]:
        identity, session, data = _apart(message["info"], "id", "sessionID")
        rows.append({"table": "message", "id": identity, "session_id": session, "data": data})
        for part in message["parts"]:
            its, owner, inside = _apart(part, "id", "messageID", "sessionID")
            rows.append({"table": "part", "id": its, "message_id": owner, "data": inside})
    return rows


def _apart(value: Record, first: str, second: str, *others: str) -> tuple[str, str, Record]:
    rest = {name: value[name] for name in value if name not in {first, second, *others}}
    return value[first], value[second], rest

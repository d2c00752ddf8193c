"""A fork of Codex keeps its beginning while it is followed, also when the file of that is gone."""

import json
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

import steno
from steno_follow.aside import folder_aside
from steno_follow.following import Follower
from steno_follow.foreign_source import ForeignSource
from steno_follow.outcomes import Followed, notes_of
from steno_follow.search import find_one
from steno_follow.source_tree import SourceTree
from steno_follow.taking_in import take_in
from support.daemon_in_thread import DaemonInThread

PARENT, FORK = "01900000-0000-7000-8000-00000000000a", "01900000-0000-7000-8000-00000000000b"


def record(ordinal: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-11-01T10:00:00.000Z", "ordinal": ordinal, "type": kind,
        "payload": payload,
    }  # fmt: skip


def head(ordinal: int, session: str, **fields: Any) -> dict[str, Any]:
    return record(ordinal, "session_meta", id=session, cwd="/srv", originator="codex", **fields)


def said(ordinal: int, role: str, text: str) -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    content = [{"type": kind, "text": text}]
    return record(ordinal, "response_item", type="message", role=role, content=content)


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def rollout(folder: Path, session: str) -> Path:
    return folder / f"rollout-2026-11-01T10-00-00-{session}.jsonl"


def test_a_fork_keeps_its_beginning_and_goes_on_without_its_parent(
    daemon: DaemonInThread, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    parent, fork = rollout(folder, PARENT), rollout(folder, FORK)
    parent.write_bytes(lines(head(0, PARENT), said(1, "user", "one"), said(2, "assistant", "two")))
    fork.write_bytes(
        lines(
            head(3, FORK, forked_from_id=PARENT, forked_from_ordinal_exclusive=3),
            said(4, "user", "three"),
        )
    )
    with (
        steno.connect_sync(daemon.root, spawn=False) as client,
        closing(SourceTree(folder)) as tree,
    ):

        def source() -> ForeignSource:
            found = find_one(tree, PurePath(fork.name))
            assert found is not None
            return found

        def look() -> Followed:
            return Follower(client, source(), None).look()

        def context() -> list[str]:
            session = client.session(source().session)
            return [str(each.record["content"]) for each in session.records()]

        with folder_aside(daemon.root / "sessions") as aside:
            take_in(client, source(), aside, None)
        assert context() == ["one", "two", "three"]
        with fork.open("ab") as file:
            file.write(lines(said(5, "assistant", "four")))
        assert look().lost_beginning is None
        assert context() == ["one", "two", "three", "four"]
        parent.unlink()
        with fork.open("ab") as file:
            file.write(lines(said(6, "user", "five")))
        found = look()
        assert found.lost_beginning == PARENT
        assert any("is a fork of" in note for note in notes_of(found, source()))
        # What the session has stays; only the stream grows.
        assert context() == ["one", "two", "three", "four"]
        assert client.session(source().session).stat().generation == 0
        assert found.file_bytes > 0

"""Renames and restorations of sessions, as clients of a daemon see them."""

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import anyio
import pytest

import steno
from steno import Exists, NotFound, OutcomeUnknown, connect
from steno_protocol import commands, replies
from steno_protocol.errors import BadRequest, Busy, ErrorCode
from support.daemon_in_thread import DaemonInThread
from support.messages import message


def contents(session: steno.BlockingSession) -> list[str]:
    return [record["content"] for record in session.history]


def repeated(session: str, key: str) -> commands.Append:
    return commands.Append(session=session, key=key, repeat=True)


# --- renames -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("daemon")
def test_renamed_session_is_the_same_under_its_new_id(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        session.append_message(message("one"), key="k1")
        session.checkpoint()
        session.send_dmail(0, "turn back", key="m")
        before = session.stat()
        moved = client.rename("demo", "team/other", key="r")
        assert moved.session == "team/other"
        assert Path(moved.folder) == root / "sessions" / "team" / "other"
        assert [entry.session for entry in client.sessions()] == ["team/other"]
        after = client.open("team/other")
        stat = after.stat()
        assert (stat.incarnation, stat.head) == (before.incarnation, before.head)
        assert after.append_message(message("one"), key="k1").duplicate
        mail = after.pending_dmail()
        assert mail is not None
        assert mail.id == "m"
        entry = client.timeline("team/other")[-1]
        assert (entry.kind, entry.key, entry.by) == ("renamed", "r", client.name)
        assert entry.details == {"from": "demo", "to": "team/other"}


@pytest.mark.usefixtures("daemon")
def test_repeated_mutation_to_an_old_id_is_unknown_and_names_the_new_one(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        for session in ("demo", "demo/below"):
            client.open(session, follow=False).append_message(message("one"), key="k1")
        client.rename("demo", "other")
        record = [b'{"role":"user","content":"one"}']
        for old, new in (("demo", "other"), ("demo/below", "other/below")):
            with pytest.raises(OutcomeUnknown, match=f"was renamed to '{new}'") as raised:
                client.request(repeated(old, "k1"), replies.Ack, record)
            assert raised.value.code is ErrorCode.NOT_FOUND
            assert client.request(repeated(new, "k1"), replies.Ack, record)[0].duplicate


@pytest.mark.usefixtures("daemon")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("end", "why", "new"),
    [
        (lambda client: client.delete("demo"), "the session was deleted", None),
        (
            lambda client: client.rename("demo", "other"),
            "renamed to other/below.*its new id",
            "other/below",
        ),
    ],
    ids=["deletion", "rename"],
)
async def test_followers_learn_of_a_deletion_or_rename_of_the_session_above(
    root: Path, end: Callable[[steno.Client], Awaitable[object]], why: str, new: str | None
) -> None:
    async with connect(root, spawn=False) as client:
        session = await client.open("demo/below", follow=False)
        live = {"context": anyio.Event(), "wire": anyio.Event()}
        ended: dict[str, str | None] = {}

        async def read(file: Literal["context", "wire"]) -> None:
            async for event in session.subscribe(records=file):
                if isinstance(event, steno.Live):
                    live[file].set()

        async def follow(file: Literal["context", "wire"]) -> None:
            with pytest.raises(NotFound, match=why) as raised:
                await read(file)
            ended[file] = raised.value.new_session

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, "context")
            tasks.start_soon(follow, "wire")
            for event in live.values():
                await event.wait()
            await client.open("demo", follow=False)
            await end(client)
        assert ended == {"context": new, "wire": new}


@pytest.mark.usefixtures("daemon")
def test_repeated_fork_that_was_renamed_names_its_new_id(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        session.append_message(message("one"))
        session.fork("fork", key="f")
        client.rename("fork", "kept")
        for _ in range(2):
            with pytest.raises(NotFound, match="was renamed to 'kept'"):
                client.session("demo").fork("fork", key="f")
            client.session("kept").stat()
        assert client.session("demo").fork("fork", key="g").id == "fork"
        assert [entry.session for entry in client.sessions()] == ["demo", "fork", "kept"]


@pytest.mark.usefixtures("daemon")
def test_keys_of_a_session_without_stamps_survive_its_rename(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        client.open("demo", stamp=False).append_message(message("one"), key="k1")
        client.rename("demo", "other")
        session = client.open("other")
        assert session.append_message(message("one"), key="k1").duplicate
        assert contents(session) == ["one"]


@pytest.mark.usefixtures("daemon")
def test_rename_writes_queued_commands_first(root: Path) -> None:
    with (
        steno.connect_sync(root, spawn=False) as client,
        steno.connect_sync(root, spawn=False) as other,
    ):
        session = client.open("demo", follow=False)
        stop, acked = threading.Event(), list[str]()

        def append() -> None:
            for number in range(100_000):
                try:
                    session.append_message(message(str(number)))
                except (NotFound, Busy, OutcomeUnknown):
                    return
                acked.append(str(number))
                stop.set()

        thread = threading.Thread(target=append)
        thread.start()
        stop.wait(30)
        other.rename("demo", "moved")
        thread.join()
        assert contents(other.open("moved"))[: len(acked)] == acked


@pytest.mark.usefixtures("daemon")
def test_impossible_renames_say_why(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        for session in ("demo", "taken", "team/below"):
            client.open(session, follow=False)
        for new in ("taken", "team"):
            with pytest.raises(Exists, match="choose another id, or rename or delete"):
                client.rename("demo", new)
        with pytest.raises(BadRequest, match="lies below it"):
            client.rename("demo", "demo/x")
        with pytest.raises(BadRequest, match="not a session id"):
            client.rename("demo", ".hidden")
        with pytest.raises(NotFound, match="mount 'kimi' is not configured"):
            client.rename("demo", "kimi:x")
        with pytest.raises(NotFound, match="no such session"):
            client.rename("missing", "x")
        assert [entry.session for entry in client.sessions()] == ["demo", "taken", "team/below"]


def test_rename_stays_in_its_mount(root: Path, tmp_path: Path) -> None:
    (root / "config.toml").write_text(f'[mounts]\nkimi = "{tmp_path}"\n')
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        client.open("kimi:work/first", follow=False).append_message(message("one"))
        with pytest.raises(BadRequest, match="stays in the root or the mount"):
            client.rename("kimi:work/first", "first")
        assert client.rename("kimi:work/first", "kimi:work/second").session == "kimi:work/second"
        assert (tmp_path / "work" / "second" / "context.jsonl").exists()
        client.delete("kimi:work/second")
        [entry] = client.trash("kimi:")
        assert entry.session == "kimi:work/second"
        client.undelete("kimi:work/second")
        assert (tmp_path / "work" / "second" / "context.jsonl").exists()


# --- restorations --------------------------------------------------------------------------------


@pytest.mark.usefixtures("daemon")
def test_trash_lists_the_latest_deletion_first(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        for number in range(5):
            session = client.open(f"team/{number}", follow=False)
            session.append_message(message("one"))
            session.describe(title=f"Title {number}")
            client.delete(f"team/{number}")
        client.open("other", follow=False)
        client.delete("other")
        everything = client.trash()
        assert {entry.session for entry in everything} == {
            "other",
            *(f"team/{n}" for n in range(5)),
        }
        times = [entry.deleted_at for entry in everything]
        assert times == sorted(times, reverse=True)
        found = next(entry for entry in everything if entry.session == "team/3")
        assert found.title == "Title 3"
        assert found.bytes > 0
        assert found.expires_at == found.deleted_at + 30 * 86_400
        assert Path(found.trash).is_dir()
        assert all(entry.session.startswith("team/") for entry in client.trash("team/"))
        paged: list[replies.TrashEntry] = []
        more = True
        while more:
            asked = commands.Trash(limit=2, after=paged[-1].trash if paged else None)
            page = client.request(asked, replies.TrashReport)[0]
            paged += page.entries
            more = page.more
        assert paged == everything
        with pytest.raises(BadRequest, match="not the path of a deleted session"):
            client.request(commands.Trash(after="x"), replies.TrashReport)


# --- the list ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("daemon")
def test_list_counts_records_and_marks_live_sessions(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        client.open("open", follow=False).append_message([message("one"), message("two")])
        folder = root / "sessions" / "closed"
        folder.mkdir()
        (folder / "context.jsonl").write_bytes(b'{"role":"user","content":"hi"}\n' * 3)
        found = client.request(commands.List(records=True), replies.Sessions)[0].sessions
        assert [(each.session, each.records, each.live) for each in found] == [
            ("closed", 3, False),
            ("open", 2, True),
        ]
        assert [each.records for each in client.sessions()] == [None, None]


def test_records_of_a_closed_session_are_counted_from_its_recovery_point(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        for number in range(20):
            session.append_message(message(str(number) * 100))
    # Nothing may be read behind a recovery point of the whole file.
    monkeypatch.setattr("steno_protocol.limits.COUNTED_BYTES_MAX", 0)
    folder = root / "sessions" / "unmarked"
    folder.mkdir()
    (folder / "context.jsonl").write_bytes(b'{"role":"user","content":"hi"}\n')
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        found = client.request(commands.List(records=True), replies.Sessions)[0].sessions
        assert [(each.session, each.records) for each in found] == [
            ("demo", 20),
            ("unmarked", None),
        ]

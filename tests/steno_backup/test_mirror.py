"""Copies of a running root."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol import paths
from steno_protocol.errors import BadRequest, Exists, Held
from support.backups import back_up, is_killed
from support.daemon_in_thread import DaemonInThread


def texts_of(copy: Path, session: str) -> list[Any]:
    """Serve a copy of the copy; return the contents of a session that passes the check."""
    restored = copy.parent / "restored"
    shutil.rmtree(restored, ignore_errors=True)
    shutil.copytree(copy, restored)
    with DaemonInThread(restored), steno.connect_sync(restored, spawn=False) as client:
        for each in client.sessions():
            assert client.session(each.session).verify().damage == 0, each.session
        found = client.session(session).records()
        return [each.record["content"] for each in found if each.record["role"] == "user"]


def say(session: steno.BlockingSession, text: str) -> None:
    session.append_message({"role": "user", "content": text})


@pytest.fixture
def client(root: Path, daemon: DaemonInThread) -> Any:
    with steno.connect_sync(root, spawn=False) as connected:
        yield connected


def fill(client: steno.BlockingClient) -> None:
    session = client.open("team/demo", follow=False)
    say(session, "one")
    session.append_wire("TurnBegin", {"user_input": "one"}, durability="synced")
    session.stream("notes").append({"text": "note"})
    session.checkpoint()
    say(session, "two")


def test_a_copy_is_a_root_with_the_sessions(
    root: Path, second_root: Path, client: steno.BlockingClient
) -> None:
    fill(client)
    report = back_up(client, root, second_root / "copy")
    assert (report.sessions, report.copied, report.problems) == (1, 1, [])
    assert texts_of(second_root / "copy", "team/demo")[-1] == "two"


def test_a_second_round_reads_only_what_grew(
    root: Path, second_root: Path, client: steno.BlockingClient
) -> None:
    fill(client)
    say(client.session("team/demo"), "x" * 100_000)
    back_up(client, root, second_root / "copy")
    report = back_up(client, root, second_root / "copy")
    assert (report.copied, report.bytes) == (0, 0)
    say(client.session("team/demo"), "three")
    assert 0 < back_up(client, root, second_root / "copy").bytes < 1000
    assert texts_of(second_root / "copy", "team/demo")[-1] == "three"


def test_a_deleted_session_stays_in_the_trash_of_the_copy(
    root: Path, second_root: Path, client: steno.BlockingClient
) -> None:
    fill(client)
    say(client.open("lost", follow=False), "x")
    copy = second_root / "copy"
    back_up(client, root, copy)
    client.delete("team/demo")
    shutil.rmtree(root / "sessions" / "lost")
    report = back_up(client, root, copy)
    assert sorted(report.to_trash) == ["lost", "team/demo"]
    names = sorted(path.name.split(".", 2)[-1] for path in (copy / "sessions/.trash").iterdir())
    assert names == ["lost", "team~demo"]
    assert not (copy / "sessions" / "lost").exists()


def test_configuration_and_keys_are_copied_privately(
    root: Path, second_root: Path, client: steno.BlockingClient
) -> None:
    (root / "config.toml").write_text("")
    (root / "prices.toml").write_text('currency = "USD"')
    (root / "keys").mkdir(mode=0o700)
    (root / "keys" / "server.key").write_text("secret")
    (root / "keys" / "server.key").chmod(0o600)
    (root / "keys" / "link").symlink_to("/etc/passwd")
    copy = second_root / "copy"
    back_up(client, root, copy)
    assert (copy / "config.toml").exists()
    assert (copy / "prices.toml").read_text() == 'currency = "USD"'
    assert (copy / "keys" / "server.key").stat().st_mode & 0o777 == 0o600
    assert copy.stat().st_mode & 0o777 == 0o700
    assert not (copy / "keys" / "link").is_symlink()


def test_a_copy_refuses_other_folders(
    root: Path, second_root: Path, client: steno.BlockingClient
) -> None:
    with pytest.raises(BadRequest, match="one in the other"):
        back_up(client, root, root / "copy")
    (second_root / "strange").mkdir(mode=0o700)
    (second_root / "strange" / "file").touch()
    with pytest.raises(Exists, match="did not write"):
        back_up(client, root, second_root / "strange")
    back_up(client, root, second_root / "copy")
    with pytest.raises(BadRequest, match="is the copy of"):
        back_up(client, second_root / "root", second_root / "copy")
    with DaemonInThread(second_root / "copy"), pytest.raises(Held, match="in use"):
        back_up(client, root, second_root / "copy")


@pytest.mark.parametrize("rewrites", [0, 2])
def test_a_copy_that_is_killed_at_any_step_is_valid(
    root: Path,
    second_root: Path,
    client: steno.BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    rewrites: int,
) -> None:
    fill(client)
    base = second_root / "base"
    back_up(client, root, base)
    session = client.session("team/demo")
    for number in range(rewrites):
        session.clear()
        say(session, f"again {number}")
    say(session, "last")
    session.append_wire("TurnBegin", {"user_input": "last"}, durability="synced")
    for step in range(200):
        shutil.rmtree(second_root / "copy", ignore_errors=True)
        shutil.copytree(base, second_root / "copy")
        if not is_killed(client, root, second_root / "copy", monkeypatch, step):
            break
        found = texts_of(second_root / "copy", "team/demo")
        assert not found or found[-1] in {"two", "last", "again 0", "again 1"}
        back_up(client, root, second_root / "copy")
        assert texts_of(second_root / "copy", "team/demo")[-1] == "last"
    else:
        pytest.fail("the copy never ended")
    assert step > 5


def test_marks_are_not_copied(root: Path, second_root: Path, client: steno.BlockingClient) -> None:
    fill(client)
    back_up(client, root, second_root / "copy")
    found = {path.name for path in (second_root / "copy/sessions/team/demo").iterdir()}
    assert found == {paths.CONTEXT, paths.WIRE, paths.TIMELINE, "stream-notes.jsonl"}


def test_a_deletion_of_a_stream_that_was_interrupted_is_no_deletion_in_a_copy(
    root: Path, second_root: Path, client: steno.BlockingClient
) -> None:
    fill(client)
    folder = root / "sessions/team/demo"
    notes, void = folder / "stream-late.jsonl", folder / "stream-late~1~1790000000~key.jsonl"
    notes.write_bytes(b'{"text":"late"}\n')
    notes.chmod(0o600)
    # A killed daemon left the second name of a stream whose successor had not taken the first one.
    void.hardlink_to(notes)
    back_up(client, root, second_root / "copy")
    copied = second_root / "copy/sessions/team/demo"
    assert [path.name for path in copied.glob("stream-late*")] == [notes.name]
    # Nor is it one in a copy that other programs make, once the stream was opened.
    client.session("team/demo").stream("late").append({"text": "more"})
    assert not void.exists()

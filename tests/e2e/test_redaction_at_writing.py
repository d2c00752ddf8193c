"""Masks before a record is sent: `at = "write"` in the root's configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import steno as client_of
from steno_agents.following import lines_of
from support.command import Steno

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4"
MASK = "[redacted: openai-key]"
SECRETS = (KEY, "swordfish")
MESSAGE = {"role": "user", "content": f"the key {KEY}", "extra": {"password": "swordfish"}}


def stored(root: Path) -> str:
    return "".join(each.read_text() for each in root.glob("sessions/**/*") if each.is_file())


@pytest.fixture
def writing(root: Path) -> Path:
    (root / "config.toml").write_text('[redaction]\nat = "write"\nticket = "T-[0-9]+"\n')
    return root


def test_nothing_that_a_client_writes_has_a_secret(writing: Path) -> None:
    with client_of.connect_sync(writing, name="writer") as client:
        session = client.open("talk")
        session.write_system_prompt(f"prompt {KEY}")
        session.append_message([MESSAGE, {"role": "user", "content": "T-12"}])
        session.describe(title=f"title {KEY}", labels=[KEY])
        session.append_wire("ToolResult", {"return_value": f"PASSWORD={SECRETS[1]}"})
        session.stream("notes").append({"token": SECRETS[1]})
        session.checkpoint()
        session.revert_to(0, why=KEY)
        session.append_message(MESSAGE)
        assert session.history[-1]["content"] == f"the key {MASK}"
    text = stored(writing)
    assert [secret for secret in (*SECRETS, "T-12") if secret in text] == []
    assert MASK in text


def test_an_ack_names_what_was_stored_and_a_repeat_is_the_same(writing: Path) -> None:
    with client_of.connect_sync(writing, name="writer") as client:
        session = client.open("talk", follow=False)
        ack = session.append_message(MESSAGE, key="step-1")
        again = session.append_message(MESSAGE, key="step-1")
        assert (again.duplicate, again.first, again.head) == (True, ack.first, ack.head)
        [record] = session.records(ack.first, ack.head)
        assert record.record["content"] == f"the key {MASK}"
    with client_of.connect_sync(writing, name="writer") as client:
        assert client.session("talk").append_message(MESSAGE, key="step-1").duplicate


@pytest.mark.anyio
async def test_the_async_client_masks_too(writing: Path) -> None:
    async with client_of.connect(writing, name="writer") as client:
        session = await client.open("talk")
        await session.append_message(MESSAGE)
        assert session.history[0]["content"] == f"the key {MASK}"
    async with client_of.connect(endpoint=f"ipc://{writing}/stenod.sock") as client:
        await client.session("talk").append_message(MESSAGE)
    assert KEY not in stored(writing)


def test_commands_and_imports_mask_and_leave_the_foreign_file_alone(
    writing: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True)
    session = "11111111-2222-4333-8444-555555555555"
    node = {
        "type": "user", "uuid": "1", "parentUuid": None, "sessionId": session, "cwd": "/srv/shop",
        "isSidechain": False, "message": {"role": "user", "content": f"the key {KEY}"},
    }  # fmt: skip
    foreign = folder / f"{session}.jsonl"
    foreign.write_text(json.dumps(node) + "\n")
    steno = Steno(writing)
    assert steno("import", str(tmp_path / "projects")).code == 0
    assert steno("append", "talk", f"and {KEY}", "--create").code == 0
    text = stored(writing)
    assert text.count(MASK) > 2
    assert KEY not in text
    assert KEY in foreign.read_text()


def test_an_import_that_was_masked_is_recognised_and_grows_as_any_other(
    writing: Path, tmp_path: Path
) -> None:
    session = "11111111-2222-4333-8444-555555555555"
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True)
    foreign = folder / f"{session}.jsonl"
    foreign.write_text(_line_of(session, 1, f"the key {KEY}") + f"no object, {KEY}\n")
    steno = Steno(writing)
    assert steno("import", str(folder)).code == 0
    again = steno("import", str(folder))
    assert (again.code, again.out) == (0, f"claude-code/srv-shop/{session}\n")
    assert "was imported before and is unchanged" in again.err
    with foreign.open("a") as more:
        more.write(_line_of(session, 2, f"more {KEY}"))
    grown = steno("import", str(folder), "--json")
    assert grown.document["state"] == "grown"
    assert f"more {MASK}" in steno("show", f"claude-code/srv-shop/{session}").out
    assert KEY not in stored(writing)
    with foreign.open("a") as more:
        more.write(f"no object either, {KEY}\n")
    assert steno("import", str(folder), "--json").document["damaged"] == 1
    assert steno("import", str(folder), "--json").document["state"] == "there"
    with client_of.connect_sync(writing, spawn=False) as client:
        stream = client.session(f"claude-code/srv-shop/{session}").stream("claude-code")
        assert KEY.encode() not in b"".join(lines_of(each.data for each in stream.records()))
    foreign.write_text(_line_of(session, 1, "other words"))
    assert steno("import", str(folder), "--json").document["state"] == "rewritten"
    assert "other words" in steno("show", f"claude-code/srv-shop/{session}").out


def test_a_masked_import_of_sessions_of_kimi_cli_is_recognised(
    writing: Path, tmp_path: Path
) -> None:
    context = tmp_path / "copy" / "context.jsonl"
    context.parent.mkdir()
    context.write_text(json.dumps(MESSAGE) + "\n")
    steno = Steno(writing)
    assert steno("import", str(context.parent), "copy").code == 0
    again = steno("import", str(context.parent), "copy")
    assert again.code == 0
    assert "was imported before and is unchanged" in again.err
    context.write_text(json.dumps({"role": "user", "content": "other"}) + "\n")
    assert steno("import", str(context.parent), "copy").code != 0
    assert KEY not in stored(writing)


def test_a_line_that_is_masked_as_a_text_stays_a_line(writing: Path, tmp_path: Path) -> None:
    begin = "-----BEGIN PRIVATE KEY----- " + "a1B2c3D4" * 4
    context = tmp_path / "copy" / "context.jsonl"
    context.parent.mkdir()
    context.write_text(f"{begin}\n" + json.dumps({"role": "user", "content": "hi"}) + "\n")
    assert Steno(writing)("import", str(context.parent), "copy").code == 0
    lines = (writing / "sessions" / "copy" / "context.jsonl").read_text().splitlines()
    assert (lines[0], len(lines)) == ("[redacted: private-key]", 2)


@pytest.fixture
def some(root: Path) -> Path:
    (root / "config.toml").write_text('[redaction]\nsessions = ["private", "team/*"]\n')
    return root


def test_only_the_named_sessions_are_masked(some: Path, tmp_path: Path) -> None:
    with client_of.connect_sync(some) as client:
        for name in ("private", "private-2", "team/one"):
            client.open(name).append_message(MESSAGE)
        client.session("private-2").fork("team/two", title=f"title {KEY}")
        assert client.stat("team/two").title == f"title {MASK}"
    context = tmp_path / "copy" / "context.jsonl"
    context.parent.mkdir()
    context.write_text(json.dumps(MESSAGE) + "\n")
    steno = Steno(some)
    for name in ("team/three", "open"):
        assert steno("import", str(context.parent), name).code == 0
    texts = {
        each.parent.relative_to(some / "sessions").as_posix(): each.read_text()
        for each in some.glob("sessions/**/context.jsonl")
    }
    assert {name for name, text in texts.items() if KEY in text} == {
        # A fork copies what is stored.
        "private-2", "team/two", "open",
    }  # fmt: skip


def _line_of(session: str, number: int, text: str) -> str:
    node = {
        "type": "user", "uuid": str(number), "parentUuid": str(number - 1) if number > 1 else None,
        "sessionId": session, "cwd": "/srv/shop", "isSidechain": False,
        "message": {"role": "user", "content": text},
    }  # fmt: skip
    return json.dumps(node) + "\n"


def test_the_environment_asks_for_masks_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STENO_REDACT", "write")
    with client_of.connect_sync(root) as client:
        client.open("talk").append_message(MESSAGE)
    assert KEY not in stored(root)


def test_nothing_is_written_with_a_wrong_pattern(writing: Path) -> None:
    (writing / "config.toml").write_text('[redact]\nat = "write"\nticket = "(a"\n')
    with pytest.raises(client_of.BadRequest, match=r"redact\.ticket is no regular expression"):
        client_of.connect_sync(writing)


def test_nothing_is_written_while_nobody_knows_what_to_mask(writing: Path) -> None:
    with client_of.connect_sync(writing) as client:
        client.open("talk").append_message(MESSAGE)
    (writing / "config.toml").unlink()
    os.mkfifo(writing / "config.toml")
    with client_of.connect_sync(writing) as client:
        session = client.open("talk")
        with pytest.raises(client_of.BadRequest, match="is a FIFO") as refused:
            session.append_message(MESSAGE)
        assert refused.value.outcome == "not_applied"
        assert [each["content"] for each in session.history] == [f"the key {MASK}"]


def test_without_it_a_client_is_exact_and_imports_no_redaction(root: Path) -> None:
    steno = Steno(root)
    (root / "config.toml").write_text("[redact]\njwt = false\n")
    code = (
        "import sys, steno\n"
        "with steno.connect_sync() as client:\n"
        f"    client.open('talk').append_message({{'role': 'user', 'content': {KEY!r}}})\n"
        "print([name for name in sys.modules if 'steno_redact' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=steno.environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
    assert KEY in stored(root)

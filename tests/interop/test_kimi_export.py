"""Exports of `steno export --format kimi`, opened by kimi-cli."""

import asyncio
import json
from hashlib import md5
from pathlib import Path

import pytest

import steno
from interop.peers import peer
from support.command import Steno

pytestmark = pytest.mark.interop

kimi_session = peer("kimi_cli.session")
kimi_metadata = peer("kimi_cli.metadata")
KimiContext = peer("kimi_cli.soul.context").Context
KaosPath = peer("kaos.path").KaosPath

SESSION = "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"
MESSAGES = [
    {"role": "user", "content": "naïve 漢 \u2028 text"},
    {"role": "assistant", "content": [{"type": "think", "think": "hm", "encrypted": None},
                                      {"type": "text", "text": "Hello"}],
     "tool_calls": [{"type": "function", "id": "c1",
                     "function": {"name": "Shell", "arguments": '{"command": "ls"}'}}]},
    {"role": "tool", "content": "done", "tool_call_id": "c1"},
]  # fmt: skip


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work folder that kimi-cli knows, in a home of its own."""
    monkeypatch.setenv("KIMI_SHARE_DIR", str(tmp_path / "kimi"))
    work = tmp_path / "work"
    work.mkdir()
    metadata = kimi_metadata.load_metadata()
    metadata.new_work_dir_meta(KaosPath.unsafe_from_local_path(work))
    kimi_metadata.save_metadata(metadata)
    return work


def sessions_of(tmp_path: Path, work: Path) -> Path:
    """The folder in which kimi-cli keeps the sessions of a work folder."""
    name = md5(str(work).encode(), usedforsecurity=False).hexdigest()
    return tmp_path / "kimi" / "sessions" / name


def _told(root: Path) -> None:
    """A session as an agent leaves it, with a revert behind it."""
    with steno.connect_sync(root, name="planner") as client:
        session = client.open("demo")
        session.write_system_prompt("You are an agent.")
        session.append_wire("TurnBegin", {"user_input": "What is here?"})
        session.checkpoint()
        session.append_message(MESSAGES)
        session.checkpoint(add_user_message=True)
        session.append_message({"role": "user", "content": "dropped"})
        session.revert_to(1)
        session.update_token_count(1472)
        session.append_wire("TurnEnd", {}, durability="synced")
        session.describe(title="A title")


def test_kimi_cli_finds_lists_and_restores_an_exported_session(
    root: Path, tmp_path: Path, work: Path
) -> None:
    _told(root)
    folder = sessions_of(tmp_path, work) / SESSION
    folder.parent.mkdir(parents=True, exist_ok=True)
    ran = Steno(root)("export", "demo", "--format", "kimi", "-o", str(folder))
    assert ran.code == 0, ran

    async def look() -> None:
        path = KaosPath.unsafe_from_local_path(work)
        (listed,) = await kimi_session.Session.list(path)
        found = await kimi_session.Session.find(path, SESSION)
        assert (listed.id, found.title) == (SESSION, "A title")
        context = KimiContext(file_backend=found.context_file)
        assert await context.restore()
        assert (context.token_count, context.n_checkpoints) == (1472, 1)
        assert context.system_prompt == "You are an agent."
        assert [message.role for message in context.history] == ["user", "assistant", "tool"]
        assert context.history[0].extract_text() == MESSAGES[0]["content"]
        events = [record async for record in found.wire_file.iter_records()]
        assert [record.message.type for record in events] == ["TurnBegin", "TurnEnd"]
        assert found.wire_file.version == "1.10"
        # And it goes on there.
        await context.checkpoint(False)
        await context.revert_to(0)

    asyncio.run(look())
    lines = [json.loads(line) for line in (folder / "context_1.jsonl").read_text().splitlines()]
    assert not any(key.startswith("_") for line in lines for key in line)


def test_import_equals_the_restore_of_kimi_cli(root: Path, tmp_path: Path, work: Path) -> None:
    kosong = peer("kosong.message")

    async def write() -> str:
        session = await kimi_session.Session.create(KaosPath.unsafe_from_local_path(work))
        context = KimiContext(file_backend=session.context_file)
        await context.write_system_prompt("You are an agent.")
        await context.checkpoint(False)
        await context.append_message(kosong.Message(role="user", content="theirs"))
        await context.update_token_count(77)
        metadata = kimi_metadata.load_metadata()
        metadata.work_dirs[0].last_session_id = session.id
        kimi_metadata.save_metadata(metadata)
        return str(session.id)

    name = asyncio.run(write())
    steno_command = Steno(root)
    ran = steno_command("import", str(tmp_path / "kimi"), "kimi")
    assert ran.code == 0, ran
    session = f"kimi/{sessions_of(tmp_path, work).name}/{name}"
    assert ran.out == f"{session}\n"
    state = steno_command("show", session, "--json").document
    assert state["messages"] == [{"role": "user", "content": "theirs"}]
    assert (state["token_count"], state["system_prompt"]) == (77, "You are an agent.")
    assert state["checkpoints"] == [{"id": 0, "cursor": "0:1"}]
    (entry,) = steno_command("sessions", "--json").document["sessions"]
    assert (entry["work_dir"], entry["last_in_work_dir"]) == (str(work), True)

"""Forks and descriptions beside kimi-cli."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import steno
from interop.peers import peer

pytestmark = pytest.mark.interop

fork = peer("kimi_cli.session_fork")
state = peer("kimi_cli.session_state")
KimiContext = peer("kimi_cli.soul.context").Context

CONTEXT: list[dict[str, Any]] = [
    {"role": "_system_prompt", "content": "You are an agent."},
    {"role": "_checkpoint", "id": 0},
    {"role": "user", "content": "zero"},
    {"role": "_checkpoint", "id": 1},
    {"role": "user", "content": [{"type": "text", "text": "<system>CHECKPOINT 1</system>"}]},
    {"role": "assistant", "content": "yes"},
    {"role": "_usage", "token_count": 12},
    {"role": "user", "content": [{"type": "text", "text": "one"}]},
    {"role": "assistant", "content": "no"},
    {"role": "user", "content": "<system>CHECKPOINT 2</system>"},
    {"role": "user", "content": "two"},
]
HEADER = {"type": "metadata", "protocol_version": "1.10"}


def events(turns: int) -> list[dict[str, Any]]:
    kinds = [
        (kind, {"user_input": f"{turn}"} if kind == "TurnBegin" else {})
        for turn in range(turns)
        for kind in ("TurnBegin", "StepBegin", "TurnEnd")
    ]
    return [
        {"timestamp": 1.5, "message": {"type": kind, "payload": payload}} for kind, payload in kinds
    ]


def documents(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.fixture
def source(root: Path) -> Path:
    """A session as kimi-cli leaves it; its last two turns left nothing in the context."""
    folder = root / "sessions" / "work" / "source"
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CONTEXT))
    wire = [HEADER, *events(5)]
    (folder / "wire.jsonl").write_text("".join(json.dumps(each) + "\n" for each in wire))
    return folder


def test_a_session_of_kimi_is_cut_where_kimi_cuts_it(root: Path, source: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.session("work/source")
        for turn in range(5):
            made = Path(session.fork(f"work/fork{turn}", turn=turn).stat().folder)
            context = fork.truncate_context_at_turn(source / "context.jsonl", turn)
            wire = fork.truncate_wire_at_turn(source / "wire.jsonl", turn)
            assert documents(made / "context.jsonl") == [json.loads(line) for line in context]
            assert documents(made / "wire.jsonl") == [json.loads(line) for line in wire]
        with pytest.raises(steno.NotFound, match="0 to 4"):
            session.fork("work/fork5", turn=5)
        with pytest.raises(ValueError, match="max turn: 4"):
            fork.truncate_wire_at_turn(source / "wire.jsonl", 5)


def test_kimi_opens_a_fork_and_shows_its_title(root: Path, source: Path) -> None:
    (source / "state.json").write_text(json.dumps({"custom_title": "The move", "plan_mode": True}))
    with steno.connect_sync(root) as client:
        made = client.session("work/source").fork("work/fork", turn=1)
        folder = Path(made.stat().folder)
    context = KimiContext(file_backend=folder / "context.jsonl")
    assert asyncio.run(context.restore())
    assert [message.extract_text() for message in context.history][-2] == "no"
    assert (context.token_count, context.n_checkpoints) == (12, 2)
    assert [turn.user_text for turn in fork.enumerate_turns(folder / "wire.jsonl")] == ["0", "1"]
    loaded = state.load_session_state(folder)
    assert (loaded.custom_title, loaded.title_generated) == ("Fork: The move", True)
    assert not loaded.plan_mode


def test_a_description_is_the_one_that_kimi_reads_and_writes(root: Path, source: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.session("work/source")
        state.save_session_state(state.SessionState(plan_mode=True, custom_title="old"), source)
        session.describe(title="The move", labels=["review"], archived=True)
        loaded = state.load_session_state(source)
        assert (loaded.custom_title, loaded.archived, loaded.plan_mode) == ("The move", True, True)
        assert loaded.archived_at is not None
        loaded.custom_title = "newer"
        state.save_session_state(loaded, source)
        # It writes what it knows, and no labels.
        stat = session.stat()
        assert (stat.title, stat.archived, stat.labels) == ("newer", True, ())
        session.describe(archived=False)
        loaded = state.load_session_state(source)
        assert (loaded.archived, loaded.archived_at, loaded.auto_archive_exempt) == (
            False, None, True
        )  # fmt: skip

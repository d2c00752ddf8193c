"""An agent's whole loop: two processes, one session, a real model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import steno
from llm.agent_loop import ADVICE, SESSION
from support.project import PROJECT


def begin(role: str, root: Path, url: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "llm.agent_loop", role, str(root), url],
        cwd=PROJECT / "tests",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def what_it_did(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def of_kind(done: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in done if each["did"] == kind]


def test_two_agents_share_a_session_through_compactions_and_a_mail_to_the_past(
    llama_url: str, root: Path
) -> None:
    with begin("scout", root, llama_url) as scout, begin("worker", root, llama_url) as worker:
        worked, scouted = what_it_did(worker), what_it_did(scout)

    # The context was full, and has room again.
    compacted = of_kind(worked, "compacted")
    assert compacted
    assert all(each["after"] < each["before"] / 2 for each in compacted)

    # The scout's mail reached the worker's past, from before the compaction.
    [sent] = of_kind(scouted, "sent")
    [delivered] = of_kind(worked, "delivered")
    assert delivered["mail"] == ADVICE

    with steno.connect_sync(root) as client:
        session = client.open(SESSION)
        happened = [entry.kind for entry in session.timeline()]
        texts = [json.dumps(message["content"]) for message in session.history]
        checkpoints = [number for number, _ in session.checkpoints]
        assert session.damaged == 0
    assert happened.count("compacted") == len(compacted)
    assert (happened.count("sent"), happened.count("delivered")) == (1, 1)
    assert happened.index("compacted") < happened.index("delivered")
    assert sum(ADVICE in text for text in texts) == 1
    assert texts[0] == '"<system>CHECKPOINT 0</system>"', "what was summarised is back"
    assert checkpoints == sorted(set(checkpoints))

    # Each acknowledged record is in the files, once in each generation that contains it.
    generations = [
        [
            line.get("_id", "").split(".")[0]
            for line in map(json.loads, file.read_bytes().splitlines())
        ]
        for file in (root / "sessions" / SESSION).glob("context*.jsonl")
    ]
    acked = [each["key"] for each in (*worked, *scouted) if each["did"] in {"append", "checkpoint"}]
    assert [key for key in acked if not any(key in ids for ids in generations)] == []
    appended = {each["key"] for each in (*worked, *scouted) if each["did"] == "append"}
    assert all(ids.count(key) <= 1 for ids in generations for key in appended)
    assert sent["key"]

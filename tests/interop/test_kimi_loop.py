"""kimi-cli's whole program with the twins of its classes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.peers import peer
from steno_protocol import timeline_entries
from support.daemons import end_daemons_below

pytestmark = pytest.mark.interop

peer("kimi_cli.cli")

PROGRAM = """
import sys
kind = sys.argv.pop(1)
if kind != "originals":
    import kimi_cli.soul.compaction, kimi_cli.soul.context
    import kimi_cli.soul.denwarenji, kimi_cli.wire.file
    from steno.adapters import kimi
    if kind == "compacting":
        kimi_cli.soul.compaction.SimpleCompaction = kimi.SimpleCompaction
    kimi_cli.soul.context.Context = kimi.Context
    kimi_cli.soul.denwarenji.DenwaRenji = kimi.DenwaRenji
    kimi_cli.wire.file.WireFile = kimi.WireFile
from kimi_cli.cli import cli
cli()
"""
MAIL = {"message": "Skip the large file.", "checkpoint_id": 0}
CALL = {"id": "call-1", "name": "SendDMail", "arguments": json.dumps(MAIL)}
# What the model says: a step that sends a mail, the one that it goes back to, a summary, an answer.
ANSWERS = [
    f"text: I read it.\ntool_call: {json.dumps(CALL)}", "text: Skipped.", "text: In short.",
    "text: Hello again.",
]  # fmt: skip
PROMPTS = ["Read the file.", "/compact", "Hello?", "/clear"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home for both programs, without any setup."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    yield home
    end_daemons_below(home)


def settings(home: Path) -> Path:
    """A config in which a script is the model."""
    answers = home / "answers.json"
    answers.write_text(json.dumps(ANSWERS))
    model = {"provider": "script", "model": "script", "max_context_size": 100_000}
    provider = {
        "type": "_scripted_echo", "base_url": "", "api_key": "",
        "env": {"KIMI_SCRIPTED_ECHO_SCRIPTS": str(answers)},
    }  # fmt: skip
    config = home / "config.json"
    config.write_text(json.dumps({
        "default_model": "script", "models": {"script": model}, "providers": {"script": provider},
    }))  # fmt: skip
    return config


def session(home: Path, config: Path, kind: str) -> Path:
    """The folder of a session of kimi-cli that got all prompts in one process."""
    share = home / kind
    program = subprocess.Popen(
        [
            sys.executable, "-c", PROGRAM, kind, "--wire", "--yolo", "--agent", "okabe",
            "--session", "demo", "--config-file", str(config), "--work-dir", str(home / "work"),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "KIMI_SHARE_DIR": str(share), "STENO_HOME": str(home / "steno")},
    )  # fmt: skip
    assert program.stdin is not None
    assert program.stdout is not None
    requests = [("initialize", {"protocol_version": "1.1"})]
    requests += [("prompt", {"user_input": text}) for text in PROMPTS]
    for number, (method, params) in enumerate(requests):
        request = {"jsonrpc": "2.0", "id": f"r{number}", "method": method, "params": params}
        program.stdin.write(json.dumps(request) + "\n")
        program.stdin.flush()
        for line in program.stdout:
            if json.loads(line).get("id") == f"r{number}":
                break
    program.stdin.close()
    assert program.wait(60) == 0
    program.stdout.close()
    (folder,) = share.glob("sessions/*/demo")
    return folder


def records(file: Path) -> list[Any]:
    """Its lines without their times."""
    found = []
    for line in file.read_bytes().splitlines():
        record = json.loads(line)
        record.pop("timestamp", None)
        if record.get("role") == "_system_prompt":
            record["content"] = "said"
        found.append(record)
    return found


def test_a_session_of_the_program_is_the_same_through_mail_compaction_and_clear(
    home: Path,
) -> None:
    config = settings(home)
    ours, theirs = (session(home, config, kind) for kind in ("twins", "originals"))
    assert (ours / "timeline.jsonl").exists()
    names = sorted(file.name for file in theirs.glob("*.jsonl"))
    assert names == [*(f"context{end}.jsonl" for end in ("", "_1", "_2", "_3")), "wire.jsonl"]
    for name in names:
        assert records(ours / name) == records(theirs / name), name


def test_the_programs_compaction_is_one_rewrite_with_the_twin_of_its_class(home: Path) -> None:
    folder = session(home, settings(home), "compacting")
    entries = records(folder / "timeline.jsonl")
    rewrites = [entry["kind"] for entry in entries if entry["kind"] in timeline_entries.REWRITES]
    # The mail, the compaction, and the user's own clear.
    assert rewrites == ["reverted", "compacted", "cleared"]
    before, after = records(folder / "context_2.jsonl"), records(folder / "context_3.jsonl")
    assert [record["role"] for record in after[:3]] == ["_system_prompt", "_checkpoint", "user"]
    assert after[0] == before[0]
    assert after[1]["id"] > max(each["id"] for each in before if each["role"] == "_checkpoint")
    notice, introduction, summary = after[2]["content"]
    assert notice["text"] == f"<system>CHECKPOINT {after[1]['id']}</system>"
    assert introduction["text"].startswith("<system>")
    assert summary["text"] == "In short."
    said = [each for each in before if each["role"] in {"user", "assistant"}]
    assert after[3:5] == said[-2:]
    assert "Hello again." in [each["content"] for each in after if each["role"] == "assistant"]

"""`steno hooks`: what it prints for other agents, and what runs when one of them calls it."""

import json
import os
import shlex
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import steno as steno_client
from steno_cli.commands import hooks
from steno_cli.entry import main
from steno_follow import hooks as agent_hooks
from steno_follow.aside import folder_aside
from support.agent_files import (
    CLAUDE_SESSION,
    CODEX,
    CODEX_SESSION,
    add_lines,
    claude_answer,
    claude_file,
    codex_file,
)
from support.command import Steno
from support.viewer import wait_for

pytestmark = pytest.mark.served


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Steno:
    """The command with a home of its own."""
    return Steno(root, HOME=str(tmp_path))


def sessions(root: Path) -> set[str]:
    with steno_client.connect_sync(root, spawn=False) as client:
        return {each.session for each in client.sessions()}


@pytest.fixture
def hooked(run: Steno, root: Path) -> Iterator[Steno]:
    """The same; ends when no process that a hook left behind works on the root any longer."""
    yield run
    wait_for(lambda: not any(map(partial(works_on, root), Path("/proc").glob("[0-9]*"))))


def works_on(root: Path, process: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(root) in words and b"hooks" in words


def hook_of(run: Steno, event: str) -> str:
    settings: dict[str, Any] = json.loads(run("hooks", "show", "claude-code").out)
    (group,) = settings["hooks"][event]
    (hook,) = group["hooks"]
    assert hook["type"] == "command"
    return str(hook["command"])


def called(run: Steno, line: str, given: str) -> subprocess.CompletedProcess[bytes]:
    """Run a hook as the agent does: by a shell, with JSON on stdin."""
    environment = {key: value for key, value in run.environment.items() if key != "STENO_HOME"}
    return subprocess.run(
        ["/bin/sh", "-c", line], input=given.encode(), env=environment, capture_output=True,
        check=False, timeout=60,
    )  # fmt: skip


def test_the_printed_hook_of_claude_code_brings_its_session(
    hooked: Steno, root: Path, tmp_path: Path
) -> None:
    run = hooked
    file = claude_file(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    lines = {hook_of(run, event) for event in ("SessionStart", "Stop")}
    assert sorted(tmp_path.rglob("*")) == before, "no file of another program is made or changed"
    (line,) = lines
    given = json.dumps({"transcript_path": str(file), "hook_event_name": "Stop"})
    done = called(run, line, given)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    wait_for(lambda: sessions(root) == {CLAUDE_SESSION})
    add_lines(file, [claude_answer("3", "2", "And the lamp.")])
    assert called(run, line, given).returncode == 0
    wait_for(lambda: "And the lamp." in run("show", CLAUDE_SESSION).out)


def test_the_printed_notify_of_codex_brings_its_session(
    hooked: Steno, root: Path, tmp_path: Path
) -> None:
    run = hooked
    codex_file(tmp_path)
    shown = run("hooks", "show", "codex")
    assert "~/.codex/config.toml" in shown.err
    words = tomllib.loads(shown.out)["notify"]
    given = json.dumps({"type": "agent-turn-complete", "thread-id": CODEX})
    assert called(run, shlex.join([*words, given]), "").returncode == 0
    wait_for(lambda: sessions(root) == {CODEX_SESSION})


def test_a_person_sees_what_a_hook_does(run: Steno, tmp_path: Path) -> None:
    file = claude_file(tmp_path)
    given = json.dumps({"transcript_path": str(file)})
    done = run("hooks", "run", "claude-code", "--wait", stdin=given)
    assert (done.code, done.out) == (0, f"{CLAUDE_SESSION}\n")
    refused = run("hooks", "run", "claude-code", "--wait", "{}")
    assert refused.code == 1
    assert "names no transcript" in refused.err
    assert run("hooks", "show", "emacs").code == 2


@pytest.mark.parametrize("program", hooks.PROGRAMS)
def test_a_hook_never_fails_and_never_says_anything(
    run: Steno, root: Path, tmp_path: Path, program: str
) -> None:
    claude_file(tmp_path)
    codex_file(tmp_path)
    for given in (
        "", "x", "[]", "null", '{"transcript_path": 5}', '{"transcript_path": "/etc/passwd"}',
        '{"transcript_path": "/etc/../x.jsonl"}', '{"transcript_path": "a\\u0000.jsonl"}',
        '{"thread-id": "*"}', '{"thread-id": "../../../etc"}', '{"thread-id": null}', "[" * 9999,
        '{"thread-id": "' + "a" * 70 + '"}',
    ):  # fmt: skip
        done = run("hooks", "run", program, stdin=given)
        assert (given, done.code, done.out, done.err) == (given, 0, "", "")
    assert sessions(root) == set()


def test_a_hook_that_can_start_no_process_does_not_fail_either(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(words: list[str], **_: Any) -> None:
        started.append(words)
        raise BlockingIOError("no process is left")

    started: list[list[str]] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setattr(subprocess, "Popen", refused)
    given = json.dumps({"transcript_path": str(claude_file(tmp_path))})
    assert main(["--root", str(root), "hooks", "run", "claude-code", given]) == 0
    assert len(started) == 1
    assert capsys.readouterr() == ("", "")


def test_only_a_transcript_of_the_program_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)

    def found(path: Path) -> Path | None:
        given = json.dumps({"transcript_path": str(path)}).encode()
        return agent_hooks.transcript_of("claude-code", given)

    file = claude_file(tmp_path)
    assert found(file) == file.resolve()
    other = tmp_path / "other.jsonl"
    other.write_bytes(file.read_bytes())
    assert found(other) is None
    link = file.with_name("link.jsonl")
    link.symlink_to(other)
    assert found(link) is None
    assert found(file.parent / ".." / ".." / ".." / "other.jsonl") is None
    assert found(file.with_name("none.jsonl")) is None
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    assert found(file) is None


def test_what_a_hook_is_given_is_bounded_in_size_and_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_hooks, "HOOK_INPUT_S", 0.0)
    with ExitStack() as files:
        out, into = os.pipe()
        reader = files.enter_context(os.fdopen(out, "rb"))
        files.callback(os.close, into)
        os.write(into, b"{}")
        # The other end stays open.
        assert agent_hooks.read_bounded(reader) == b"{}"
        monkeypatch.setattr(agent_hooks, "HOOK_INPUT_BYTES_MAX", 10)
        os.write(into, b"x" * 40)
        assert len(agent_hooks.read_bounded(reader)) == 10


def test_a_hook_waits_for_another_import_and_for_the_rest_of_a_turn(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = claude_file(tmp_path)
    pauses: list[float] = []
    with steno_client.connect_sync(root) as client, ExitStack() as other:
        tree = root / "sessions"
        tree.mkdir(exist_ok=True)
        other.enter_context(folder_aside(tree))

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 1:
                other.close()
            elif len(pauses) == 2:
                add_lines(file, [claude_answer("3", "2", "late")])

        monkeypatch.setattr(time, "sleep", pause)
        assert agent_hooks.follow(client, root, file) == [CLAUDE_SESSION]
        monkeypatch.undo()
        texts = [each.record.get("content") for each in client.session(CLAUDE_SESSION).records()]
    assert "late" in texts
    assert pauses == [
        agent_hooks.HOOK_RETRY_S, agent_hooks.HOOK_SETTLE_S, agent_hooks.HOOK_SETTLE_S,
    ]  # fmt: skip

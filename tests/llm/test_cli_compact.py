"""The command `steno compact` with a real daemon and a scripted model."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import steno
from llm.model_server import (
    SUMMARY,
    Asked,
    ModelServer,
    Reply,
    Step,
    chat,
    failing,
    message,
    stalling,
)
from support.command import Ran, Steno
from support.daemon_in_thread import DaemonInThread

CANARY = "sk-canary-7f3a"
KEYS = {"STENO_LLM_API_KEY": "", "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}


@pytest.fixture
def command(root: Path) -> Steno:
    return Steno(root, **KEYS)


@pytest.fixture
def client(root: Path, daemon: DaemonInThread) -> Iterator[steno.BlockingClient]:
    with steno.connect_sync(root, spawn=False, name="agent") as connected:
        yield connected


@pytest.fixture
def spawning_client(root: Path) -> Iterator[steno.BlockingClient]:
    """A client of a daemon in a process, which can be killed and logs to its file."""
    with steno.connect_sync(root, name="agent") as connected:
        yield connected


def filled(client: steno.BlockingClient, session: str = "demo") -> steno.BlockingSession:
    """A session of ten messages, 1 000 tokens."""
    opened = client.open(session)
    for number in range(5):
        opened.append_message({"role": "user", "content": f"{session} {number}"})
        opened.append_message({"role": "assistant", "content": f"answer {number}"})
    opened.update_token_count(1000)
    return opened


def compact(command: Steno, server: ModelServer, *arguments: str) -> Ran:
    return command("compact", *arguments, "--model", "m", "--base-url", server.base_url)


def texts(session: steno.BlockingSession) -> list[str]:
    """The texts that the daemon has; a mirror may not have what the command wrote yet."""
    return [str(each["content"]) for each in session.history_at().history]


def test_a_compaction_prints_the_head_and_its_progress(
    command: Steno, client: steno.BlockingClient
) -> None:
    session = filled(client)
    with ModelServer(failing(429, retry_after="0"), chat()) as server:
        ran = compact(command, server, "demo", "--instruction", "mind the gap")
    assert (ran.code, ran.out) == (0, "1:5\n")
    assert session.wait_for(ran.out.strip(), timeout=60)
    assert str(session.head) == "1:5"
    for words in ("reading", "asking m", "asked again", "committing", "8 messages became"):
        assert words in ran.err
    assert "mind the gap" in server.asked[0].body["messages"][1]["content"]
    summary, *preserved = texts(session)
    assert SUMMARY.splitlines()[1] in summary
    assert preserved == ["demo 4", "answer 4"]
    assert session.token_count < 1000


def test_on_a_terminal_the_seconds_are_counted(
    command: Steno, client: steno.BlockingClient
) -> None:
    filled(client)
    with ModelServer(chat()) as server:
        words = ("compact", "demo", "--model", "m", "--base-url", server.base_url)
        shown = command.on_terminal(80, *words)
    assert "asking m for a summary: 0 s" in shown
    assert "became a summary" in shown


def test_the_document_of_a_compaction_has_every_key(
    command: Steno, client: steno.BlockingClient
) -> None:
    filled(client)
    with ModelServer(message()) as server:
        ran = compact(command, server, "demo", "--provider", "anthropic", "--json", "--key", "k1")
    document = ran.document
    assert Path(document.pop("rotated")).name == "context_1.jsonl"
    assert document == {
        "session": "demo", "compacted": True, "why": None, "head": "1:5", "messages": 8,
        "tokens": 18, "checkpoint_id": 0, "key": "k1",
    }  # fmt: skip


def test_a_session_that_is_not_full_enough_is_left_alone(
    command: Steno, client: steno.BlockingClient
) -> None:
    filled(client)
    limit = ("--max-context-size", "2000", "--reserved", "100")
    with ModelServer(chat()) as server:
        not_due = compact(command, server, "demo", *limit, "--json")
        asked = len(server.asked)
        due = compact(command, server, "demo", *limit, "--ratio", "0.5", "--json")
    assert (not_due.code, asked) == (0, 0)
    assert not_due.document["compacted"] is False
    assert "1 000 of 2 000 tokens" in not_due.document["why"]
    assert due.document["compacted"] is True


def test_a_session_of_few_messages_is_left_alone(
    command: Steno, client: steno.BlockingClient
) -> None:
    client.open("demo").append_message({"role": "user", "content": "hi"})
    with ModelServer(chat()) as server:
        ran = compact(command, server, "demo")
    assert (ran.code, ran.out, server.asked) == (0, "", [])
    assert "nothing to do" in ran.err


def test_failing_model_changes_nothing_and_blocks_no_retry(
    command: Steno, client: steno.BlockingClient
) -> None:
    before = texts(session := filled(client))
    with ModelServer(failing(400, "too long"), chat()) as server:
        failed = compact(command, server, "demo", "--json")
        assert (failed.code, failed.out) == (1, "")
        assert failed.error["code"] == "failed"
        assert "too long" in failed.error["message"]
        assert texts(session) == before
        assert compact(command, server, "demo").code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_abandons_the_compaction(
    command: Steno, client: steno.BlockingClient, number: signal.Signals
) -> None:
    before = texts(session := filled(client))
    with ModelServer(stalling, chat()) as server:
        words = ("demo", "--model", "m", "--base-url", server.base_url)
        with command.begin("compact", *words, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            wait_for_line(process.stderr, "asking m")
            assert server.was_asked.wait(60)
            process.send_signal(number)
            assert process.stderr.read() == ""
        assert process.returncode == 130
        assert server.hung_up.wait(60)
        assert texts(session) == before
        # The compactor has given its lease back, so the next one does not wait.
        assert compact(command, server, "demo").code == 0


@pytest.mark.parametrize("step", [failing(401, f"bad key {CANARY}"), chat()])
def test_an_api_key_is_neither_logged_nor_stored(
    root: Path, spawning_client: steno.BlockingClient, step: Step
) -> None:
    filled(spawning_client)
    with ModelServer(step) as server:
        ran = compact(Steno(root, **{**KEYS, "OPENAI_API_KEY": CANARY}), server, "demo")
    assert server.asked[0].headers["authorization"] == f"Bearer {CANARY}"
    files = [file.read_bytes() for file in root.rglob("*") if file.is_file()]
    assert len(files) > 3
    assert [text for text in (ran.out, ran.err) if CANARY in text] == []
    assert [data for data in files if CANARY.encode() in data] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo"], "--model"),
        (["--model", "m"], "the session is missing"),
        (["--model", "m", "--watch"], "--max-context-size"),
        (["--model", "m", "demo", "--max-context-size", "50000"], "reserve less"),
        (["--model", "m", "--watch", "--max-context-size", "60000", "--key", "k"], "leave it out"),
        (["--model", "m", "demo", "--api-key", CANARY], "unrecognized"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    command: Steno, arguments: list[str], words: str
) -> None:
    ran = command("compact", *arguments)
    assert ran.code == 2
    assert words in ran.err


def test_without_the_extra_it_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "httpx2.py").write_text("raise ModuleNotFoundError('no', name='httpx2')\n")
    ran = Steno(root, PYTHONPATH=str(tmp_path), **KEYS)("compact", "demo", "--model", "m")
    assert ran.code == 1
    assert "pip install 'stenod[llm]'" in ran.err
    assert "Traceback" not in ran.err


# --- the worker ----------------------------------------------------------------------------------


def answering_all_but_bad(reply: Reply) -> None:
    """A model that cannot be had for one session."""
    (failing(400, "not this one") if is_about_bad(reply.asked) else chat())(reply)


def is_about_bad(asked: Asked) -> bool:
    return "bad 0" in asked.body["messages"][1]["content"]


def test_worker_compacts_due_sessions_despite_one_failure(
    command: Steno, spawning_client: steno.BlockingClient
) -> None:
    client = spawning_client
    bad, good, small = (filled(client, session) for session in ("w/bad", "w/good", "w/small"))
    other = filled(client, "other")
    small.clear()
    filled(client, "w/archived").describe(archived=True)
    with ModelServer(answering_all_but_bad) as server:
        process = command.begin(
            "compact", "w/", "--watch", "--max-context-size", "1000", "--reserved", "0",
            "--interval", "0.05", "--model", "m", "--base-url", server.base_url,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "w/good 1:5\n"
            wait_for_line(process.stderr, "w/bad: the model at")

            # The worker finds sessions that become due later by their growth.
            for session in (good, small):
                for number in range(4):
                    session.append_message({"role": "user", "content": f"more {number}"})
                session.update_token_count(900)
                name, head = process.stdout.readline().split()
                assert name == session.id
                assert session.wait_for(head)
                # The next request starts the next daemon.
                os.kill(client.status().pid, signal.SIGKILL)
            process.terminate()
            assert "Traceback" not in process.stderr.read()
        assert process.returncode == 0
    assert texts(good)[-2:] == texts(small)[-2:] == ["more 2", "more 3"]
    assert len(texts(bad)) == len(texts(other)) == 10
    # On a busy machine the one that failed is tried again before the end.
    of_others = [each for each in server.asked if not is_about_bad(each)]
    assert len(of_others) == 3


def test_worker_stops_at_a_signal_and_abandons_its_compaction(
    command: Steno, client: steno.BlockingClient
) -> None:
    before = texts(session := filled(client))
    with ModelServer(stalling, chat()) as server:
        process = command.begin(
            "compact", "--watch", "--max-context-size", "1000", "--reserved", "0",
            "--model", "m", "--base-url", server.base_url,
        )  # fmt: skip
        with process:
            assert server.was_asked.wait(60)
            process.send_signal(signal.SIGINT)
        assert process.returncode == 0
        assert texts(session) == before
        assert compact(command, server, "demo").code == 0


def wait_for_line(stream: IO[str], words: str) -> None:
    """Read until a line has these words."""
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"it ended without a word of {words!r}")

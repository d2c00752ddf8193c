"""The tokens of a root's sessions: read once, from files and from the daemon alike."""

import json
import os
from pathlib import Path

import pytest

import steno
from steno_agents.ledger import Ledger
from steno_agents.spending import Account
from support.agent_files import claude_answer
from support.compressed import compress_past, compress_streams
from support.daemon_in_thread import DaemonInThread


@pytest.fixture
def client(daemon: DaemonInThread, root: Path) -> steno.BlockingClient:
    """A client that the end of the daemon closes."""
    return steno.connect_sync(root, name="test")


@pytest.fixture(params=["files", "daemon"])
def ledger(request: pytest.FixtureRequest, client: steno.BlockingClient, root: Path) -> Ledger:
    """A ledger that reads files, or asks."""
    return Ledger(client, root / "sessions" if request.param == "files" else None)


def update(ledger: Ledger, client: steno.BlockingClient) -> None:
    assert ledger.update(sorted(client.sessions(), key=lambda each: each.session))


def tokens(ledger: Ledger, session: str) -> int:
    found = ledger.account(session)
    assert isinstance(found, Account)
    return sum(each.tokens.total for each in found.sums.values())


def say(client: steno.BlockingClient, session: str, number: int) -> None:
    """Append an answer to the context, as its list is asked, and to the transcript."""
    opened = client.open(session, follow=False)
    opened.append_message({"role": "assistant", "content": str(number)})
    opened.stream("claude-code").append(claude_answer(str(number), "0", "x"))


def test_what_was_added_is_counted_and_nothing_twice(
    ledger: Ledger, client: steno.BlockingClient
) -> None:
    say(client, "a", 1)
    update(ledger, client)
    update(ledger, client)
    assert tokens(ledger, "a") == 120
    say(client, "a", 2)
    say(client, "b", 1)
    update(ledger, client)
    assert tokens(ledger, "a") == 240
    assert tokens(ledger, "b") == 0, "it has a copy of the first request"


def test_a_transcript_that_begins_anew_is_counted_anew(
    ledger: Ledger, client: steno.BlockingClient
) -> None:
    for number in (1, 2):
        say(client, "a", number)
    update(ledger, client)
    client.session("a").stream("claude-code").delete()
    say(client, "a", 2)
    update(ledger, client)
    assert tokens(ledger, "a") == 120


def test_counts_that_a_revert_left_behind_were_spent(
    ledger: Ledger, client: steno.BlockingClient
) -> None:
    session = client.open("own", follow=False)
    session.update_token_count(100)
    session.checkpoint()
    session.update_token_count(20)
    update(ledger, client)
    assert tokens(ledger, "own") == 120
    session.revert_to(0)
    session.update_token_count(3)
    session.fork("other")
    update(ledger, client)
    assert tokens(ledger, "own") + tokens(ledger, "other") == 123


def test_a_new_ledger_counts_past_generations(ledger: Ledger, client: steno.BlockingClient) -> None:
    session = client.open("own", follow=False)
    session.update_token_count(100)
    session.clear()
    session.update_token_count(20)
    update(ledger, client)
    assert tokens(ledger, "own") == 120


def test_a_new_ledger_counts_compressed_generations(
    ledger: Ledger, client: steno.BlockingClient, root: Path
) -> None:
    session = client.open("own", follow=False)
    for count in (100, 30, 20):
        session.append_message({"role": "user", "content": "again " * 50})
        session.update_token_count(count)
        session.clear()
    names = compress_past(root / "sessions" / "own")
    assert names == ["context_1.jsonl.zst", "context_2.jsonl.zst", "context_3.jsonl"]
    update(ledger, client)
    assert tokens(ledger, "own") == 150


def test_an_update_may_be_interrupted_and_sessions_forgotten(
    ledger: Ledger, client: steno.BlockingClient
) -> None:
    for name in ("a", "b"):
        client.open(name, follow=False).update_token_count(5)
    asked = iter([False, True])
    assert not ledger.update(client.sessions(), lambda: next(asked))
    assert len(ledger.accounts) == 1
    update(ledger, client)
    ledger.keep(["b"])
    assert list(ledger.accounts) == ["b"]
    client.delete("b")
    assert ledger.update([]), "nothing to do"


def test_a_session_that_goes_meanwhile_is_passed_over(
    ledger: Ledger, client: steno.BlockingClient
) -> None:
    client.open("a", follow=False).update_token_count(5)
    found = client.sessions()
    client.delete("a")
    assert ledger.update(found)
    assert not ledger.accounts or tokens(ledger, "a") == 0


def test_half_a_line_waits_for_its_end(client: steno.BlockingClient, root: Path) -> None:
    say(client, "a", 1)
    ledger = Ledger(client, root / "sessions")
    file = root / "sessions" / "a" / "stream-claude-code.jsonl"
    line = json.dumps(claude_answer("2", "0", "x")).encode() + b"\n"
    handle = os.open(file, os.O_WRONLY | os.O_APPEND)
    os.write(handle, line[:40])
    update(ledger, client)
    assert tokens(ledger, "a") == 120
    os.write(handle, line[40:])
    os.close(handle)
    update(ledger, client)
    assert tokens(ledger, "a") == 240


def test_a_compressed_transcript_is_counted_once_whatever_form_it_has(
    root: Path, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with steno.connect_sync(root) as before:
        say(before, "a", 1)
    daemon.stop()
    folder = root / "sessions" / "a"
    assert compress_streams(folder) == ["stream-claude-code.jsonl.zst"]
    with DaemonInThread(root), steno.connect_sync(root) as client:
        ledger = Ledger(client, root / "sessions")
        update(ledger, client)
        assert tokens(ledger, "a") == 120
        with monkeypatch.context() as patch:
            # What was read whole is not expanded again.
            patch.setattr("steno_agents.ledger.expanded", None)
            update(ledger, client)
        say(client, "a", 2)
        assert (folder / "stream-claude-code.jsonl").exists()
        update(ledger, client)
        assert (tokens(ledger, "a"), ledger.unread) == (240, {})
    assert compress_streams(folder) == ["stream-claude-code.jsonl.zst"]
    with DaemonInThread(root), steno.connect_sync(root) as client:
        asked = Ledger(client, None)
        for each in (ledger, asked):
            update(each, client)
            assert (tokens(each, "a"), each.unread) == (240, {})


def test_a_damaged_compressed_transcript_is_named(root: Path, daemon: DaemonInThread) -> None:
    with steno.connect_sync(root) as before:
        say(before, "a", 1)
    daemon.stop()
    (name,) = compress_streams(root / "sessions" / "a")
    packed = root / "sessions" / "a" / name
    packed.write_bytes(packed.read_bytes()[:-3])
    with DaemonInThread(root), steno.connect_sync(root) as client:
        for ledger in (Ledger(client, root / "sessions"), Ledger(client, None)):
            update(ledger, client)
            assert name in ledger.unread["a"]
            assert "damaged" in ledger.unread["a"]

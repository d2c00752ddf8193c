"""The first page's look: families, projects, tokens of today, bounds and masks."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import steno
from steno.values import Record
from steno_agents.ledger import Ledger
from steno_agents.prices import Prices
from steno_protocol.errors import Corrupt
from steno_protocol.positions import Position
from steno_protocol.replies import SessionEntry
from steno_redact.redactor import Redactor
from steno_view import dashboard as module
from steno_view.dashboard import Dashboard
from steno_view.origins import Origins
from steno_view.pulse import Pulse, Shared
from steno_view.spending import SpendingService
from support.agent_files import (
    CLAUDE_SESSION,
    CODEX,
    CODEX_SESSION,
    claude_answer,
    claude_file,
    claude_node,
    codex_file,
    write_lines,
)
from support.command import Steno

pytestmark = pytest.mark.anyio
SECRET = "sk-proj-0123456789abcdefghij"

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _served(daemon: object) -> None:
    """A daemon of the root."""


@contextmanager
def spending_of(root: Path) -> Iterator[SpendingService]:
    def connect() -> tuple[steno.BlockingClient, Ledger]:
        client = steno.connect_sync(root, spawn=False)
        return client, Ledger(client, root / "sessions")

    prices = Prices({"claude-test-1": {"input": 1e6}}, "USD")
    service = SpendingService(connect, lambda: prices)
    try:
        yield service
    finally:
        service.close()


Look = Callable[[], Any]


class Unshared(Shared[T]):
    """Asks each time: an answer that took long on a busy machine would serve again."""

    async def get(self) -> T:
        """The answer."""
        return await self._ask()


@asynccontextmanager
async def looking(root: Path, at: float | None = None) -> AsyncIterator[Look]:
    """A function that looks, each time at a new list."""
    clock = time.time if at is None else lambda: at
    async with steno.connect(root, spawn=False) as client:
        redactor = Redactor()
        pulse = Pulse(client)
        pulse._sessions = Unshared(client.sessions, 0.0)
        with spending_of(root) as spending:
            yield Dashboard(
                client, pulse, Origins(client, redactor), spending, redactor, clock
            ).look


def now_iso() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Steno:
    """A root with a session of Claude Code, its subagent, one of Codex, and one of steno."""
    steno_ = Steno(root)
    today = {"timestamp": now_iso()}
    agent = claude_file(tmp_path, claude_answer("3", "2", "And the lamp.", **today)).with_suffix("")
    write_lines(
        agent / "subagents" / "agent-7.jsonl",
        [claude_node("9", None, "user", "look around", isSidechain=True)],
    )
    codex_file(tmp_path)
    for place in (".claude/projects", ".codex/sessions"):
        assert steno_("import", str(tmp_path / place)).code == 0
    steno_("append", "own", "hi", "--create")
    return steno_


async def test_sessions_run_under_their_projects_and_subagents_under_their_session(
    run: Steno, root: Path
) -> None:
    async with looking(root) as look:
        found = await look()
    running = {each["session"]: each for each in found["running"]}
    assert set(running) == {CLAUDE_SESSION, CODEX_SESSION, "own"}
    claude = running[CLAUDE_SESSION]
    assert (claude["title"], claude["project"]) == ("The till", "/srv/shop")
    assert (claude["role"], claude["words"]) == ("assistant", "And the lamp.")
    assert claude["origin"]["resume"].startswith("cd /srv/shop && claude --resume")
    assert claude["tokens"] == 120, "the other answer is of another day"
    assert [each["title"] for each in claude["subagents"]] == ["look around"]
    assert running["own"]["origin"] is None
    groups = {(each["project"], each["program"]): each for each in found["projects"]}
    assert groups["/srv/shop", "Claude Code"]["sessions"] == 2
    assert groups["/srv/shop", "Claude Code"]["tokens"] == 120
    assert groups["/srv/bakery", "Codex"]["running"] == 1
    assert ("", "steno") in groups
    today = found["today"]
    assert (today["sessions"], today["tokens"], today["is_complete"]) == (4, 120, True)
    assert (today["cost"], today["currency"]) == (5.0, "USD")


async def test_a_subagent_of_codex_stands_below_its_session(
    run: Steno, root: Path, tmp_path: Path
) -> None:
    file = codex_file(tmp_path / "second")
    other = "99999999-89ab-7cde-8f01-23456789abcd"
    text = file.read_text().replace(CODEX, other)
    spawned = f'"source": {{"subagent": {{"thread_spawn": {{"parent_thread_id": "{CODEX}"}}}}}}'
    file.write_text(text.replace('"source": "cli"', spawned))
    run("import", str(file))
    async with looking(root) as look:
        await look()
        found = {each["session"]: each for each in (await look())["running"]}
    assert f"codex/{other}" not in found
    assert [each["session"] for each in found[CODEX_SESSION]["subagents"]] == [f"codex/{other}"]


async def test_what_was_not_written_lately_does_not_run_and_yesterday_is_not_today(
    run: Steno, root: Path
) -> None:
    async with looking(root, time.time() + module.RUNNING_S + 1) as look:
        assert (await look())["running"] == []
    async with looking(root, time.time() + 2 * 86_400) as look:
        found = await look()
    assert found["projects"] == []
    assert found["today"]["sessions"] == 0


async def test_a_look_reads_only_what_has_changed(
    run: Steno, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with looking(root) as look:
        await look()
        await look()
        asked: list[str] = []
        stat, streams = steno.Session.stat, steno.Session.streams

        async def counted(self: steno.Session) -> Any:
            asked.append(self.id)
            return await stat(self)

        async def listed(self: steno.Session) -> Any:
            asked.append(self.id)
            return await streams(self)

        monkeypatch.setattr(steno.Session, "stat", counted)
        monkeypatch.setattr(steno.Session, "streams", listed)
        await look()
        assert asked == []
        run("append", "own", "again")
        assert {
            each["words"] for each in (await look())["running"] if each["session"] == "own"
        } == {"again"}
        assert asked == ["own"]


async def test_a_look_is_bounded_and_the_next_one_goes_on(
    run: Steno, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ORIGINS_A_LOOK_MAX", 1)
    monkeypatch.setattr(module, "RUNNING_MAX", 2)
    async with looking(root) as look:
        found = await look()
        assert found["not_shown"] == 2
        assert not found["today"]["is_complete"]
        for _ in range(4):
            found = await look()
        assert found["today"]["is_complete"]
        monkeypatch.setattr(module, "TODAY_MAX", 1)
        found = await look()
        assert sum(each["sessions"] for each in found["projects"]) == 1
        assert not found["today"]["is_complete"]


async def test_no_secret_is_on_the_page(root: Path, tmp_path: Path) -> None:
    run = Steno(root)
    failed = {"type": "tool_result", "tool_use_id": "t", "is_error": True,
              "content": f"denied {SECRET}"}  # fmt: skip
    file = claude_file(
        tmp_path,
        claude_answer("3", "2", f"The key is {SECRET}", cwd=f"/srv/{SECRET}"),
        claude_node("4", "3", "user", [failed]),
        {"type": "custom-title", "customTitle": f"use {SECRET}", "sessionId": CODEX},
    )
    file.write_text(file.read_text().replace("/srv/shop", f"/srv/{SECRET}"))
    run("import", str(file))
    async with looking(root) as look:
        found = await look()
    assert SECRET not in repr(found)
    (only,) = found["running"]
    assert only["origin"]["resume"] is None
    assert only["failed"] == 1
    assert "[redacted: openai-key]" in only["words"]
    assert "[redacted: openai-key]" in only["error"]
    assert "[redacted: openai-key]" in only["title"]
    assert "[redacted: openai-key]" in found["projects"][0]["project"]


async def test_a_damaged_session_does_not_hide_the_others(
    run: Steno, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, streams = steno.Session.stat, steno.Session.streams

    async def failing(self: steno.Session) -> Any:
        if self.id == "own":
            raise Corrupt("damaged")
        return await stat(self)

    async def unlisted(self: steno.Session) -> Any:
        if self.id == "own":
            raise Corrupt("damaged")
        return await streams(self)

    monkeypatch.setattr(steno.Session, "stat", failing)
    monkeypatch.setattr(steno.Session, "streams", unlisted)
    async with looking(root) as look:
        words = {each["session"]: each["words"] for each in (await look())["running"]}
    assert words["own"] == ""
    assert words[CODEX_SESSION] == "It is baked."


async def test_a_session_that_goes_meanwhile_is_shown_without_its_end(
    run: Steno, root: Path
) -> None:
    async with steno.connect(root, spawn=False) as client:
        listed = await client.sessions()
        await client.delete("own")

        async def old() -> list[SessionEntry]:
            return listed

        redactor, pulse = Redactor(), Pulse(client)
        pulse._sessions = Unshared(old, 0.0)
        with spending_of(root) as spending:
            origins = Origins(client, redactor)
            found = await Dashboard(client, pulse, origins, spending, redactor).look()
    assert [each["words"] for each in found["running"] if each["session"] == "own"] == [""]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\n\n b", "a b"),
        ([{"type": "text", "text": "x"}, {"type": "think", "think": "t"}, 5, None], "x"),
        ([{"type": "text", "text": 5}], ""),
        (None, ""),
        (7, ""),
        ("x" * 1000, "x" * module.WORDS_CHARS_MAX + "…"),
    ],
)
def test_last_words_are_texts_on_one_line(content: object, words: str) -> None:
    record = Record(Position(0, 0), {"role": "user", "content": content}, b"")
    assert module._end_of((0.0, 0), [record]).words == words


async def test_an_answer_that_took_long_serves_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    asked = 0

    async def ask() -> int:
        nonlocal now, asked
        now, asked = now + 0.5, asked + 1
        return asked

    shared = Shared(ask, 2.0)
    assert await shared.get() == 1
    now += 4.4
    assert await shared.get() == 1
    now += 0.2
    assert await shared.get() == 2

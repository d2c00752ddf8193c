"""Compaction through both clients, with a function of the test as model."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import steno
from steno import (
    BadRequest,
    BlockingSession,
    Busy,
    Client,
    Conflict,
    Expired,
    Position,
    Session,
    Summary,
    connect,
    connect_sync,
)
from steno._sansio.summaries import COMPACTION_PROMPT, summary_record
from steno_protocol import commands, limits

replace = msgspec.structs.replace

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("no_blocking_calls"),
    pytest.mark.served,
]

NOTES = "<current_focus>the demo</current_focus>"


def message(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


TALK = [message("one"), message("two", "assistant"), message("three"), message("four", "assistant")]


async def talked(client: Client, session: str = "demo") -> Session:
    """A session of a system prompt and four messages."""
    opened = await client.open(session)
    await opened.write_system_prompt("be nice")
    await opened.append_message(TALK)
    return opened


async def notes(_: object) -> str:
    return NOTES


async def never(_: object) -> str:
    raise AssertionError("the model must not be asked")


def asked(request: Sequence[dict[str, Any]]) -> list[str]:
    """The texts that a model was given."""
    [only] = request
    return [part["text"] for part in only["content"]]


async def test_a_summary_takes_the_place_of_all_but_the_last_messages(root: Path) -> None:
    seen: list[list[dict[str, Any]]] = []

    async def summarize(request: list[dict[str, Any]]) -> Summary:
        seen.append(request)
        return Summary([{"type": "think", "think": "hm"}, {"type": "text", "text": NOTES}], 700)

    async with connect(root) as client:
        session = await talked(client)
        done = await session.compact(summarize, why="full", instruction="Keep the names.")
        assert done is not None
        assert session.history == [summary_record(NOTES), *TALK[2:]]
        assert session.system_prompt == "be nice"
        assert session.checkpoints == [(0, Position(1, 1))]
        # The model's own count, and an estimate of the nine characters that stay.
        assert session.token_count == 702
        assert (done.messages, done.summary, done.tokens) == (2, NOTES, 700)
        assert (done.checkpoint_id, done.cut, done.at) == (0, Position(0, 3), Position(0, 5))
        assert done.ack.rotated == root / "sessions" / "demo" / "context_1.jsonl"
        [request] = seen
        *parts, prompt = asked(request)
        assert parts == ["[message 1: user]\none\n", "[message 2: assistant]\ntwo\n"]
        assert prompt.startswith(COMPACTION_PROMPT)
        assert prompt.endswith("Keep the names.")
        happened = [entry for entry in await session.timeline() if entry.kind == "compacted"]
        assert [entry.why for entry in happened] == ["full"]
        await session.restore_generation(0)
        assert session.history == TALK


async def test_messages_during_the_model_call_are_kept_in_order(root: Path) -> None:
    async with connect(root) as client, connect(root) as other:
        session = await talked(client)
        beside = await other.open("demo", follow=False)

        async def summarize(_: object) -> str:
            await beside.append_message(message("five"))
            await beside.checkpoint(add_user_message=True)
            await beside.update_token_count(1000)
            await beside.append_message(message("six"))
            return NOTES

        done = await session.compact(summarize)
        assert done is not None
        texts = [entry["content"] for entry in session.history[1:]]
        assert texts == ["three", "four", "five", "<system>CHECKPOINT 1</system>", "six"]
        assert session.history == (await other.open("demo")).history
        assert [number for number, _ in session.checkpoints] == [0, 1]
        assert session.n_checkpoints == 2


async def test_with_too_little_to_summarise_the_model_is_not_asked(session: Session) -> None:
    assert await session.compact(never) is None
    await session.append_message(TALK[:2])
    assert await session.compact(never) is None
    await session.append_message(TALK[2:])
    assert await session.compact(never, preserve=0) is None
    assert await session.compact(never, preserve=4) is None
    assert session.history == TALK


async def hang(_: object) -> str:
    await anyio.sleep_forever()
    raise AssertionError


async def fail(_: object) -> str:
    raise OSError("the model is on fire")


async def empty(_: object) -> str:
    return " \n"


@pytest.mark.parametrize(
    ("summarize", "error"),
    [(fail, OSError), (empty, BadRequest), (hang, Expired)],
)
async def test_a_model_error_leaves_the_session_unchanged_and_releases_the_lease(
    root: Path, summarize: Any, error: type[Exception]
) -> None:
    async with connect(root, name="first") as client, connect(root, name="second") as other:
        session = await talked(client)
        timeout = 0.01 if summarize is hang else None
        with pytest.raises(error):
            await session.compact(summarize, timeout=timeout)
        assert session.history == TALK
        assert await (await other.open("demo")).compact(notes) is not None


async def test_a_cancelled_compaction_leaves_the_session_unchanged_and_releases_the_lease(
    root: Path,
) -> None:
    async with connect(root, name="first") as client, connect(root, name="second") as other:
        session = await talked(client)
        asked_model = anyio.Event()

        async def summarize(_: object) -> str:
            asked_model.set()
            return await hang(_)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.compact, summarize)
            await asked_model.wait()
            tasks.cancel_scope.cancel()
        assert session.history == TALK
        assert await (await other.open("demo")).compact(notes) is not None


async def test_closing_a_client_releases_its_compaction_lease(root: Path) -> None:
    asked_model = anyio.Event()

    async def summarize(_: object) -> str:
        asked_model.set()
        return await hang(_)

    async with connect(root, name="second") as other, anyio.create_task_group() as tasks:
        async with connect(root, name="first") as client:
            session = await talked(client)
            tasks.start_soon(session.compact, summarize)
            await asked_model.wait()
        assert await (await other.open("demo")).compact(notes) is not None
        tasks.cancel_scope.cancel()


def test_closing_a_blocking_client_releases_its_compaction_lease(root: Path) -> None:
    with connect_sync(root, name="first") as client, connect_sync(root, name="second") as other:
        session = talked_sync(client)

        def summarize(_: object) -> str:
            client.close()
            assert other.open("demo").compact(lambda _: NOTES) is not None
            return NOTES

        with pytest.raises(BadRequest, match="closed"):
            session.compact(summarize)


async def test_a_second_compactor_is_refused_at_once_with_the_holder(root: Path) -> None:
    async with connect(root, name="first") as client, connect(root, name="second") as other:
        session = await talked(client)
        beside = await other.open("demo")

        async def summarize(_: object) -> str:
            with anyio.fail_after(10), pytest.raises(Busy, match="first"):
                await beside.compact(never)
            return NOTES

        assert await session.compact(summarize) is not None


async def test_a_revert_that_comes_between_is_a_conflict_and_wins(session: Session) -> None:
    await session.append_message(TALK)
    await session.checkpoint()
    await session.append_message(message("five"))

    async def summarize(_: object) -> str:
        await session.revert_to(0)
        return NOTES

    with pytest.raises(Conflict):
        await session.compact(summarize)
    assert session.history == TALK
    assert await session.compact(notes) is not None


async def test_the_lease_is_renewed_while_the_model_thinks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPACTION_LEASE_MS", 60)
    renewed = anyio.Event()
    begun: list[str] = []
    async with connect(root) as client:
        session = await talked(client)
        ask = session._link.ask

        async def spy(command: commands.Command, *rest: Any, **more: Any) -> Any:
            if isinstance(command, commands.CompactBegin):
                begun.append(command.lease)
                if len(begun) == 4:
                    renewed.set()
            return await ask(command, *rest, **more)

        monkeypatch.setattr(session._link, "ask", spy)

        async def summarize(_: object) -> str:
            with anyio.fail_after(30):
                await renewed.wait()
            return NOTES

        done = await session.compact(summarize)
        assert done is not None
        assert set(begun) == {done.ack.key}


async def test_a_compaction_with_the_same_key_gets_the_first_result(client: Client) -> None:
    session = await talked(client)
    await session.append_message([message(f"{number}") for number in range(9)])

    async def summarize(_: object) -> Summary:
        await session.append_message(message("meanwhile"))
        return Summary([{"type": "text", "text": NOTES}], 700)

    first = await session.compact(summarize, key="k1")
    assert first is not None
    for rewrite in (session.checkpoint, session.clear):
        again = await session.compact(never, key="k1")
        assert again is not None
        assert again.ack.duplicate
        assert replace(again, ack=replace(again.ack, duplicate=False)) == first
        await rewrite()
    again = await session.compact(never, key="k1")
    assert again is not None
    assert again.summary == NOTES
    assert session.history == []


async def test_two_compactions_with_one_key_return_the_same_summary(root: Path) -> None:
    async with connect(root) as client, connect(root) as other:
        session = await talked(client)

        async def summarize(_: object) -> str:
            await other.session("demo").compact(notes, key="k1")
            return "too late"

        done = await session.compact(summarize, key="k1")
        assert done is not None
        assert (done.ack.duplicate, done.summary, done.messages) == (True, NOTES, 2)
        assert session.history == [summary_record(NOTES), *TALK[2:]]
        await session.append_message([message("five"), message("six")])
        assert await session.compact(notes) is not None, "a repeat keeps nobody out"


async def test_a_past_state_after_a_compaction_has_the_right_next_id(session: Session) -> None:
    await session.checkpoint()
    await session.append_message(TALK)
    done = await session.compact(notes)
    assert done is not None
    assert done.checkpoint_id == 1
    await session.revert_to(1)
    assert session.n_checkpoints == 2
    for at in (None, 2, "2:0"):
        assert (await session.history_at(at)).n_checkpoints == 2
    await session.checkpoint()
    await session.clear()
    assert (await session.history_at("2:0")).n_checkpoints == 2
    assert (await session.history_at()).n_checkpoints == session.n_checkpoints == 3


@pytest.mark.served(False)
async def test_a_daemon_that_dies_while_the_model_thinks_is_no_harm(client: Client) -> None:
    session = await talked(client)

    async def summarize(_: object) -> str:
        assert client.welcome is not None
        os.kill(client.welcome.pid, signal.SIGKILL)
        await session.append_message(message("five"))
        return NOTES

    assert await session.compact(summarize) is not None
    assert session.history == [summary_record(NOTES), *TALK[2:], message("five")]


async def test_the_mirror_says_when_to_compact(session: Session) -> None:
    await session.update_token_count(800)
    assert not session.should_compact(1000, reserved=0)
    await session.append_message(message("x" * 200))
    assert session.should_compact(1000, reserved=0)
    assert session.should_compact(2000, reserved=1150)
    assert not session.should_compact(2000, reserved=1149)
    assert session.should_compact(2000, reserved=0, ratio=0.4)


# --- the blocking client -------------------------------------------------------------------------


def talked_sync(client: steno.BlockingClient) -> BlockingSession:
    session = client.open("demo")
    session.append_message(TALK)
    return session


def test_the_blocking_client_compacts_as_the_async_one_does(root: Path) -> None:
    seen: list[list[dict[str, Any]]] = []

    def summarize(request: list[dict[str, Any]]) -> Summary:
        seen.append(request)
        session.append_message(message("five"))
        return Summary(NOTES, 700)

    with connect_sync(root) as client:
        session = talked_sync(client)
        assert not session.should_compact(100_000)
        done = session.compact(summarize, why="full", instruction="Keep the names.")
        assert done is not None
        assert session.history == [summary_record(NOTES), *TALK[2:], message("five")]
        assert (done.messages, done.summary, done.tokens) == (2, NOTES, 700)
        assert asked(seen[0])[-1].endswith("Keep the names.")
        happened = [entry for entry in session.timeline() if entry.kind == "compacted"]
        assert [entry.why for entry in happened] == ["full"]
        assert session.compact(summarize, preserve=9) is None


def test_a_repeat_by_the_blocking_client_releases_the_lease(root: Path) -> None:
    with connect_sync(root) as client:
        session = client.open("demo")
        session.append_message([message(f"{number}") for number in range(9)])
        for is_repeat in (False, True):
            texts = ["more notes", "notes"]
            done = session.compact(lambda _, texts=texts: texts.pop(), key="k1")
            assert done is not None
            found = (done.ack.duplicate, done.summary, done.tokens, done.messages)
            assert found == (is_repeat, "notes", 1, 7)
            assert len(texts) == 1 + is_repeat
        assert session.compact(lambda _: "more notes") is not None


def test_a_failing_blocking_model_releases_the_lease_without_a_change(root: Path) -> None:
    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    with connect_sync(root, name="first") as client, connect_sync(root, name="second") as other:
        session = talked_sync(client)
        with pytest.raises(KeyboardInterrupt):
            session.compact(interrupted)
        with pytest.raises(BadRequest):
            session.compact(lambda _: "")
        assert session.history == TALK

        def summarize(_: object) -> str:
            with pytest.raises(Busy, match="first"):
                other.open("demo").compact(lambda _: NOTES)
            return NOTES

        assert session.compact(summarize) is not None

"""The session of the OpenAI Agents SDK, compared with the SDK's own."""

import inspect
import multiprocessing
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import steno
from interop.adapter_processes import pop_items
from interop.frameworks import framework
from steno.adapters.openai_agents import StenoSession

memory = framework("agents.memory")
compaction = framework("agents.memory.openai_responses_compaction_session")
run_items = framework("agents.run_internal.items")

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

# The SDK runs on asyncio only.
BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@BACKENDS
async def test_2_000_random_operations_equal_those_of_sqlite(
    client: steno.Client, seed: int
) -> None:
    drawn = random.Random(seed)
    theirs, ours = memory.SQLiteSession("talk"), StenoSession("talk", client)
    number = 0
    for _ in range(2000):
        match drawn.choice(["add", "add", "add", "pop", "pop", "get", "clear or get"]):
            case "add":
                items = [item(str(number + each)) for each in range(drawn.randint(0, 4))]
                number += len(items)
                await theirs.add_items(items)
                await ours.add_items(items)
            case "pop":
                assert await ours.pop_item() == await theirs.pop_item()
            case "clear or get" if drawn.random() < 0.1:
                await theirs.clear_session()
                await ours.clear_session()
            case _:
                limit = drawn.choice([None, -1, 0, 1, 3, drawn.randint(2, 200)])
                assert await ours.get_items(limit) == await theirs.get_items(limit)
    assert await ours.get_items() == await theirs.get_items()
    theirs.close()


@BACKENDS
async def test_it_is_a_session_of_the_sdk(client: steno.Client) -> None:
    assert isinstance(StenoSession("talk", client), memory.Session)


@BACKENDS
async def test_the_limit_of_the_settings_is_used(client: steno.Client) -> None:
    settings = memory.SessionSettings(limit=2)
    session = StenoSession("talk", client, settings)
    await session.add_items([item("a"), item("b"), item("c")])
    assert await session.get_items() == [item("b"), item("c")]
    assert await session.get_items(3) == [item("a"), item("b"), item("c")]


@BACKENDS
async def test_settings_in_a_dict_are_those_of_the_sdk(client: steno.Client) -> None:
    assert StenoSession("talk", client, {"limit": 2}).session_settings.limit == 2
    with pytest.raises(TypeError):
        StenoSession("talk", client, {"limits": 2})


@BACKENDS
async def test_a_call_of_several_batches_with_an_odd_item_stores_nothing(
    client: steno.Client,
) -> None:
    session = StenoSession("talk", client)
    with pytest.raises(steno.BadRequest):
        await session.add_items([*[item("a")] * 5000, {"content": float("nan")}])
    assert await session.get_items() == []


@BACKENDS
@pytest.mark.parametrize("name", ["", "x" * 300, "\ud800"], ids=["empty", "long", "surrogate"])
async def test_any_text_names_a_conversation(client: steno.Client, name: str) -> None:
    await StenoSession(name, client).add_items([item("a")])
    assert await StenoSession(name, client).get_items() == [item("a")]


@BACKENDS
async def test_a_compaction_replaces_all_items_in_one_batch(client: steno.Client) -> None:
    session = StenoSession("talk", client)
    await session.add_items([item("a"), item("b")])
    outer = compaction.OpenAIResponsesCompactionSession("talk", underlying_session=session)
    await outer._replace_underlying_session_items(
        output_items=[item("summary")], previous_items=[item("a"), item("b")]
    )
    assert await outer.get_items() == [item("summary")]
    stream = await client.session("openai/talk").stream("items")
    last = await stream.last(2)
    assert [record.record for record in last] == [{"clear": True}, {"item": item("summary")}]
    assert len({record.key for record in last}) == 1


@BACKENDS
async def test_half_an_emoji_is_kept(client: steno.Client) -> None:
    theirs, ours = memory.SQLiteSession("talk"), StenoSession("talk", client)
    for session in (theirs, ours):
        await session.add_items([item("cut \ud83d"), item("whole \U0001f44d")])
    assert await ours.get_items() == await theirs.get_items()
    await ours._atomic_replace_items([item("\udc4d")])
    assert await ours.pop_item() == item("\udc4d")
    theirs.close()


class Summarising:
    """A client of the API whose summary takes as long as another process needs to add items."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self.responses = self
        self._meanwhile = meanwhile

    async def compact(self, **_: Any) -> Any:
        await self._meanwhile()
        return SimpleNamespace(usage=None, output=[item("summary")])


async def compacted(session: Any, meanwhile: Callable[[], Awaitable[None]]) -> list[Any]:
    """Compact as the SDK's runner does after a turn; returns the items."""
    model_items = await session.get_items()
    digests = tuple(map(run_items.digest_input_item, model_items))
    outer = compaction.OpenAIResponsesCompactionSession(
        "talk",
        underlying_session=session,
        client=Summarising(meanwhile),
        should_trigger_compaction=lambda _: True,
    )
    wrapper = SimpleNamespace(
        _session_compaction_is_automatic=True,
        _session_compaction_model_exchange=(digests, None),
    )
    await outer.run_compaction({"compaction_mode": "input"}, wrapper=wrapper)
    return await session.get_items()


@BACKENDS
@pytest.mark.parametrize("kind", ["theirs", "ours"])
async def test_an_item_that_is_added_while_one_compacts_stays(
    client: steno.Client, kind: str
) -> None:
    session = StenoSession("talk", client) if kind == "ours" else memory.SQLiteSession("talk")
    await session.add_items([item("a"), item("b")])

    async def add() -> None:
        other = StenoSession("talk", client) if kind == "ours" else session
        await other.add_items([item("meanwhile")])

    assert await compacted(session, add) == [item("a"), item("b"), item("meanwhile")]


@BACKENDS
async def test_an_undisturbed_compaction_replaces_what_the_model_saw(client: steno.Client) -> None:
    session = StenoSession("talk", client)
    await session.add_items([item("a"), item("b")])
    assert await compacted(session, anyio.lowlevel.checkpoint) == [item("summary")]


@BACKENDS
async def test_a_snapshot_replaces_a_suffix_and_only_once(client: steno.Client) -> None:
    theirs, ours = memory.SQLiteSession("talk"), StenoSession("talk", client)
    for session in (theirs, ours):
        await session.add_items([item(str(number)) for number in range(5)])
        whole, part = [await session._get_compaction_snapshot(limit) for limit in (5, 3)]
        assert (whole.complete, part.complete) == (True, False)
        assert part.items == [item("2"), item("3"), item("4")]
        assert not await part.replace_suffix(3, [item("x")])
        assert await part.replace_suffix(1, [item("x"), item("y")])
        assert await session.get_items() == [item(each) for each in ("0", "1", "2", "x", "y")]
        assert not await whole.replace_suffix(0, [item("z")])
    theirs.close()


def test_the_hooks_of_the_sdk_are_those_that_this_release_was_written_for() -> None:
    """They are private: a new release may call others, and would then use none of ours."""
    source = inspect.getsource(compaction)
    assert '"_get_compaction_snapshot"' in source
    assert '"_atomic_replace_items"' in source
    assert "await read_snapshot(len(model_items) + 1)" in source
    assert "await snapshot.replace_suffix(suffix_start, output_items)" in source
    snapshot = framework("agents.memory.session")._CompactionSnapshot
    assert list(inspect.signature(snapshot).parameters) == ["items", "complete", "replace_suffix"]


@BACKENDS
async def test_items_before_a_clear_are_not_read(client: steno.Client) -> None:
    session = StenoSession("talk", client)
    await session.add_items([item(str(number)) for number in range(300)])
    await session.clear_session()
    await session.add_items([item("new")])
    assert await session.get_items(100) == [item("new")]
    assert await session.pop_item() == item("new")
    assert await session.pop_item() is None


@BACKENDS
@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()], ids=["nan", "set", "object"])
async def test_an_item_that_is_not_json_is_refused_and_nothing_is_stored(
    client: steno.Client, value: object
) -> None:
    session = StenoSession("talk", client)
    with pytest.raises((steno.StenoError, TypeError, ValueError)):
        await session.add_items([item("a"), {"role": "user", "content": value}])
    assert await session.get_items() == []


@BACKENDS
@pytest.mark.parametrize("damaged", [0, 2])
async def test_a_damaged_line_is_left_out(client: steno.Client, root: Path, damaged: int) -> None:
    session = StenoSession("talk", client)
    items = [item("a"), item("b"), item("c")]
    await session.add_items(items)
    file = root / "sessions/openai/talk/stream-items.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[damaged] = b"X" + lines[damaged][1:]
    file.write_bytes(b"".join(lines))
    del items[damaged]
    with anyio.fail_after(60):
        assert await session.get_items() == items
        assert await session.get_items(3) == items
        assert [await session.pop_item() for _ in range(3)] == [items[1], items[0], None]


@BACKENDS
async def test_the_death_of_the_daemon_is_a_delay(client_of_process: steno.Client) -> None:
    session = StenoSession("talk", client_of_process)
    for number in range(10):
        await session.add_items([item(str(number)), item(f"{number} again")])
        os.kill(client_of_process.welcome.pid, signal.SIGKILL)
        assert await session.pop_item() == item(f"{number} again")
    assert await session.get_items() == [item(str(number)) for number in range(10)]


@BACKENDS
async def test_two_processes_pop_each_item_once(client: steno.Client, root: Path) -> None:
    texts = [str(number) for number in range(60)]
    await StenoSession("talk", client).add_items([item(text) for text in texts])
    spawn = multiprocessing.get_context("spawn")
    popped: multiprocessing.Queue[str] = spawn.Queue()
    takers = [spawn.Process(target=pop_items, args=(str(root), popped)) for _ in range(2)]
    for taker in takers:
        taker.start()
    found = [await anyio.to_thread.run_sync(lambda: popped.get(timeout=60)) for _ in texts]
    for taker in takers:
        await anyio.to_thread.run_sync(taker.join)
        assert taker.exitcode == 0
    assert sorted(found, key=int) == texts
    assert popped.empty()

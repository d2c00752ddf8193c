"""History and checkpoints of the Microsoft Agent Framework, compared with its own stores."""

import copy
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

import steno
from interop.fake_models import run_maf
from interop.frameworks import framework
from interop.processes import check_two_writers, run_apart
from interop.session_processes import continue_maf_run, save_maf_messages
from steno.adapters.agent_framework import StenoCheckpointStorage, StenoHistoryProvider

maf = framework("agent_framework")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.interop,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def client(client_of_process: steno.Client) -> steno.Client:
    """Some tests kill the daemon."""
    return client_of_process


@pytest.fixture
def history(client: steno.Client) -> Any:
    return StenoHistoryProvider(client)


@pytest.fixture
def storage(client: steno.Client) -> Any:
    return StenoCheckpointStorage(client)


def message(text: Any, role: str = "user", **options: Any) -> Any:
    return maf.Message(role, [text], **options)


def shown(messages: Any) -> list[Any]:
    return [each.to_dict() for each in messages]


async def outcome(work: Any) -> Any:
    try:
        return await work
    except Exception as error:
        return type(error)


@pytest.mark.slow
async def test_2_000_random_saves_equal_those_in_memory(history: Any, seed: int) -> None:
    drawn, theirs = random.Random(seed), maf.InMemoryHistoryProvider()
    states: dict[str | None, dict[str, Any]] = {}
    # So many that a transcript, which is saved again as a whole, stays short.
    places = [None, "talk", "a/b", *map(str, range(13))]
    for number in range(2000):
        place = drawn.choice(places)
        state = states.setdefault(place, {})
        known = await theirs.get_messages(place, state=state)
        role = drawn.choice(["user", "assistant"])
        named = {"message_id": str(number)} if drawn.random() < 0.5 else {}
        new = [message(f"{number}-{n}", role, **named) for n in range(drawn.randint(0, 3))]
        # New messages alone, the end of the transcript before them, or all of it again.
        again = known[len(known) - drawn.choice([0, 0, 1, 2, len(known)]) :] if known else []
        given = [*again, *new] if drawn.random() < 0.7 else new
        await theirs.save_messages(place, given, state=state)
        await history.save_messages(place, given, state={})
        if number % 10 == 0:
            stored = await theirs.get_messages(place, state=state)
            assert shown(await history.get_messages(place, state={})) == shown(stored)


async def test_excluded_messages_are_left_out_if_asked(client: Any, history: Any) -> None:
    gone = message("gone", additional_properties={"_excluded": True})
    await history.save_messages("talk", [gone, message("stays")])
    assert len(await history.get_messages("talk")) == 2
    found = await StenoHistoryProvider(client, skip_excluded=True).get_messages("talk")
    assert [each.text for each in found] == ["stays"]
    assert StenoHistoryProvider(client, "audit", load_messages=False).load_messages is False


def checkpoint(name: str, number: int, workflow: str, **state: Any) -> Any:
    time = datetime.fromtimestamp(number * 7919 % 1000, UTC).isoformat()
    return maf.WorkflowCheckpoint(
        workflow, "hash", checkpoint_id=name, timestamp=time, state={"n": (number,), **state}
    )


@pytest.mark.slow
async def test_2_000_random_operations_equal_those_in_memory(storage: Any, seed: int) -> None:
    drawn, theirs = random.Random(seed), maf.InMemoryCheckpointStorage()
    for number in range(2000):
        name, workflow = drawn.choice("abcdefgh"), drawn.choice(["flow", "ä/ö"])
        # An id belongs to one workflow, as it does where the framework draws it.
        name = f"{name}{workflow}"
        match drawn.choice(["save", "save", "load", "list", "latest", "ids", "delete"]):
            case "save":
                call, given = "save", checkpoint(name, number, workflow)
                found = [await each.save(copy.deepcopy(given)) for each in (storage, theirs)]
            case "load" | "delete" as call:
                found = [await outcome(getattr(each, call)(name)) for each in (storage, theirs)]
            case drawn_call:
                call = {
                    "list": "list_checkpoints", "latest": "get_latest", "ids": "list_checkpoint_ids"
                }[drawn_call]  # fmt: skip
                found = [
                    await getattr(each, call)(workflow_name=workflow) for each in (storage, theirs)
                ]
        assert found[0] == found[1], call


class Unknown:
    """A type that nobody allowed."""


async def test_a_type_that_is_not_allowed_is_refused_as_in_files(
    client: Any, storage: Any, tmp_path: Path
) -> None:
    odd = checkpoint("a", 1, "flow", odd=Unknown())
    refused = maf.WorkflowCheckpointException
    for each in (storage, maf.FileCheckpointStorage(tmp_path)):
        assert await outcome(each.save(odd)) is refused
        assert await outcome(each.load("a")) is refused
    allowed = [f"{__name__}:Unknown"]
    open_storage = StenoCheckpointStorage(client, allowed_checkpoint_types=allowed)
    await open_storage.save(odd)
    assert isinstance((await open_storage.load("a")).state["odd"], Unknown)
    assert await outcome(storage.load("a")) is refused


ODD = ["cut \ud83d", 2**70, -0.0, b"bytes", {1: 2}, "\u2028\0", [[]] * 3, (1,), None]


@pytest.mark.parametrize("value", ODD, ids=[str(number) for number in range(len(ODD))])
async def test_an_odd_value_is_kept(history: Any, storage: Any, tmp_path: Path, value: Any) -> None:
    given = checkpoint("a", 1, "flow", odd=value)
    await storage.save(given)
    kept = (await storage.load("a")).state["odd"]
    if value == {1: 2}:
        # The framework writes such keys as text.
        files = maf.FileCheckpointStorage(tmp_path)
        await files.save(given)
        value = (await files.load("a")).state["odd"]
    assert (repr(kept), type(kept)) == (repr(value), type(value))
    if isinstance(value, str):
        await history.save_messages("talk", [message(value)])
        assert [each.text for each in await history.get_messages("talk")] == [value]


async def test_nan_is_refused_and_nothing_is_stored(
    client: Any, history: Any, storage: Any
) -> None:
    odd = message("a", additional_properties={"n": float("nan")})
    with pytest.raises(steno.BadRequest, match="NaN"):
        await history.save_messages("talk", [odd])
    with pytest.raises(steno.BadRequest, match="NaN"):
        await storage.save(checkpoint("a", 1, "flow", odd=float("nan")))
    assert await client.sessions() == []


@pytest.mark.parametrize("name", ["", "a/b", "ä" * 300, "\ud800", ".."], ids=ascii)
async def test_any_text_is_a_name(history: Any, storage: Any, name: str) -> None:
    await history.save_messages(name, [message("a")])
    assert shown(await history.get_messages(name)) == shown([message("a")])
    given = checkpoint(name, 1, name)
    await storage.save(given)
    assert await storage.load(name) == given
    assert await storage.list_checkpoint_ids(workflow_name=name) == [name]


async def test_two_processes_lose_nothing_while_the_daemon_is_killed(
    client: steno.Client, history: Any, storage: Any, root: Path
) -> None:
    async def texts() -> list[str]:
        return [each.text for each in await history.get_messages("talk")]

    await anyio.to_thread.run_sync(
        lambda: check_two_writers(
            save_maf_messages, str(root), lambda: client.welcome.pid,
            lambda: anyio.from_thread.run(texts),
        )
    )  # fmt: skip
    ids = await storage.list_checkpoint_ids(workflow_name="flow")
    assert sorted(ids) == sorted(await texts())


async def test_10_000_messages_are_saved_and_read(history: Any) -> None:
    given = [message(str(number)) for number in range(10_000)]
    await history.save_messages("talk", given)
    assert len(await history.get_messages("talk")) == 10_000
    await history.save_messages("talk", [*given[-3:], message("new")])
    assert [each.text for each in await history.get_messages("talk")][-2:] == ["9999", "new"]


async def test_an_agent_s_session_is_resumed_by_another_process(root: Path, history: Any) -> None:
    assert await run_maf(str(root), "Hello") == "heard 1: Hello"
    await anyio.to_thread.run_sync(run_apart, continue_maf_run, str(root))
    assert await run_maf(str(root), "Bye") == "heard 5: Bye"
    assert len(await history.get_messages("talk")) == 6

"""The session store of the Claude Agent SDK: its own conformance suite, and what steno adds."""

import multiprocessing
import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import steno
from interop.adapter_processes import write_entries
from interop.frameworks import framework
from steno.adapters.claude_agent_sdk import StenoSessionStore

testing = framework("claude_agent_sdk.testing")
sdk = framework("claude_agent_sdk")

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

KEY = {"project_key": "-srv-shop", "session_id": "11111111-2222-4333-8444-555555555555"}
SUBAGENT = {**KEY, "subpath": "subagents/agent-1"}


def entry(uuid: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "user", **({"uuid": uuid} if uuid else {}), **fields}


async def test_every_contract_of_the_suite_holds(client: steno.Client) -> None:
    numbers = count()
    await testing.run_session_store_conformance(
        lambda: StenoSessionStore(client, f"claude-{next(numbers)}")
    )


async def test_no_optional_method_is_left_out() -> None:
    for name in ("list_sessions", "list_session_summaries", "delete", "list_subkeys"):
        assert callable(getattr(StenoSessionStore, name))


async def test_a_repeated_batch_is_stored_once(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    batch = [entry("a"), entry("b")]
    await store.append(KEY, batch)
    await store.append(KEY, batch)
    stream = await client.session(f"claude/_-srv-shop/{KEY['session_id']}").stream("entries")
    assert await stream.count() == 2


async def test_an_entry_in_two_batches_is_loaded_once(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    await store.append(KEY, [entry("a"), entry("b", n=1)])
    await store.append(KEY, [entry("b", n=2), entry("c"), entry(n=3), entry(n=3)])
    loaded = await store.load(KEY)
    assert loaded == [entry("a"), entry("b", n=1), entry("c"), entry(n=3), entry(n=3)]


async def test_a_subpath_that_was_deleted_begins_again(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    await store.append(SUBAGENT, [entry("a")])
    await store.delete(SUBAGENT)
    assert await store.load(SUBAGENT) is None
    await store.append(SUBAGENT, [entry("a")])
    assert await store.load(SUBAGENT) == [entry("a")]
    assert await store.list_subkeys(KEY) == ["subagents/agent-1"]


async def test_a_session_that_was_deleted_begins_again(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    await store.append(KEY, [entry("a", customTitle="old")])
    await store.delete(KEY)
    assert await store.list_sessions(KEY["project_key"]) == []
    await store.append(KEY, [entry("a")])
    assert await store.load(KEY) == [entry("a")]


async def test_a_summary_that_a_dead_process_did_not_write_is_completed(
    client: steno.Client,
) -> None:
    store = StenoSessionStore(client)
    await store.append(KEY, [entry("a", customTitle="first")])
    stream = await client.session(f"claude/_-srv-shop/{KEY['session_id']}").stream("entries")
    # The entries of a process that died before it wrote the summary.
    await stream.append(entry("b", customTitle="second"))
    (summary,) = await store.list_session_summaries(KEY["project_key"])
    expected = sdk.fold_session_summary(
        None, KEY, [entry("a", customTitle="first"), entry("b", customTitle="second")]
    )
    assert summary["data"] == expected["data"]


async def test_a_session_that_is_deleted_while_summaries_are_listed_is_left_out(
    client: steno.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StenoSessionStore(client)
    other = {**KEY, "session_id": "other"}
    for key in (KEY, other):
        await store.append(key, [entry("a")])
    listed = await store.list_sessions(KEY["project_key"])

    async def listed_before(_: str) -> list[dict[str, Any]]:
        return listed

    await store.delete(other)
    monkeypatch.setattr(store, "list_sessions", listed_before)
    (summary,) = await store.list_session_summaries(KEY["project_key"])
    assert summary["session_id"] == KEY["session_id"]


async def test_any_key_of_the_sdk_names_a_session(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    for name in ("..", "a/b", "-x", "ümlaut", "stream-x.mark", "con text", ".hidden"):
        key = {"project_key": name, "session_id": name}
        await store.append(key, [entry(n=1)])
        assert await store.load(key) == [entry(n=1)]
        assert [each["session_id"] for each in await store.list_sessions(name)] == [name]


async def test_a_project_of_any_length_has_sessions(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    key = {"project_key": sdk.project_key_for_directory(f"/srv/{'x' * 300}"), "session_id": "till"}
    await store.append(key, [entry(n=1)])
    assert await store.load(key) == [entry(n=1)]
    assert [each["session_id"] for each in await store.list_sessions(key["project_key"])] == [
        "till"
    ]


def nested(depth: int) -> object:
    return [] if not depth else [nested(depth - 1)]


@pytest.mark.parametrize(
    "value",
    [float("nan"), {1, 2}, object(), nested(150)],
    ids=["nan", "set", "object", "deep"],
)
@pytest.mark.parametrize("key", [KEY, SUBAGENT], ids=["main", "subpath"])
async def test_an_entry_that_is_not_json_is_refused_and_nothing_is_stored(
    client: steno.Client, key: dict[str, str], value: object
) -> None:
    store = StenoSessionStore(client)
    with pytest.raises(steno.BadRequest) as refused:
        await store.append(key, [entry("a"), entry("b", value=value)])
    assert refused.value.session == f"claude/_-srv-shop/{KEY['session_id']}"
    assert await store.load(key) is None
    assert await store.list_subkeys(KEY) == []
    assert await store.list_sessions(KEY["project_key"]) == []


@pytest.mark.parametrize("text", ["cut \ud83d", "\udc4d", "a\ud800\ud800b \\ud800"])
async def test_half_an_emoji_is_kept_as_the_sdks_own_store_keeps_it(
    client: steno.Client, root: Path, text: str
) -> None:
    theirs, ours = sdk.InMemorySessionStore(), StenoSessionStore(client)
    entries = [
        {"type": "user", "uuid": "a", "message": {"role": "user", "content": text}},
        entry("b", n=1),
    ]
    for key in (KEY, SUBAGENT):
        await theirs.append(key, entries)
        await ours.append(key, entries)
        assert await ours.load(key) == await theirs.load(key) == entries
    await ours.append(KEY, [entry("c", n=2, content=text)])
    [summary] = await ours.list_session_summaries(KEY["project_key"])
    assert summary["data"]["first_prompt"] == text.strip()
    # Every reader of the file can show it.
    for file in root.rglob("stream-*.jsonl"):
        assert "\ud83d" not in file.read_text(encoding="utf-8")
        assert all(msgspec.json.decode(line) for line in file.read_bytes().splitlines())


async def test_the_first_of_several_entries_with_one_uuid_is_loaded(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    await store.append(KEY, [entry("a", n=1), entry("a", n=2)])
    await store.append(KEY, [entry("b", n=3)])
    await store.append(KEY, [entry("b", n=4)])
    assert await store.load(KEY) == [entry("a", n=1), entry("b", n=3)]


async def test_an_entry_that_is_too_large_is_refused(client: steno.Client) -> None:
    store = StenoSessionStore(client)
    with pytest.raises(steno.TooLarge):
        await store.append(KEY, [entry("a"), entry("b", text="x" * 20_000_000)])
    assert await store.load(KEY) is None


async def test_the_death_of_the_daemon_is_a_delay(client_of_process: steno.Client) -> None:
    store = StenoSessionStore(client_of_process)
    for number in range(10):
        await store.append(KEY, [entry(f"{number}")])
        os.kill(client_of_process.welcome.pid, signal.SIGKILL)
    loaded = await store.load(KEY)
    assert loaded == [entry(f"{number}") for number in range(10)]


async def test_several_processes_lose_no_entry_and_keep_one_summary(
    client: steno.Client, root: Path
) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [
        spawn.Process(target=write_entries, args=(str(root), KEY, f"w{n}", 20)) for n in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        await anyio.to_thread.run_sync(writer.join)
        assert writer.exitcode == 0
    store = StenoSessionStore(client)
    loaded = await store.load(KEY)
    assert loaded is not None
    assert len(loaded) == 80
    for name in ("w0", "w1", "w2", "w3"):
        own = [each["uuid"] for each in loaded if each["uuid"].startswith(name)]
        assert own == [f"{name}-{number}" for number in range(20)]
    (summary,) = await store.list_session_summaries(KEY["project_key"])
    assert summary["data"] == sdk.fold_session_summary(None, KEY, loaded)["data"]

"""The resources of `steno mcp` and their updates, over stdin and stdout."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

import steno
from interop.mcp_hosts import (
    WAIT_S,
    Updates,
    hosting,
    is_followed,
    mcp,
    types,
    wait_until_not,
)
from steno_mcp import limits
from steno_protocol import paths
from support.command import Steno

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.interop,
    # Hosts of the older protocol send it, and the SDK has no other way to do so.
    pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed"),
]

SESSION = "team/planner-1"
URI = "steno://session/team%2Fplanner-1"
UNKNOWN = (
    "steno://session/none",
    "steno://session/none/wire.jsonl",
    "steno://session/team/planner-1",
    f"{URI}/passwd",
    f"{URI}/stream/..%2Fwire.jsonl",
    "steno://session/..%2F..%2Fetc",
    "steno://session/%ff",
    "steno://session/a%00b",
    "steno://session/",
    "steno://session/" + "a" * 100_000,
    "file:///etc/passwd",
    "",
)
OLD, NEW = "2025-11-25", "2026-07-28"


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The server is a process with a loop of its own: that of its peer changes nothing there."""
    return "asyncio"


@pytest.fixture
async def writer(root: Path) -> AsyncIterator[steno.Client]:
    """Another program that writes the sessions of a root of its own."""
    async with steno.connect(root, name="writer") as client:
        await fill(client, SESSION)
        yield client


@pytest.fixture(scope="module")
async def other(shared_root: Path, anyio_backend: str) -> AsyncIterator[steno.Client]:
    """Another program, for the tests that share a host."""
    async with steno.connect(shared_root, name="writer") as client:
        await fill(client, SESSION)
        yield client


@pytest.fixture(scope="module")
def updates() -> Updates:
    """The updates that the shared host got."""
    return Updates()


@pytest.fixture(scope="module")
async def agent(shared_root: Path, other: steno.Client, updates: Updates) -> AsyncIterator[Any]:
    """A host that tests share."""
    async with hosting(shared_root, mode="legacy", updates=updates) as agent:
        yield agent


async def fill(client: steno.Client, name: str) -> None:
    """Make a session that has all parts."""
    session = await client.open(name, follow=False)
    await session.append_message(message("Hello"))
    await session.append_wire("TurnBegin", {"user_input": "Hello"}, durability="synced")
    await (await session.stream("notes")).append({"text": "a note"})


async def text_of(agent: Any, uri: str) -> tuple[str, str]:
    (contents,) = (await agent.read_resource(uri)).contents
    return contents.mime_type, contents.text


async def test_each_template_shows_its_part_of_a_session(agent: Any) -> None:
    listed = (await agent.list_resource_templates()).resource_templates
    values = {"session": quote(SESSION, safe=""), "stream": "notes"}
    uris = [each.uri_template.format(**values) for each in listed]
    texts = [await text_of(agent, uri) for uri in uris]
    assert [kind for kind, _ in texts] == [each.mime_type for each in listed]
    state, markdown, transcript, wire, stream = (text for _, text in texts)
    assert json.loads(state)["head"] == "0:1"
    assert json.loads(state)["streams"][0]["name"] == "notes"
    assert "## user · writer" in markdown
    records = json.loads(transcript)["records"]
    assert [each["record"]["content"] for each in records] == ["Hello"]
    assert json.loads(wire)["record"]["message"]["type"] == "TurnBegin"
    assert json.loads(stream)["record"] == {"text": "a note"}


async def test_an_unknown_resource_is_an_error_of_the_protocol(agent: Any) -> None:
    for uri in UNKNOWN:
        for asked in (agent.read_resource, agent.subscribe_resource):
            with pytest.raises(mcp.MCPError) as caught:
                await asked(uri)
            assert caught.value.code == types.INVALID_PARAMS
    with pytest.raises(mcp.MCPError, match="there is no stream"):
        await agent.read_resource(f"{URI}/stream/none.jsonl")
    assert (await agent.list_resources()).resources


async def test_the_pages_of_the_list_have_each_session_once(
    agent: Any, other: steno.Client, shared_root: Path
) -> None:
    ids = [f"zoo/{number:04}" for number in range(2 * limits.LIST_PAGE)]
    for session in ids:
        folder = shared_root / paths.SESSIONS / session
        folder.mkdir(parents=True)
        (folder / paths.CONTEXT).write_text('{"role":"user","content":"hi"}\n')
    await other.session(ids[0]).describe(title="The first", labels=["red"])
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = await agent.list_resources(cursor=cursor)
        assert len(page.resources) <= limits.LIST_PAGE
        found += page.resources
        if (cursor := page.next_cursor) is None:
            break
    assert [each.name for each in found if each.name.startswith("zoo/")] == ids
    assert SESSION in {each.name for each in found}
    first = next(each for each in found if each.name == ids[0])
    assert first.uri == "steno://session/zoo%2F0000"
    assert (first.title, "label red" in first.description) == ("The first", True)
    with pytest.raises(mcp.MCPError):
        await agent.list_resources(cursor="no session")


async def test_the_end_of_a_long_transcript_is_shown(agent: Any, other: steno.Client) -> None:
    session = await other.open("long", follow=False)
    for _ in range(6):
        await session.append_message([message("word " * 200_000)])
    await session.append_message(message("the end"))
    for view in ("transcript.md", "transcript.json"):
        _, text = await text_of(agent, f"steno://session/long/{view}")
        assert len(text) < limits.RESOURCE_BYTES_MAX + 1000
        assert "the end" in text
    assert json.loads(text)["cut"] is True


async def test_more_subscriptions_than_the_bound_are_refused(
    agent: Any, other: steno.Client
) -> None:
    ids = ("many-1", "many-2")
    for session in ids:
        await other.open(session, follow=False)
    uris = [
        f"steno://session/{session}/stream/s{number}.jsonl"
        for number in range(limits.WATCHES_MAX // len(ids))
        for session in ids
    ]
    for uri in uris:
        await agent.subscribe_resource(uri)
    with pytest.raises(mcp.MCPError, match="unsubscribe from some"):
        await agent.subscribe_resource(URI)
    for uri in uris:
        await agent.unsubscribe_resource(uri)
    await agent.subscribe_resource(URI)
    await agent.unsubscribe_resource(URI)


async def test_a_deleted_session_is_one_last_update(
    agent: Any, other: steno.Client, updates: Updates
) -> None:
    await fill(other, "doomed")
    await agent.subscribe_resource("steno://session/doomed")
    await other.delete("doomed")
    await updates.wait_for("steno://session/doomed")
    with pytest.raises(mcp.MCPError, match="no session"):
        await agent.read_resource("steno://session/doomed")


async def test_a_second_subscribe_follows_the_session_that_was_created_again(
    agent: Any, other: steno.Client, updates: Updates
) -> None:
    uri = "steno://session/phoenix"
    await fill(other, "phoenix")
    await agent.subscribe_resource(uri)
    await other.delete("phoenix")
    await updates.wait_for(uri)
    with pytest.raises(mcp.MCPError, match="no session"):
        await agent.subscribe_resource(uri)
    await fill(other, "phoenix")
    await agent.subscribe_resource(uri)
    await other.session("phoenix").append_message(message("again"))
    await updates.wait_for(uri)
    await agent.unsubscribe_resource(uri)
    await wait_until_not(is_followed, other.session("phoenix"))


async def test_a_subscriber_of_the_older_protocol_hears_of_each_part(
    root: Path, writer: steno.Client
) -> None:
    updates = Updates()
    session = writer.session(SESSION)
    async with hosting(root, mode="legacy", updates=updates) as agent:
        assert agent.protocol_version == OLD
        for uri in (URI, f"{URI}/wire.jsonl", f"{URI}/stream/notes.jsonl"):
            await agent.subscribe_resource(uri)
        assert Steno(root)("append", SESSION, "from a process").code == 0
        await updates.wait_for(URI)
        await session.checkpoint()
        await session.revert_to(0)
        await updates.wait_for(URI)
        await session.append_wire("TurnBegin", {}, durability="synced")
        await updates.wait_for(f"{URI}/wire.jsonl")
        await (await session.stream("notes")).append({"text": "more"})
        await updates.wait_for(f"{URI}/stream/notes.jsonl")
        assert await is_followed(session)
        for uri in (URI, f"{URI}/wire.jsonl", f"{URI}/stream/notes.jsonl", URI):
            await agent.unsubscribe_resource(uri)
        await wait_until_not(is_followed, session)


async def test_a_stream_of_the_newer_protocol_survives_the_death_of_the_daemon(
    root: Path, writer: steno.Client
) -> None:
    session = writer.session(SESSION)
    async with hosting(root) as agent:
        assert agent.protocol_version == NEW
        async with agent.listen(resource_subscriptions=[URI, f"{URI}/transcript.md"]) as events:
            seen: set[str] = set()
            os.kill((await writer.status()).pid, signal.SIGKILL)
            await session.append_message(message("after the daemon's death"))
            with anyio.fail_after(WAIT_S):
                while seen != {URI, f"{URI}/transcript.md"}:
                    seen.add((await anext(aiter(events))).uri)
            _, text = await text_of(agent, f"{URI}/transcript.md")
            assert "after the daemon's death" in text
        await wait_until_not(is_followed, session)
        with pytest.raises(mcp.MCPError, match="no resource of steno"):
            async with agent.listen(resource_subscriptions=["file:///etc/passwd"]):
                pass


async def test_a_deletion_ends_each_stream_of_the_session_after_an_update(
    root: Path, writer: steno.Client
) -> None:
    await fill(writer, "kept")
    # The start of the host is no part of what takes a moment.
    async with hosting(root) as agent:
        with anyio.fail_after(WAIT_S):
            await _end_each_stream(agent, writer)


async def _end_each_stream(agent: Any, writer: steno.Client) -> None:
    kept = "steno://session/kept"
    async with (
        agent.listen(resource_subscriptions=[URI]) as one,
        agent.listen(resource_subscriptions=[kept, URI]) as two,
        agent.listen(resource_subscriptions=[kept]) as other,
    ):
        await writer.delete(SESSION)
        assert [event.uri async for event in one] == [URI]
        assert [event.uri async for event in two] == [URI]
        with pytest.raises(mcp.MCPError, match="no session"):
            async with agent.listen(resource_subscriptions=[kept, URI]):
                pass
        await fill(writer, SESSION)
        async with agent.listen(resource_subscriptions=[URI]) as again:
            await writer.session(SESSION).append_message(message("again"))
            assert (await anext(aiter(again))).uri == URI
        await writer.session("kept").append_message(message("still followed"))
        assert (await anext(aiter(other))).uri == kept

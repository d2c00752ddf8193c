"""The process of `steno mcp`: its streams, its end, and its door over HTTP."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

import steno
from interop.mcp_hosts import (
    WAIT_S,
    Updates,
    failure,
    hosting,
    httpx2,
    is_followed,
    mcp,
    serving,
    wait_until_not,
)
from support.command import Steno

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.interop,
    # Hosts of the older protocol send it, and the SDK has no other way to do so.
    pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed"),
]

URI = "steno://session/talk"
HELLO = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The server is a process with a loop of its own: that of its peer changes nothing there."""
    return "asyncio"


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"session": "talk", "messages": [{"role": "user", "content": text}], **more}


async def test_the_death_of_the_daemon_is_a_delay(root: Path) -> None:
    updates = Updates()
    async with (
        hosting(root, mode="legacy", updates=updates) as agent,
        steno.connect(root) as client,
    ):
        await agent.call_tool("append_messages", asked("before"))
        await agent.subscribe_resource(URI)
        for text in ("one", "two"):
            os.kill((await client.status()).pid, signal.SIGKILL)
            result = await agent.call_tool("append_messages", asked(text))
            assert not result.is_error, result.content
            await updates.wait_for(URI)
        page = (await agent.call_tool("read_session", {"session": "talk"})).structured_content
        texts = [each["record"]["content"] for each in page["records"]]
        assert texts == ["before", "one", "two"]


async def test_two_hosts_on_one_session_lose_nothing(root: Path) -> None:
    async with hosting(root) as one, hosting(root) as other, anyio.create_task_group() as tasks:

        async def append(agent: Any, name: str) -> None:
            for number in range(20):
                await agent.call_tool("append_messages", asked(f"{name} {number}"))

        tasks.start_soon(append, one, "one")
        tasks.start_soon(append, other, "other")
    records = Steno(root)("read", "talk", "--json").documents
    texts = [each["record"]["content"] for each in records]
    assert sorted(texts) == sorted(f"{name} {n}" for name in ("one", "other") for n in range(20))


async def test_a_reader_has_no_tool_that_changes_a_session(root: Path) -> None:
    assert Steno(root)("append", "talk", "hi").code == 0
    async with hosting(root, "--read-only") as agent:
        tools = (await agent.list_tools()).tools
        assert {tool.annotations.read_only_hint for tool in tools} == {True}
        with pytest.raises(mcp.MCPError, match="--read-only"):
            await agent.call_tool("append_messages", asked("no"))
        page = await agent.call_tool("read_session", {"session": "talk"})
        assert len(page.structured_content["records"]) == 1


def test_stdout_has_messages_only_and_the_process_ends_with_stdin(root: Path) -> None:
    calls = [
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        _call(1, b'{"session":"talk","messages":[{"role":"user","content":NaN}]}'),
        _call(2, rb'{"session":"talk","messages":[{"role":"user","content":"\ud800"}]}'),
        b"garbage", b"[]", b"\xff\xfe", b"", b"null", b"[" * 100_000,
        _call(3, b'{"session":"talk","messages":' + b"[" * 150 + b"]" * 150 + b"}"),
        _call(4, b'{"session":"talk","messages":[{"role":"user","content":"hi"}]}'),
    ]  # fmt: skip
    process = Steno(root)
    with subprocess.Popen(
        process.words("mcp"), env=process.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as host:  # fmt: skip
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(b"".join(line + b"\n" for line in (json.dumps(HELLO).encode(), *calls)))
        host.stdin.flush()
        answers: dict[object, Any] = {}
        # Calls are served beside each other, and their answers come in any order.
        while not answers.keys() >= {1, 4}:
            answer = json.loads(host.stdout.readline())
            answers[answer["id"]] = answer
        out, err = host.communicate(timeout=WAIT_S)
    assert (host.returncode, out) == (0, b"")
    assert b"Traceback" not in err
    assert "NaN" in answers[1]["result"]["content"][0]["text"]
    assert answers[4]["result"]["structuredContent"]["head"] == "0:1"


def _call(number: int, arguments: bytes) -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
        b'"params":{"name":"append_messages","arguments":%b}}' % (number, arguments)
    )


@pytest.mark.parametrize(("anyio_backend", "mode"), [("asyncio", "legacy"), ("trio", "auto")])
async def test_peers_over_http_follow_what_another_one_writes(root: Path, mode: str) -> None:
    assert Steno(root)("append", "talk", "hi").code == 0
    updates = Updates()
    with serving(root) as server:
        async with steno.connect(root) as client, server.peer() as writer:
            session = client.session("talk")
            async with server.peer(mode, updates) as reader:
                if mode == "legacy":
                    await reader.subscribe_resource(URI)
                    await _append_until_updated(writer, updates)
                    assert await is_followed(session)
                else:
                    async with reader.listen(resource_subscriptions=[URI]) as events:
                        await writer.call_tool("append_messages", asked("more"))
                        with anyio.fail_after(WAIT_S):
                            assert (await anext(aiter(events))).uri == URI
                error = failure(await reader.call_tool("get_session", {"session": "none"}))
                assert error["code"] == "not_found"
            # It has left, and the server is still there.
            await wait_until_not(is_followed, session)


async def _append_until_updated(writer: Any, updates: Updates) -> None:
    """The stream of a peer begins some time after its handshake, and updates before it are lost."""
    with anyio.fail_after(WAIT_S):
        while URI not in updates.uris:
            await writer.call_tool("append_messages", asked("more"))


async def test_requests_without_the_token_or_of_other_pages_are_refused(root: Path) -> None:
    file = root / "token"
    with serving(root, "--token-file", str(file)) as server:
        assert server.token is None
        token = file.read_text().strip()
        good = {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
        }
        refused = [
            ({"authorization": ""}, 401),
            ({"authorization": "Bearer " + "x" * 43}, 401),
            ({"authorization": f"Basic {token}"}, 401),
            ({"host": "evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "null"}, 403),
        ]
        async with httpx2.AsyncClient(timeout=WAIT_S, trust_env=False) as http:
            for headers, status in refused:
                answer = await http.post(server.address, json=HELLO, headers=good | headers)
                assert answer.status_code == status, (headers, answer.text)
            answer = await http.post(
                server.address, headers=good | {"content-type": "application/json"},
                content=b"[" + b" " * 25 * 1024 * 1024,
            )  # fmt: skip
            assert answer.status_code == 413
            answer = await http.post(server.address, json=HELLO, headers=good)
            assert answer.status_code == 200
        assert server.end() == 0


async def test_ctrl_c_ends_a_server_beside_open_streams(root: Path) -> None:
    assert Steno(root)("append", "talk", "hi").code == 0
    with serving(root) as server:
        async with server.peer() as peer, peer.listen(resource_subscriptions=[URI]) as events:
            server.process.send_signal(signal.SIGINT)
            with anyio.fail_after(WAIT_S):
                assert [event async for event in events] == []
                assert await anyio.to_thread.run_sync(server.process.wait, WAIT_S) == 0


KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4"
MASK = "[redacted: openai-key]"


async def _answers(agent: Any) -> str:
    """All that a peer can read of the session."""
    calls = [
        ("list_sessions", {}), ("get_session", {"session": "talk"}),
        ("read_session", {"session": "talk"}), ("search_sessions", {"text": "the key"}),
    ]  # fmt: skip
    answers = [await agent.call_tool(name, arguments) for name, arguments in calls]
    texts = [repr(await agent.list_resources())]
    for view in ("", "/transcript.md", "/transcript.json", "/wire.jsonl"):
        try:
            texts.append(repr(await agent.read_resource(f"{URI}{view}")))
        except mcp.MCPError:
            continue
    return "".join([*map(repr, answers), *texts])


async def test_answers_are_masked_on_demand_and_over_http_by_default(root: Path) -> None:
    run = Steno(root)
    assert run("append", "talk", f"the key {KEY}", "--create").code == 0
    assert run("title", "talk", f"about {KEY}").code == 0
    async with hosting(root) as agent:
        assert KEY in await _answers(agent)
    async with hosting(root, "--redact") as agent:
        answers = await _answers(agent)
        assert KEY not in answers
        assert answers.count(MASK) > 4
        found = await agent.call_tool("search_sessions", {"text": KEY[8:12]})
        assert found.structured_content["hits"] == []


async def test_answers_over_http_are_masked(root: Path) -> None:
    assert Steno(root)("append", "talk", f"the key {KEY}", "--create").code == 0
    with serving(root) as server:
        async with server.peer() as agent:
            assert KEY not in await _answers(agent)
    with serving(root, "--no-redact") as server:
        async with server.peer() as agent:
            assert KEY in await _answers(agent)

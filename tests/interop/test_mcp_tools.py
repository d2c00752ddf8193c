"""The tools of `steno mcp`, called by the official client over stdin and stdout."""

import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import steno
from interop.mcp_hosts import failure, hosting, mcp
from steno_mcp import limits
from steno_mcp.tools import TOOLS
from support.command import Steno
from support.daemons import end_daemon_of
from support.documents import table_rows
from support.project import PROJECT

pytestmark = [pytest.mark.anyio, pytest.mark.interop]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The server is a process with a loop of its own: that of its peer changes nothing there."""
    return "asyncio"


@pytest.fixture(scope="module")
async def agent(shared_root: Path, anyio_backend: str) -> AsyncIterator[Any]:
    """One host for the tests of this module, which leave each other's sessions alone."""
    async with hosting(shared_root) as client:
        yield client


@pytest.fixture
def session() -> str:
    """The id of a session that there is not yet."""
    return f"team/{uuid.uuid4().hex[:8]}"


async def call(agent: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a tool; the client has checked it against the output schema."""
    result = await agent.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def append(agent: Any, session: str, *texts: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    return await call(agent, "append_messages", session=session, messages=messages, **more)


async def test_each_tool_has_schemas_and_says_what_it_changes(agent: Any) -> None:
    tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
    assert list(tools) == [tool.name for tool in TOOLS]
    for tool in tools.values():
        assert tool.description
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
        for name, schema in tool.input_schema["properties"].items():
            assert "description" in str(schema) or schema["type"] == "boolean", (tool.name, name)
    reading = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    assert reading == {"list_sessions", "get_session", "read_session", "search_sessions"}
    destructive = {name for name, tool in tools.items() if tool.annotations.destructive_hint}
    assert destructive == {"revert_session", "restore_generation", "deliver_dmail"}


def test_the_guide_lists_each_tool_with_its_arguments() -> None:
    rows = table_rows(PROJECT / "client" / "guide" / "mcp.md", "Tools")
    listed = {row[0].strip("`"): set(re.findall(r"\w+", row[1])) for row in rows}
    assert listed == {tool.name: set(tool.arguments.__struct_fields__) for tool in TOOLS}


async def test_what_one_agent_appends_another_program_reads(
    agent: Any, session: str, shared_root: Path
) -> None:
    acked = await append(agent, session, "one", "two")
    assert (acked["first"], acked["last"], acked["head"]) == ("0:0", "0:1", "0:2")
    async with steno.connect(shared_root) as client:
        texts = [each.record["content"] async for each in client.session(session).records()]
        assert texts == ["one", "two"]
        await client.session(session).append_message({"role": "assistant", "content": "three"})
    page = await call(agent, "read_session", session=session, after=acked["head"])
    assert [each["record"]["content"] for each in page["records"]] == ["three"]
    assert (page["head"], page["next"], page["more"]) == ("0:3", "0:3", False)


async def test_a_stale_expect_is_an_error_that_names_the_head(agent: Any, session: str) -> None:
    await append(agent, session, "one", "two")
    messages = [{"role": "user", "content": "late"}]
    error = failure(
        await agent.call_tool(
            "append_messages", {"session": session, "messages": messages, "expect": "0:1"}
        )
    )
    assert (error["code"], error["head"], error["outcome"]) == ("conflict", "0:2", "not_applied")
    assert (await append(agent, session, "now", expect=error["head"]))["head"] == "0:3"


async def test_a_repeated_key_is_applied_once(agent: Any, session: str) -> None:
    first = await append(agent, session, "one", key="step-1")
    again = await append(agent, session, "one", key="step-1")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["head"] == again["head"] == "0:1"


async def test_a_missing_session_is_created_only_if_wanted(agent: Any, session: str) -> None:
    good, bad = [{"role": "user", "content": "x"}], [{"role": "_checkpoint", "id": 1}]
    for more in (
        {"messages": good, "create": False},
        {"messages": good, "expect": "0:7"},
        {"messages": good, "session": "kimi:none/none"},
        {"messages": bad},
        {"messages": [*good, {"role": "user", "content": "x" * 20_000_000}]},
    ):
        failure(await agent.call_tool("append_messages", {"session": session} | more))
    error = failure(await agent.call_tool("get_session", {"session": session}))
    assert error["code"] == "not_found"
    assert (await append(agent, session, "x", expect="0:0"))["head"] == "0:1"


async def test_a_revert_is_undone_by_the_generation_that_it_left(agent: Any, session: str) -> None:
    await append(agent, session, "one")
    marked = await call(agent, "create_checkpoint", session=session)
    head = (await append(agent, session, "a mistake"))["head"]
    reverted = await call(
        agent, "revert_session", session=session, checkpoint=marked["checkpoint"], expect=head,
        why="wrong direction",
    )  # fmt: skip
    assert (reverted["head"], reverted["kept_generation"]) == ("1:1", 0)
    restored = await call(
        agent, "restore_generation", session=session, generation=reverted["kept_generation"]
    )
    assert restored["head"] == "2:3"
    past = await call(agent, "read_session", session=session, after="1:0")
    assert [each["record"].get("content") for each in past["records"]] == ["one"]
    error = failure(await agent.call_tool("revert_session", {"session": session, "checkpoint": 7}))
    assert error["code"] == "not_found"
    handle = marked["handle"]
    other = {"session": session, "checkpoint": handle.replace("@0:1@", "@0:2@")}
    assert failure(await agent.call_tool("revert_session", other))["code"] == "conflict"
    reverted = await call(agent, "revert_session", session=session, checkpoint=handle)
    assert reverted["head"] == "3:1"


async def test_a_dmail_is_pending_until_it_is_delivered(agent: Any, session: str) -> None:
    await append(agent, session, "one")
    await call(agent, "create_checkpoint", session=session, add_user_message=True)
    await append(agent, session, "a large file")
    sent = await call(agent, "send_dmail", session=session, checkpoint=0, message="Skip the file.")
    second = {"session": session, "checkpoint": 0, "message": "Skip it."}
    assert failure(await agent.call_tool("send_dmail", second))["code"] == "exists"
    replaced = await call(agent, "send_dmail", **second, replaces=sent["mail_id"])
    pending = (await call(agent, "get_session", session=session))["pending_dmail"]
    assert (pending["mail_id"], pending["message"]) == (replaced["mail_id"], "Skip it.")
    delivered = await call(agent, "deliver_dmail", session=session, mail_id=pending["mail_id"])
    assert delivered["kept_generation"] == 0
    page = await call(agent, "read_session", session=session, after="start")
    assert "a large file" not in str(page["records"])
    assert "Skip it." in str(page["records"][-1])
    assert (await call(agent, "get_session", session=session))["pending_dmail"] is None


async def test_a_fork_leaves_the_other_session_as_it_is(agent: Any, session: str) -> None:
    await append(agent, session, "one")
    await append(agent, session, "two")
    forked = await call(
        agent, "fork_session", session=session, new_session=f"{session}-b", at="0:1", title="B"
    )
    assert (forked["session"], forked["forked_from"], forked["title"]) == (
        f"{session}-b", session, "B",
    )  # fmt: skip
    page = await call(agent, "read_session", session=f"{session}-b", after="start")
    assert [each["record"]["content"] for each in page["records"]] == ["one"]
    asked = {"session": session, "new_session": f"{session}-b"}
    assert failure(await agent.call_tool("fork_session", asked))["code"] == "exists"


async def test_pages_of_a_session_have_each_record_once(agent: Any, session: str) -> None:
    await append(agent, session, *map(str, range(20)))
    found: list[str] = []
    after, more = "start", True
    while more:
        page = await call(agent, "read_session", session=session, after=after, limit=7)
        found += [each["record"]["content"] for each in page["records"]]
        after, more = page["next"], page["more"]
    assert found == [str(number) for number in range(20)]
    last = await call(agent, "read_session", session=session, limit=3)
    assert [each["record"]["content"] for each in last["records"]] == ["17", "18", "19"]


async def test_pages_of_the_list_have_each_session_once(agent: Any, session: str) -> None:
    for number in range(5):
        await append(agent, f"{session}/{number}", "hi")
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await call(agent, "list_sessions", prefix=f"{session}/", after=after, limit=2)
        found += [each["session"] for each in page["sessions"]]
        after = page["next"]
    assert found == [f"{session}/{number}" for number in range(5)]


async def test_a_search_finds_each_line_once_across_its_answers(agent: Any, session: str) -> None:
    for number in range(3):
        await append(agent, f"{session}/{number}", "A needle", "hay", f"one\nNEEDLE {number}")
    asked = {"text": "needle", "prefix": f"{session}/"}
    whole = await call(agent, "search_sessions", **asked)
    assert whole["next"] is None
    assert [each["line"] for each in whole["hits"]] == [
        line for number in range(3) for line in ("A needle", f"NEEDLE {number}")
    ]
    pieces: list[Any] = []
    cursor: str | None = None
    while True:
        page = await call(agent, "search_sessions", **asked, limit=1, cursor=cursor)
        pieces += page["hits"]
        if (cursor := page["next"]) is None:
            break
    assert pieces == whole["hits"]
    none = await call(agent, "search_sessions", **asked, ignore_case=False, role="tool")
    assert none == {"hits": [], "next": None}


async def test_answers_are_bounded_whatever_the_records_are(agent: Any, session: str) -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 2_000_000}"}}
    many = [{"type": "text", "text": "word " * 1000}] * 40
    messages = [
        {"role": "user", "content": [image]},
        {"role": "user", "content": many},
        *({"role": "user", "content": "x" * 9000} for _ in range(60)),
    ]
    await call(agent, "append_messages", session=session, messages=messages)
    found: list[Any] = []
    after, more = "start", True
    while more:
        result = await agent.call_tool(
            "read_session", {"session": session, "after": after, "limit": limits.RECORDS_MAX}
        )
        assert len(result.content[0].text) < 2 * limits.ANSWER_BYTES_MAX
        page = result.structured_content
        found += page["records"]
        after, more = page["next"], page["more"]
    assert len(found) == len(messages)
    assert [each["cut"] for each in found] == [True, True, *[False] * 60]
    assert "more characters" in str(found[0]["record"])
    assert found[1]["record"] == {"role": "user", "omitted_bytes": pytest.approx(200_000, rel=0.1)}


async def test_lines_of_other_programs_do_not_end_the_server(
    agent: Any, session: str, shared_root: Path
) -> None:
    await append(agent, session, "one")
    async with steno.connect(shared_root) as client:
        file = Path((await client.stat(session)).folder, "context.jsonl")
    deep = b'{"role":"user","content":' + b"[" * 400 + b"]" * 400 + b"}\n"
    with file.open("ab") as lines:
        lines.write(rb'{"role":"user","content":"\ud800"}' + b"\n" + deep + b'{"role":"us\n')
        lines.write(b'{"role":"user","content":"\xff"}\n{"role":7,"content":{"a":[1e999]}}\n')
        lines.write('{"role":"user","content":"needle \u2028"}\n'.encode())
    await append(agent, session, "two")
    page = await call(agent, "read_session", session=session, after="start")
    assert [each["record"].get("content") for each in page["records"]][-1] == "two"
    hits = await call(agent, "search_sessions", text="needle", prefix=session)
    assert len(hits["hits"]) == 1


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_session", {"session": "../../etc/passwd"}),
        ("get_session", {"session": "a\0b"}),
        ("get_session", {"session": "a" * 100_000}),
        ("get_session", {"session": 7}),
        ("get_session", {}),
        ("get_session", {"session": "kimi:nothing"}),
        ("read_session", {"session": "a", "limit": 10**30}),
        ("read_session", {"session": "a", "limit": -1}),
        ("read_session", {"session": "a", "after": "x:y"}),
        ("read_session", {"session": "a", "lines": 3}),
        ("list_sessions", {"limit": 1e300}),
        ("list_sessions", {"labels": ["\n"]}),
        ("search_sessions", {"text": ""}),
        ("search_sessions", {"text": "a\nb"}),
        ("search_sessions", {"text": "a", "cursor": "0:0"}),
        ("append_messages", {"session": "a", "messages": []}),
        ("append_messages", {"session": "a", "messages": [{"role": "_checkpoint", "id": 1}]}),
        ("append_messages", {"session": "a", "messages": [{"role": "user"}], "key": "no key"}),
        ("append_messages", {"session": "a/../b", "messages": [{"role": "u", "content": "x"}]}),
        ("revert_session", {"session": "a", "checkpoint": True}),
        ("fork_session", {"session": "a", "new_session": "b", "at": "0:0", "checkpoint": 1}),
        ("send_dmail", {"session": "a", "checkpoint": 0, "message": "x" * 200_000}),
    ],
)
async def test_wrong_arguments_are_errors_that_a_model_can_read(
    agent: Any, tool: str, arguments: dict[str, Any]
) -> None:
    error = failure(await agent.call_tool(tool, arguments))
    assert error["code"] in {"bad_request", "not_found"}
    assert error["message"].count(" ") > 4


async def test_a_message_of_20_mb_is_refused_and_the_server_goes_on(
    agent: Any, session: str
) -> None:
    messages = [{"role": "user", "content": "x" * 20_000_000}]
    error = failure(
        await agent.call_tool("append_messages", {"session": session, "messages": messages})
    )
    assert error["code"] == "too_large"
    assert (await append(agent, session, "small"))["head"] == "0:1"


async def test_an_unknown_tool_is_an_error_of_the_protocol(agent: Any) -> None:
    with pytest.raises(mcp.MCPError, match="there is no tool"):
        await agent.call_tool("rm", {})


async def test_a_repair_at_the_opening_is_in_the_answers(root: Path) -> None:
    command = Steno(root)
    assert command("append", "demo", "one").code == 0
    assert command("stop").code == 0
    half = b'{"role":"user","content":"tw'
    with (root / "sessions" / "demo" / "context.jsonl").open("ab") as torn:
        torn.write(half)
    async with hosting(root) as agent:
        assert (await call(agent, "get_session", session="demo"))["repairs"] == []
        [note] = (await append(agent, "demo", "two"))["repairs"]
        assert note.startswith("demo: the daemon repaired the end of context.jsonl")
        assert Path(note.rpartition(" kept in ")[2]).read_bytes() == half
        assert (await call(agent, "get_session", session="demo"))["repairs"] == [note]
    end_daemon_of(root)

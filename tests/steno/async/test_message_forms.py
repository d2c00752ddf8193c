"""Messages of any form and role, through both clients, as they are stored."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steno import BadRequest, TooLarge, connect, connect_sync
from support.command import Steno
from support.daemon_in_thread import DaemonInThread
from support.session_files import records_in

pytestmark = pytest.mark.anyio


class MessageStruct(msgspec.Struct):
    role: str
    content: str


@dataclass
class MessageDataclass:
    role: str
    content: str


class Model:
    """As much of a pydantic model as steno needs."""

    def __init__(self, role: str, content: object) -> None:
        self.fields = {"role": role, "content": content}

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return self.fields


FORMS = [
    {"role": "developer", "content": "be brief"},
    MessageStruct("user", "a"),
    MessageDataclass("assistant", "b"),
    Model("function", None),
    b'{"role":"model","content":"c","n":1.50}',
]
STORED = [
    {"role": "developer", "content": "be brief"},
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "function", "content": None},
    {"role": "model", "content": "c", "n": 1.5},
]


def _stored(root: Path, session: str) -> list[dict[str, Any]]:
    own = ("_id", "_by")
    return [
        {key: value for key, value in record.items() if key not in own}
        for record in records_in(root, session)
    ]


async def test_the_async_client_stores_each_form_and_role(
    root: Path, daemon: DaemonInThread
) -> None:
    async with connect(root) as client:
        session = await client.open("demo")
        for form in FORMS:
            await session.append_message(form)
        await session.append_message(FORMS)
        await session.append_wire("Noted", Model("user", "x"))
        assert session.history == STORED * 2
        assert [event.payload async for event in session.wire_records()] == [
            {"role": "user", "content": "x"}
        ]
    assert _stored(root, "demo") == STORED * 2
    assert b'"n":1.50' in (root / "sessions" / "demo" / "context.jsonl").read_bytes()


def test_bytes_of_an_unstamped_session_are_stored_as_given(
    root: Path, daemon: DaemonInThread
) -> None:
    data = b'{ "role": "developer",  "content": "hi" }'
    with connect_sync(root) as client:
        session = client.open("demo", stamp=False)
        session.append_message([data, {"role": "user", "content": "x"}])
    lines = (root / "sessions" / "demo" / "context.jsonl").read_bytes().splitlines()
    assert lines == [data, b'{"role":"user","content":"x"}']


async def test_nothing_of_a_batch_with_an_odd_value_is_stored(
    root: Path, daemon: DaemonInThread
) -> None:
    good = {"role": "user", "content": "good"}
    async with connect(root) as client:
        session = await client.open("demo")
        for odd in (float("nan"), "\ud800", {1}, b"x"):
            with pytest.raises(BadRequest, match=r"^message 2 of 3: the message's field content "):
                await session.append_message([good, {"role": "user", "content": odd}, good])
        with pytest.raises(TooLarge, match=r"^message 2 of 3: .* field content alone has"):
            await session.append_message(
                [good, {"role": "user", "content": "x" * 20_000_000}, good]
            )
        with pytest.raises(BadRequest, match=r"^record 2 of 3: the role '_x' begins with"):
            await session.append_message([good, {"role": "_x", "content": ""}, good])
        await session.append_message(good)
        assert session.history == [good]
    assert _stored(root, "demo") == [good]


def test_a_message_of_any_role_outlives_a_restart_and_a_rewrite(root: Path) -> None:
    developer = {"role": "developer", "content": "be brief"}
    with DaemonInThread(root), connect_sync(root) as client:
        session = client.open("demo")
        session.append_message(developer)
        session.checkpoint()
        session.append_message({"role": "user", "content": "x"})
        before = session.stat()
    with DaemonInThread(root), connect_sync(root) as client:
        session = client.open("demo")
        assert session.stat().token_count_with_pending == before.token_count_with_pending
        session.revert_to(0)
        assert session.history == [developer]
        assert session.verify().damage == 0


def test_the_command_appends_finds_and_shows_any_role(root: Path, daemon: DaemonInThread) -> None:
    steno = Steno(root)
    assert steno("append", "demo", "--role", "developer", "be brief").code == 0
    assert steno("append", "demo", stdin='{"role":"function","content":"brief"}\n').code == 0
    assert steno("show", "demo", "--json").document["messages"] == [
        {"role": "developer", "content": "be brief"}, {"role": "function", "content": "brief"},
    ]  # fmt: skip
    found = steno("grep", "brief", "--role", "developer", "--json")
    assert [hit["role"] for hit in found.documents] == ["developer"]

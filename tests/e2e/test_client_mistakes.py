"""Wrong arguments and misuse, which raise errors and harm no other call."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from steno import (
    BadRequest,
    Client,
    Position,
    Session,
    Unauthorized,
    Unreachable,
    connect,
    connect_sync,
)
from steno._sansio.view import should_compact

pytestmark = [pytest.mark.anyio, pytest.mark.served]

MESSAGE = {"role": "user", "content": "hi"}


class Unwritable:
    """What JSON has no value for."""

    def __repr__(self) -> str:
        return "<unwritable>"


Call = Callable[[Any], Any]

OF_A_SESSION: list[tuple[str, Call]] = [
    ("why is <unwritable>", lambda session: session.clear(why=Unwritable())),
    ("durability is <unwritable>", lambda session: session.checkpoint(durability=Unwritable())),
    ("prompt is <unwritable>", lambda session: session.write_system_prompt(Unwritable())),
    ("checkpoint_id is <unwritable>", lambda session: session.revert_to(Unwritable())),
    ("new_session is <unwritable>", lambda session: session.fork(Unwritable())),
    ("turns is None", lambda session: session.undo(None)),
    ("'-1:0' is not a position", lambda session: session.fork("other", at=Position(-1, 0))),
    ("labels is 'draft'", lambda session: session.describe(labels="draft")),
    ("labels is 5", lambda session: session.describe(labels=5)),
    ("report is a NoneType", lambda session: session.repair(None)),
    ("not 5", lambda session: session.append_wire(5)),
    ("summarize is None", lambda session: session.compact(None)),
    ("instruction is 5", lambda session: session.compact(len, instruction=5)),
    ("preserve is <unwritable>", lambda session: session.compact(len, preserve=Unwritable())),
]

OF_A_CLIENT: list[tuple[str, Call]] = [
    ("session is <unwritable>", lambda client: client.stat(Unwritable())),
    ("session is PosixPath", lambda client: client.open(Path("demo"))),
    ("labels is 'draft'", lambda client: client.sessions(labels="draft")),
    ("labels is None", lambda client: client.sessions(labels=None)),
    ("title is <unwritable>", lambda client: client.sessions(title=Unwritable())),
]

OF_CONNECTING: list[tuple[str, dict[str, Any]]] = [
    ("the root is 5", {"root": 5}),
    (r"the root is 'a\\x00b'", {"root": "a\0b"}),
    ("the root is '', 'str' by its type: give a path", {"root": ""}),
    ("the timeout True is no number of seconds", {"timeout": True}),
    ("the endpoint is 5, 'int' by its type: give it as text", {"endpoint": 5}),
    ("the endpoint is PosixPath", {"endpoint": Path("x")}),
    ("'10.0.0.7:7117' is not an endpoint: use tcp://HOST:PORT", {"endpoint": "10.0.0.7:7117"}),
    ("'tcp://10.0.0.7' is not an endpoint", {"endpoint": "tcp://10.0.0.7"}),
    ("'/run/stenod.sock' is not an endpoint", {"endpoint": "/run/stenod.sock"}),
    ("the key_file is 5", {"key_file": 5}),
]


async def test_an_argument_error_names_the_argument(client: Client, session: Session) -> None:
    await session.append_message(MESSAGE)
    for expected, call in OF_A_SESSION:
        with pytest.raises(BadRequest) as raised:
            await call(session)
        assert expected in raised.value.message
    for expected, call in OF_A_CLIENT:
        with pytest.raises(BadRequest) as raised:
            await call(client)
        assert expected in raised.value.message
    assert [entry.kind for entry in await session.timeline()] == ["created"]
    assert [entry.session for entry in await client.sessions()] == ["demo"]


def test_the_blocking_client_raises_the_same_argument_errors(root: Path) -> None:
    with connect_sync(root) as client:
        session = client.open("demo")
        session.append_message(MESSAGE)
        for expected, call in OF_A_SESSION:
            with pytest.raises(BadRequest) as raised:
                call(session)
            assert expected in raised.value.message
        for expected, call in OF_A_CLIENT:
            with pytest.raises(BadRequest) as raised:
                call(client)
            assert expected in raised.value.message
        for timeout in ("1", float("nan")):
            with pytest.raises(BadRequest, match="timeout, in seconds,"):
                session.wait_for("0:0", timeout=timeout)  # type: ignore[arg-type]  # the mistake
            with session.subscribe() as events, pytest.raises(BadRequest, match="timeout"):
                events.next_event(timeout)  # type: ignore[arg-type]  # the mistake
            with pytest.raises(BadRequest, match="lease, in seconds,"):
                session.compact(str, lease=timeout)  # type: ignore[arg-type]  # the mistake
        assert [entry.kind for entry in session.timeline()] == ["created"]


@pytest.mark.parametrize(("expected", "given"), OF_CONNECTING)
def test_a_connect_argument_error_names_the_argument(expected: str, given: dict[str, Any]) -> None:
    for way in (connect, connect_sync):
        with pytest.raises(BadRequest, match=expected):
            way(**given)


def test_a_folder_is_no_key_file(root: Path) -> None:
    with pytest.raises(Unauthorized, match="has to be a regular file"):
        connect(root, key_file=root)


async def test_a_summarize_function_must_be_async(session: Session) -> None:
    await session.append_message([MESSAGE] * 5)
    with pytest.raises(BadRequest, match="summarize returned 'str' and nothing to await"):
        await session.compact(lambda _: "short")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(BadRequest, match="timeout, in seconds, is nan"):
        await session.compact(_short, timeout=float("nan"))
    done = await session.compact(_short)
    assert done is not None
    assert done.summary == "short"


async def _short(_: object) -> str:
    return "short"


def test_context_limits_must_be_numbers() -> None:
    with pytest.raises(BadRequest, match="max_context_size is None"):
        should_compact(1, None)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(BadRequest, match="ratio is nan"):
        should_compact(1, 2, ratio=float("nan"))


@pytest.mark.served(False)
@pytest.mark.parametrize("incarnation", [b"bytes", Unwritable(), "\udcff"])
async def test_an_invalid_subscription_harms_no_other_request(
    client: Client, session: Session, incarnation: Any
) -> None:
    for is_connected in (True, False):
        if not is_connected:
            await client.drain()
        with pytest.raises(BadRequest, match="subscribe"):
            session.subscribe(incarnation=incarnation)
        # Asked for once more with each new connection, it would have ended the client.
        assert (await session.append_message(MESSAGE)).durability == "synced"


async def test_a_second_enter_is_refused_and_the_client_stays_open(root: Path) -> None:
    client = connect(root)
    with pytest.raises(BadRequest, match="use it inside `async with`"):
        await client.__aexit__(None, None, None)
    async with client:
        with pytest.raises(BadRequest, match="entered before"):
            async with client:
                pass
        session = await client.open("demo")
        await session.append_message(MESSAGE)
    with pytest.raises(BadRequest, match="entered before"):
        async with client:
            pass
    await client.__aexit__(None, None, None)


@pytest.mark.served(False)
async def test_a_client_that_could_not_be_entered_can_be_entered_later(root: Path) -> None:
    client = connect(root, spawn=False)
    with pytest.raises(Unreachable):
        async with client:
            pass
    async with connect(root), client:
        assert await client.sessions() == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_client_refuses_calls_in_another_event_loop(
    client: Client, session: Session
) -> None:
    events = session.subscribe("now")

    async def misuse() -> None:
        for misused in (
            lambda: session.append_message(MESSAGE),
            lambda: session.wait_for("9:9"),
            client.status,
            lambda: anext(events),
            lambda: client.__aexit__(None, None, None),
        ):
            with pytest.raises(BadRequest, match="belongs to another event loop"):
                await misused()

    # In a thread, because this loop runs already.
    await anyio.to_thread.run_sync(asyncio.run, misuse())
    assert session.history == []
    await session.append_message(MESSAGE)
    assert session.history == [MESSAGE]

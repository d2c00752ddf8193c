"""Fork, undo, describe, delete and filtered lists through both clients."""

import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steno
from steno import (
    BadRequest,
    BlockingSession,
    Client,
    Exists,
    NotFound,
    OutcomeUnknown,
    Position,
    Session,
    TooLarge,
    connect,
    connect_sync,
)
from steno._sansio.requests import undo_name
from steno_protocol import limits, paths
from steno_protocol.errors import ErrorCode
from support.messages import message

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("no_blocking_calls"),
    pytest.mark.served,
]


def turns(count: int) -> list[dict[str, str]]:
    """The history of a session after so many turns."""
    return [message(f"turn {number}") for number in range(count)]


async def lived(client: Client, count: int = 3, *, follow: bool = True) -> Session:
    """A session of turns, each with a checkpoint, an event and a message."""
    session = await client.open("demo", follow=follow)
    for entry in turns(count):
        await session.checkpoint()
        await session.append_wire("TurnBegin", {"user_input": entry["content"]})
        await session.append_message(entry)
    return session


async def test_a_fork_has_the_state_at_each_kind_of_instant(root: Path) -> None:
    async with connect(root, name="planner") as client:
        session = await lived(client)
        for name, expected, forked in [
            ("now", 3, await session.fork("now")),
            ("now-too", 3, await session.fork("now-too", at="now")),
            ("position", 1, await session.fork("position", at=Position(0, 2))),
            ("text", 1, await session.fork("text", at="0:2")),
            ("checkpoint", 2, await session.fork("checkpoint", checkpoint=2)),
            ("turn", 2, await session.fork("turn", turn=1)),
            ("before", 0, await session.fork("before", turn=-1)),
        ]:
            assert (forked.id, forked.history) == (name, turns(expected))
            assert len(await forked.turns()) == expected
            assert forked.is_following
        assert session.history == turns(3)
        await forked.append_message(message("on its own"))
        assert len(session.history) == 3
        assert (await forked.stat()).forked_from == "demo"


async def test_a_fork_of_a_session_that_is_not_followed_is_not_followed(
    root: Path, client: Client
) -> None:
    session = await lived(client, 1, follow=False)
    forked = await session.fork("other", title="Another try")
    assert not forked.is_following
    assert forked.file_backend == root / "sessions" / "other" / "context.jsonl"
    assert (await forked.stat()).title == "Another try"


async def test_a_fork_that_cannot_be_made_makes_no_session(client: Client) -> None:
    session = await lived(client, 1)
    with pytest.raises(BadRequest, match="one instant"):
        await session.fork("other", at="0:1", turn=0)
    with pytest.raises(BadRequest):
        await session.fork("../other")
    for instant in ({"turn": 7}, {"checkpoint": 7}, {"at": "0:9"}):
        with pytest.raises(NotFound):
            await session.fork("other", **instant)  # type: ignore[arg-type]  # one at a time
    with pytest.raises(BadRequest, match="cannot be undone"):
        await session.undo(0)
    with pytest.raises(NotFound):
        await session.undo(2)
    assert [entry.session for entry in await client.sessions()] == ["demo"]


async def test_a_repeated_fork_gets_the_same_session_and_another_one_is_told(
    client: Client,
) -> None:
    session = await lived(client, 2)
    first = await session.fork("other", turn=0, key="fork-1")
    await first.append_message(message("on its own"))
    again = await session.fork("other", turn=0, key="fork-1")
    assert again.history == [*turns(1), message("on its own")]
    with pytest.raises(Exists):
        await session.fork("other", turn=0)


async def test_an_undo_forks_before_the_last_turns_under_its_own_name(client: Client) -> None:
    session = await lived(client)
    undone = await session.undo()
    assert undone.history == turns(2)
    assert undone.id.startswith("demo-undo-")
    assert (await session.undo(2, "back")).history == turns(1)
    named = await session.undo(3, key="undo-1", title="From the start")
    assert named.history == []
    assert named.id == undo_name("demo", "undo-1")
    assert (await session.undo(3, key="undo-1")).id == named.id
    assert session.history == turns(3)


@given(
    segments=st.lists(
        st.text("abz09_.@+=,-", min_size=1, max_size=128).map(lambda text: f"a{text[1:]}"),
        min_size=1,
        max_size=2,
    ),
    key=st.text("abcAZ09_-", min_size=1, max_size=64),
)
def test_the_name_of_an_undo_is_always_a_session_id(segments: list[str], key: str) -> None:
    session = "/".join(segments)[: limits.SESSION_ID_CHARS_MAX]
    name = undo_name(session, key)
    paths.split_session(name)
    assert name == undo_name(session, key) != session


async def test_sessions_are_described_and_found_by_it(client: Client, session: Session) -> None:
    await client.open("other")
    stat = await session.describe(title="Fix the parser", labels=["bug", "urgent"])
    assert (stat.title, stat.labels, stat.archived) == (
        "Fix the parser", ("bug", "urgent"), False,
    )  # fmt: skip
    assert (await session.describe(archived=True)).title == "Fix the parser"

    async def found(**filters: object) -> list[str]:
        return [entry.session for entry in await client.sessions(**filters)]  # type: ignore[arg-type]  # one at a time

    assert await found() == ["demo", "other"]
    assert await found(archived="no") == ["other"]
    assert await found(archived="only") == ["demo"]
    assert await found(labels=["bug"]) == ["demo"]
    assert await found(labels=["bug", "small"]) == []
    assert await found(title="PARSER") == ["demo"]
    stat = await session.describe(title="", labels=[], archived=False)
    assert (stat.title, stat.labels, stat.archived) == ("", (), False)
    with pytest.raises(BadRequest, match="nothing to set"):
        await session.describe()
    with pytest.raises(BadRequest, match="a list of labels"):
        await session.describe(labels="bug")
    with pytest.raises(BadRequest):
        await session.describe(labels=["one,two"])


async def test_a_deleted_session_lies_in_the_trash_until_it_expires(client: Client) -> None:
    session = await client.open("demo", follow=False)
    await session.append_message(message("precious"))
    deleted = await client.delete("demo", key="delete-1")
    assert b"precious" in (deleted.trash / "context.jsonl").read_bytes()
    assert deleted.expires_at > time.time()
    assert await client.sessions() == []
    with pytest.raises(NotFound):
        await client.delete("demo")
    await client.open("demo")
    assert await client.delete("demo", key="delete-1") == deleted
    assert [entry.session for entry in await client.sessions()] == ["demo"]


# --- the blocking client -------------------------------------------------------------------------


def lived_sync(client: steno.BlockingClient) -> BlockingSession:
    session = client.open("demo")
    for entry in turns(3):
        session.checkpoint()
        session.append_wire("TurnBegin", {"user_input": entry["content"]})
        session.append_message(entry)
    return session


async def test_a_session_made_but_not_followed_has_an_unknown_outcome(client: Client) -> None:
    session = await lived(client)
    full = [session.subscribe() for _ in range(limits.SUBSCRIPTIONS_PER_PEER_MAX - 1)]
    for each in full:
        # The daemon begins each in a task of its own.
        await anext(each)
    with pytest.raises(OutcomeUnknown, match=r"was made.*follow=False") as raised:
        await client.open("opened", exclusive=True)
    assert (raised.value.code, raised.value.session) == (ErrorCode.TOO_LARGE, "opened")
    with pytest.raises(TooLarge):
        await client.open("opened")
    for make in (partial(session.fork, "forked"), session.undo):
        with pytest.raises(OutcomeUnknown, match="was made") as raised:
            await make()
        name, key = raised.value.session, raised.value.key
        assert key is not None
        assert key in str(raised.value)
        assert (await client.stat(name or "")).forked_from == "demo"
        await full.pop().aclose()
        repeated = await make(key=key)
        assert (repeated.id, repeated.is_following) == (name, True)


def test_a_blocking_session_made_but_not_followed_has_an_unknown_outcome(
    root: Path,
) -> None:
    with connect_sync(root) as client:
        session = lived_sync(client)
        full = [session.subscribe() for _ in range(limits.SUBSCRIPTIONS_PER_PEER_MAX - 1)]
        for each in full:
            # The daemon begins each in a task of its own.
            next(each)
        with pytest.raises(OutcomeUnknown, match=r"was made.*follow=False"):
            client.open("opened", exclusive=True)
        with pytest.raises(TooLarge):
            client.open("opened")
        for make in (partial(session.fork, "forked"), session.undo):
            with pytest.raises(OutcomeUnknown, match="was made") as raised:
                make()
            full.pop().close()
            repeated = make(key=raised.value.key)
            assert (repeated.id, repeated.is_following) == (raised.value.session, True)

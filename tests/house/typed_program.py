"""A program of a user who checks types strictly; `.ci/run` checks it with pyright and mypy."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never, assert_type

import msgspec

import steno
from steno import Ack, Checkpoint, Live, Position, RecordsEvent, Reset
from steno.values import DmailEvent, SubscriptionEvent


class MessageStruct(msgspec.Struct):
    role: str
    content: str


@dataclass
class MessageDataclass:
    role: str
    content: str


class Model:
    """The method of a pydantic model that steno calls, with pydantic's parameters."""

    def model_dump(
        self, *, mode: str = "python", exclude_none: bool = False, **more: Any
    ) -> dict[str, Any]:
        return {"role": "user", "content": "hi"}


PLAIN = {"role": "user", "content": "hi"}


async def append_every_form(session: steno.Session) -> None:
    assert_type(await session.append_message(PLAIN), Ack)
    await session.append_message({"role": "developer", "content": [{"type": "text", "text": "x"}]})
    await session.append_message(MessageStruct("user", "hi"))
    await session.append_message(MessageDataclass("user", "hi"))
    await session.append_message(Model())
    await session.append_message(b'{"role":"user","content":"hi"}')
    structs = [MessageStruct("user", "hi")]
    await session.append_message(structs)
    models: Sequence[Model] = [Model()]
    await session.append_message(models)
    await session.append_message((PLAIN, b"{}", Model()), expect="0:1", key="a-key")
    await session.append_wire("Noted", {"n": 1})
    await session.append_wire("Noted", Model())
    await session.append_wire([("Noted", PLAIN), ("Noted", Model(), 1.5), b"{}"])
    await session.append_message("text")  # type: ignore[arg-type]
    await session.append_message(5)  # type: ignore[arg-type]


async def go_back(session: steno.Session, blocking: steno.BlockingSession) -> None:
    mark = await session.checkpoint()
    assert_type(mark, Checkpoint)
    assert_type(mark.id, int)
    for checkpoint in (mark, mark.id, mark.handle):
        await session.revert_to(checkpoint)
        await session.send_dmail(checkpoint, "back")
        await session.fork("other", checkpoint=checkpoint)
        await session.history_at(checkpoint=checkpoint)
    assert_type(await session.deliver_dmail("mail"), Checkpoint)
    blocking.revert_to(blocking.checkpoint())
    await session.revert_to(None)  # type: ignore[arg-type]


async def read_a_session(root: Path) -> None:
    async with steno.connect(root, name="reader") as client:
        assert_type(client, steno.Client)
        session = await client.open("demo")
        assert_type(session, steno.Session)
        assert_type(session.head, Position)
        assert_type(session.history, list[dict[str, Any]])
        async for record in session.records():
            assert_type(record, steno.Record)
            assert_type(record.record, dict[str, Any])
        async for noted in session.wire_records():
            assert_type(noted.at, Position | None)
        async with session.subscribe(records="both") as subscription:
            async for event in subscription:
                assert_type(event, SubscriptionEvent)
                print(words_of(event))


def words_of(event: SubscriptionEvent) -> str:
    match event:
        case RecordsEvent():
            return str(len(event.records()))
        case Live():
            return str(event.head)
        case Reset():
            return event.why
        case DmailEvent():
            return event.state
        case _:
            assert_never(event)


def append_blocking(root: Path) -> Ack | None:
    with steno.connect_sync(root) as client:
        assert_type(client, steno.BlockingClient)
        session = client.open("demo")
        try:
            return session.append_message([PLAIN, Model()])
        except steno.Conflict as error:
            assert_type(error.head, str | None)
        except steno.OutcomeUnknown as error:
            assert_type(error.key, str | None)
            assert_type(error.outcome, steno.Outcome)
    return None

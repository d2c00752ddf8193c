"""The identity of the stream, asked for behind messages."""

import asyncio
from typing import cast

import anyio.lowlevel
import pytest

from stenod_cluster.journal import ForeignStream
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.trust import Trust

pytest.importorskip("nats", reason="NATS needs the extra: pip install -e '.[cluster]'")

from stenod_cluster import stream_identity
from stenod_cluster.nats_connection import Connection
from stenod_cluster.stream_identity import StreamIdentity


def test_one_answer_is_enough_for_messages_that_were_stored_before_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.run(_check_many(monkeypatch))


async def _check_many(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = StreamIdentity(cast(Connection, None), ReplicationOptions("team", ()), Trust(None))
    identity.created = "first"
    asked: list[asyncio.Future[dict[str, str]]] = []

    async def api(_: Connection, name: str, *__: object) -> dict[str, str]:
        if name == "STREAM.MSG.DELETE":
            return {}
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    monkeypatch.setattr(stream_identity, "api", api)
    together = [asyncio.create_task(identity.check_same(number, 1)) for number in range(9)]
    await _turns()
    behind = [asyncio.create_task(identity.check_same(number, 1)) for number in range(9)]
    await _turns()
    assert len(asked) == 1
    asked[0].set_result({"created": "first"})
    await asyncio.gather(*together)
    await _turns()
    # The first answer says nothing of what was stored behind its question.
    assert len(asked) == 2
    assert not any(each.done() for each in behind)
    asked[1].set_result({"created": "second"})
    found = await asyncio.gather(*behind, return_exceptions=True)
    assert all(isinstance(each, ForeignStream) for each in found)


async def _turns() -> None:
    for _ in range(5):
        await anyio.lowlevel.checkpoint()

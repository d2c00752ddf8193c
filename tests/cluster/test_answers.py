"""The time limit of a request with many answers."""

import asyncio

import pytest

pytest.importorskip("nats", reason="NATS needs the extra: pip install -e '.[cluster]'")

from stenod_cluster import limits
from stenod_cluster.nats_connection import _Answers
from stenod_cluster.wire import Reply


def test_each_answer_renews_the_limit_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_take_answers(monkeypatch))


async def _take_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, wait_s = asyncio.get_running_loop(), 10.0
    begin_s = loop.time()
    async with asyncio.timeout(wait_s) as limit:
        answers = _Answers(lambda reply: reply.body == b"last", limit, wait_s)
        for number in range(1, 1_001):
            now_s = begin_s + number * limits.RENEWED_S / 4
            monkeypatch.setattr(loop, "time", lambda now_s=now_s: now_s)
            answers.take(Reply({}, b"one of many"))
            ends_s = limit.when()
            assert ends_s is not None
            assert now_s + wait_s - limits.RENEWED_S <= ends_s <= now_s + wait_s
        monkeypatch.undo()
        answers.take(Reply({}, b"last"))
        assert len(await answers.all or []) == 1_001

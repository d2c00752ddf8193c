"""The records of events in `session.history`, beside writers, reverts and kills."""

import os
import random
import signal
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Self

import anyio
import pytest

from steno import (
    BlockingSession,
    NotFound,
    Position,
    RecordsEvent,
    Reset,
    connect,
    connect_sync,
)
from steno.values import SubscriptionEvent
from steno_protocol.context import Message
from support.daemon_in_thread import DaemonInThread

pytestmark = pytest.mark.anyio

WRITES = 50
WAIT_S = 30
END = {"role": "user", "content": "the end"}


class Writers(threading.Thread):
    """Two clients that append and rewrite by chance, and behind them the end.

    Args:
        kills: whether they kill the daemon, too.
    """

    def __init__(self, root: Path, *, kills: bool) -> None:
        super().__init__(name="writers")
        self._root = root
        self._kills = kills

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join()

    def run(self) -> None:
        """Write all, then the end."""
        threads = [threading.Thread(target=self._write, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with connect_sync(self._root) as client:
            client.session("demo").append_message(END)

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        with connect_sync(self._root, timeout=60) as client:
            session = client.open("demo", follow=False)
            session.checkpoint()
            for number in range(WRITES):
                session.append_message({"role": "user", "content": f"{seed}-{number}"})
                drawn = chance.random()
                if drawn < 0.15:
                    session.checkpoint()
                elif drawn < 0.3:
                    _rewrite(session, chance)
                elif drawn < 0.35 and self._kills:
                    with suppress(ProcessLookupError):
                        os.kill(client.welcome.pid, signal.SIGKILL)


def _rewrite(session: BlockingSession, chance: random.Random) -> None:
    count = session.stat().n_checkpoints
    if chance.random() < 0.2:
        session.restore_generation(0)
        return
    # Another writer may have taken the checkpoint away.
    with suppress(NotFound):
        session.revert_to(chance.randrange(max(1, count)))


def check(event: SubscriptionEvent, head: Position, history: Sequence[Message]) -> None:
    """The history is at the event or further, and at the event ends as that does."""
    match event:
        case RecordsEvent() if head == event.next:
            records = [record.record for record in event.records()]
            texts = [each["content"] for each in records if each["role"] == "user"]
            assert [each["content"] for each in history[len(history) - len(texts) :]] == texts
        case RecordsEvent():
            assert head > event.next
        case Reset():
            assert head >= Position(event.generation, event.kept)
        case _:
            pass


def _daemon(root: Path, *, kills: bool) -> AbstractContextManager[object]:
    """A daemon in this process, unless it is killed: then the clients start it."""
    return nullcontext() if kills else DaemonInThread(root)


@pytest.mark.parametrize("kills", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_blocking_session_contains_the_records_of_its_events(root: Path, *, kills: bool) -> None:
    with _daemon(root, kills=kills), connect_sync(root) as client:
        session = client.open("demo")
        events = session.subscribe("now")
        with Writers(root, kills=kills):
            while END not in session.history:
                event = events.next_event(timeout=WAIT_S)
                assert event is not None, "the last event came before its record was there"
                check(event, session.head, session.history)


@pytest.mark.parametrize("kills", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_an_async_session_contains_the_records_of_its_events(
    root: Path, *, kills: bool
) -> None:
    with _daemon(root, kills=kills):
        await _follow(root, kills=kills)


async def _follow(root: Path, *, kills: bool) -> None:
    async with connect(root) as client:
        session = await client.open("demo")
        async with session.subscribe("now") as events:
            with Writers(root, kills=kills):
                while END not in session.history:
                    with anyio.fail_after(WAIT_S):
                        event = await anext(events)
                    check(event, session.head, session.history)

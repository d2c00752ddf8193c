"""Lagging followers: one event, no lost record, no delay of others."""

import pytest

from steno_protocol import limits
from steno_protocol.positions import Position
from stenod.feed.feed import Subscriber
from support.wire_writing import WireDesk
from support.writing import Reader

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]


async def test_a_follower_without_room_for_live_lags() -> None:
    async with WireDesk().open() as desk:
        subscriber, reader = _full(desk, desk.feed.head)
        reader.is_full = False
        desk.now_s += limits.SUBSCRIBER_STALL_S + 1

        assert desk.feed.end_stalled() == 1
        assert reader.kinds == ["Lagged"]
        assert subscriber.gone


@pytest.mark.parametrize("is_gone", [False, True])
async def test_the_end_of_a_subscription_is_sent_once_there_is_room(is_gone: bool) -> None:
    async with WireDesk().open() as desk:
        subscriber, reader = _full(desk, desk.feed.head)
        desk.now_s += limits.SUBSCRIBER_STALL_S + 1
        if is_gone:
            desk.feed.end("it was deleted")
        else:
            desk.feed.end_stalled()
        subscriber.send_end()
        assert reader.kinds == []
        reader.is_full = False
        subscriber.send_end()
        subscriber.send_end()

        assert reader.kinds == ["Gone" if is_gone else "Lagged"]


def _full(desk: WireDesk, position: Position) -> tuple[Subscriber, Reader]:
    """A follower of the wire file without room for any event."""
    reader = Reader(desk, is_full=True)
    subscriber = Subscriber(reader.send, position, 1 << 20)
    desk.feed.add(subscriber)
    return subscriber, reader

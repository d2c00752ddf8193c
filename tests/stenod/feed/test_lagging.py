"""Lagging followers: one event, no lost record, no delay of others."""

import random

import pytest

from steno_protocol import limits, paths
from steno_protocol.events import AnyEvent, DmailEvent, Gone, Lagged, Live, Records, Reset
from steno_protocol.positions import Position
from stenod.feed.feed import Feed, Subscriber
from support.lines import append, checkpoint, clear, prompt, restore, revert, user
from support.wire_writing import WireDesk, append_wire, event
from support.writing import PATH, Reader

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

PAUSES_S = [1.0, limits.SUBSCRIBER_STALL_S / 2, limits.SUBSCRIBER_STALL_S + 1]


class Follower:
    """A follower with little credit that checks the sequence of its events.

    Attributes:
        present: the lines of the generation it is in.
        owes_since: since when it is behind and has no credit, by this test's own account.
        lagged: number of its lagging events.
    """

    def __init__(self, desk: WireDesk, feed: Feed, credit: int) -> None:
        self.position = Position(0, 0)
        self.present: list[bytes] = []
        self.owes_since: float | None = None
        self.lagged = 0
        self.subscriber: Subscriber | None = None
        self._desk = desk
        self._feed = feed
        self.follow(credit)

    def follow(self, credit: int) -> None:
        """Subscribe where it is."""
        self.subscriber = Subscriber(self._take, self.position, credit)
        self._feed.check(self.position)
        self._feed.add(self.subscriber)

    def grant(self, size: int) -> None:
        """Say that so many bytes more may come."""
        if self.subscriber is not None:
            self._feed.grant(self.subscriber, size)
            self.owes_since = None

    def look(self) -> None:
        """Note whether it owes a grant; every task had its turn."""
        subscriber = self.subscriber
        is_behind = subscriber is not None and subscriber.position != self._feed.head
        if subscriber is None or not is_behind or subscriber.credit > 0:
            self.owes_since = None
        elif self.owes_since is None:
            self.owes_since = self._desk.now_s

    @property
    def has_stalled(self) -> bool:
        """True when it must get a lagging event."""
        since = self.owes_since
        return since is not None and self._desk.now_s - since > limits.SUBSCRIBER_STALL_S

    def _take(self, event: AnyEvent, block: bytes | None) -> bool:
        match event:
            case Records():
                assert Position.parse(event.first) == self.position
                found = (block or b"").splitlines(keepends=True)
                self.present += found
                generation, line = self.position
                self.position = Position(generation, line + len(found))
                assert event.next == str(self.position)
            case Reset():
                assert event.generation == self.position.generation + 1
                assert event.kept <= len(self.present)
                del self.present[event.kept :]
                self.position = Position(event.generation, event.kept)
            case Live():
                assert event.head == str(self.position)
            case Lagged():
                assert event.next == str(self.position)
                self.lagged += 1
                self.subscriber = None
            case DmailEvent() | Gone():
                raise AssertionError(f"unexpected event: {event}")
        return True


class Play:
    """Random work on both files, and followers of each."""

    def __init__(self, desk: WireDesk, chance: random.Random) -> None:
        self._desk = desk
        self._chance = chance
        feeds = [desk.context.feed, desk.feed]
        windows = [1, 3000, 1 << 22]
        self.followers = [Follower(desk, feed, credit) for feed in feeds for credit in windows]

    async def step(self, number: int) -> None:
        """Do one random thing and check its effect."""
        chance, desk = self._chance, self._desk
        match chance.randint(0, 9):
            case 0:
                rewrites = [
                    clear(f"c{number}"),
                    revert(f"r{number}", 0),
                    restore(f"g{number}", 0),
                    prompt(f"p{number}", "be kind"),
                ]
                desk.send_to_context(chance.choice(rewrites))
            case 1:
                desk.send_to_context(checkpoint(f"s{number}"))
            case 2 | 3:
                for follower in self.followers:
                    follower.grant(chance.choice([1, 800, 5000]))
            case 4 | 5:
                await self._pass_time()
            case 6:
                for follower in self.followers:
                    if follower.subscriber is None and chance.random() < 0.7:
                        follower.follow(chance.choice([1, 3000]))
            case 7:
                command = append_wire(f"w{number}", durability="synced")
                desk.send(command, *[event(number)] * chance.randint(1, 4))
            case _:
                text = "x" * chance.randint(0, 99)
                desk.send_to_context(append(f"k{number}"), *[user(text)] * chance.randint(1, 4))
        await desk.settle(60)
        for follower in self.followers:
            follower.look()

    async def _pass_time(self) -> None:
        desk = self._desk
        desk.now_s += self._chance.choice(PAUSES_S)
        before = [follower.lagged for follower in self.followers]
        expected = [follower.has_stalled for follower in self.followers]
        ended = desk.context.feed.end_stalled() + desk.feed.end_stalled()
        lagged = [each.lagged - was for each, was in zip(self.followers, before, strict=True)]
        assert lagged == expected
        assert ended == sum(lagged)

    async def catch_up(self) -> None:
        """All followers give credit again and receive everything."""
        for follower in self.followers:
            if follower.subscriber is None:
                follower.follow(1 << 22)
            follower.grant(limits.SUBSCRIPTION_WINDOW_BYTES_MAX)
        await self._desk.settle(300)


@pytest.mark.parametrize("number", range(5))
async def test_a_lagging_follower_resumes_across_rewrites_of_both_files(
    number: int, seed: int
) -> None:
    async with WireDesk().open() as desk:
        play = Play(desk, random.Random(seed * 100 + number))
        for step in range(80):
            await play.step(step)
        await play.catch_up()

        context = desk.file(paths.CONTEXT).splitlines(keepends=True)
        wire = desk.file(paths.WIRE).splitlines(keepends=True)
        for follower, lines in zip(play.followers, [context] * 3 + [wire] * 3, strict=True):
            assert follower.present == lines
        assert desk.disk.durable(f"{PATH}/{paths.CONTEXT}") == b"".join(context)


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

"""Subscribers of a writer's feed that check each event against the last one."""

from collections.abc import Callable

from steno_protocol.events import AnyEvent, DmailEvent, Gone, Lagged, Live, Records, Reset
from steno_protocol.positions import Position
from stenod.feed.feed import Feed, Subscriber
from support.simulated_disk import SimulatedDisk
from support.simulated_inodes import File


class Follower:
    """A subscriber that keeps every line that it saw.

    Attributes:
        position: how far it is.
        seen: the lines by their position.
        mail: the last event of a D-Mail.
        subscriber: its place in a feed, None while it has none.
    """

    def __init__(self, position: Position, *, from_start: bool) -> None:
        self.position = position
        self.seen: dict[Position, bytes] = {}
        self.mail: DmailEvent | None = None
        self.subscriber: Subscriber | None = None
        self._present: list[bytes] | None = [] if from_start else None

    @property
    def lines(self) -> list[bytes]:
        """The present lines of the session, as far as they were sent."""
        return self._present or []

    def subscribe(self, feed: Feed, credit: int) -> None:
        """Follow a feed from the present position, which a crash must not have taken back."""
        feed.check(self.position)
        self.mail = None
        self.subscriber = Subscriber(self.send, self.position, credit)
        feed.add(self.subscriber)

    def send(self, event: AnyEvent, block: bytes | None) -> bool:
        """Take an event from a `Subscriber`."""
        match event:
            case Records():
                self._take_records(event, block or b"")
            case Reset():
                self._take_reset(event)
            case Live():
                assert Position.parse(event.head) == self.position
            case DmailEvent():
                self.mail = event
            case Lagged() | Gone():
                self.subscriber = None
        return True

    def _take_records(self, event: Records, block: bytes) -> None:
        generation, line = self.position
        found = block.splitlines(keepends=True)
        assert Position.parse(event.first) == self.position, f"{event} after {self.position}"
        assert Position.parse(event.next) == Position(generation, line + len(found))
        for number, data in enumerate(found, line):
            self.seen[Position(generation, number)] = data
        if self._present is not None:
            self._present += found
        self.position = Position.parse(event.next)

    def _take_reset(self, event: Reset) -> None:
        generation, line = self.position
        is_over = event.why == "foreign" and event.kept == 0
        assert is_over or event.generation == generation + 1, f"{event} after {self.position}"
        assert event.kept <= line or is_over
        if self._present is not None:
            del self._present[event.kept :]
            for number, data in enumerate(self._present):
                self.seen[Position(event.generation, number)] = data
        self.position = Position(event.generation, event.kept)


class DurableFollower(Follower):
    """A follower from the start that also checks that what it is shown is durable.

    Args:
        disk: where the session lies.
        report: called with the fault of an event.
    """

    def __init__(self, disk: SimulatedDisk, report: Callable[[str], None]) -> None:
        super().__init__(Position(0, 0), from_start=True)
        self._disk = disk
        self._report = report

    def send(self, event: AnyEvent, block: bytes | None) -> bool:
        """Take an event from a `Subscriber`."""
        try:
            self._check_durable(block or b"")
            return super().send(event, block)
        except AssertionError as error:
            self._report(f"a follower at {self.position}: {error!r}")
            return True

    def _check_durable(self, block: bytes) -> None:
        files = [bytes(node.durable) for node in self._disk._nodes() if isinstance(node, File)]
        is_durable = block in b"\0".join(files) or all(
            any(line in data for data in files) for line in block.splitlines(keepends=True)
        )
        assert is_durable, f"a power cut can take what it was shown: {block!r}"

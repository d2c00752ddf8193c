"""Somebody who follows a context beside another program: no gap, and nothing a power cut takes."""

from collections.abc import Callable

from sim.clients import Follower
from steno_protocol.events import AnyEvent
from steno_protocol.positions import Position
from support.simulated_disk import SimulatedDisk
from support.simulated_inodes import File


class RoughReader(Follower):
    """A follower from the start.

    Args:
        disk: where the session lies.
        fault: told of what an event broke.
    """

    def __init__(self, disk: SimulatedDisk, fault: Callable[[str], None]) -> None:
        super().__init__(Position(0, 0), from_start=True)
        self._disk = disk
        self._fault = fault

    @property
    def lines(self) -> list[bytes]:
        """What the session holds for it now."""
        return self._present or []

    def send(self, event: AnyEvent, block: bytes | None) -> bool:
        """What its `Subscriber` sends with."""
        try:
            self._check_durable(block or b"")
            return super().send(event, block)
        except AssertionError as error:
            self._fault(f"a reader at {self.position}: {error!r}")
            return True

    def _check_durable(self, block: bytes) -> None:
        files = [bytes(node.durable) for node in self._disk._nodes() if isinstance(node, File)]
        shown = block in b"\0".join(files) or all(
            any(line in data for data in files) for line in block.splitlines(keepends=True)
        )
        assert shown, f"it was shown what a power cut can take: {block!r}"

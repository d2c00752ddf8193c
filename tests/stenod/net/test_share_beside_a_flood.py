"""The rate of a client that waits for each reply, beside one that floods, on a stepped clock.

The socket, the event loop and the commits are models; receiving, turns and pauses are the daemon's.
"""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from steno_protocol.limits import MAILBOX_BYTES_MAX
from stenod.api.peers import InFlightFrames
from stenod.net import transport
from stenod.net.transport import Transport

FLOOD, LIGHT = b"flood", b"light"
RUN_S = 20.0
SYNC_S = 0.001
THINK_S = 0.0002
"""Time from a reply to the light client's next request."""

LIGHT_FROM_S = 0.5
"""Time that the flood has alone at first, in which it fills the mailbox."""

PART_S = 0.0006
"""Time to take in a part of a message."""


class Frame:
    """A received frame of a size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.bytes = b""

    def __len__(self) -> int:
        return self._size


class World:
    """An event loop, a socket with the messages of two clients, and a disk, on a stepped clock.

    Attributes:
        now: the time.
        answered: the answers that each client got.
        waiting: the commands of each client without an answer.
    """

    def __init__(
        self, served: Transport, size: int, decide_s: float, write_s: float, parts: int = 1
    ) -> None:
        self.now = 1000.0
        self.answered = {FLOOD: 0, LIGHT: 0}
        self.waiting = {FLOOD: 0, LIGHT: 0}
        self.has_flood = True
        self._served = served
        self._size, self._decide_s, self._write_s = size // parts, decide_s, write_s
        self._parts, self._parts_left = parts, parts
        self._mailbox: deque[bytes] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._light_at = self.now + LIGHT_FROM_S
        # The clients that had a message when they were last asked for one, and the next one to ask.
        self._active: list[bytes] = []
        self._next = 0

    # --- the event loop ---------------------------------------------------------------------------

    def call_soon(self, work: Callable[[], None]) -> "World":
        return self.call_later(0.0, work)

    def call_later(self, delay_s: float, work: Callable[[], None]) -> "World":
        heapq.heappush(self._timers, (self.now + delay_s, next(self._numbers), work))
        return self

    def cancel(self) -> None:
        """A model of one timer: the transport begins no turn before its time."""

    def run(self) -> None:
        """Run callbacks, and the reader of the socket when a message is signalled."""
        end_s = self.now + RUN_S
        while self.now < end_s:
            due_s = self._timers[0][0] if self._timers else end_s
            if due_s <= self.now:
                heapq.heappop(self._timers)[2]()
            elif self._has_light() or (self.has_flood and not self._served._turns.until_s):
                self._served._handle_burst()
            else:
                self.now = min(due_s, max(self.now, self._light_at))

    # --- the socket -------------------------------------------------------------------------------

    def receive(self) -> tuple[bytes, list[Frame]] | None:
        """One message of each client in turn, as libzmq hands them out.

        A client without a message is not asked again before it has one; it is then the last.
        """
        has = {FLOOD: self.has_flood, LIGHT: self._has_light()}
        self._active += [each for each in has if has[each] and each not in self._active]
        while self._active:
            self._next %= len(self._active)
            identity = self._active[self._next]
            if not has[identity]:
                self._active.remove(identity)
                continue
            self._next += 1
            if identity == LIGHT:
                self._light_at = float("inf")
            return identity, [Frame(10), Frame(self._size if identity == FLOOD else 100)]
        return None

    def has_input(self, *_: object) -> bool:
        return self.has_flood or self._has_light()

    def poll(self, _: int) -> bool:
        return self._has_light()

    def _has_light(self) -> bool:
        return self._light_at <= self.now

    # --- commands and their commits ---------------------------------------------------------------

    def handle(self, identity: bytes, _: list[bytes], __: str | None) -> int:
        if identity == FLOOD and self._parts_left > 1:
            self._parts_left -= 1
            self.now += PART_S
            return 0
        if identity == FLOOD and self.waiting[FLOOD] * self._size * self._parts > MAILBOX_BYTES_MAX:
            # A full mailbox refuses.
            self._served.send(identity, [b"busy"], InFlightFrames())
            return 1
        self._parts_left = self._parts if identity == FLOOD else self._parts_left
        self.now += self._decide_s if identity == FLOOD else 0.0001
        self.waiting[identity] += 1
        self._mailbox.append(identity)
        return 1

    def commit(self) -> None:
        """Write and sync at most one command of the flood and all of the other client."""
        if not self._mailbox:
            return
        group = [each for each in self._mailbox if each == LIGHT]
        if FLOOD in self._mailbox:
            group.append(FLOOD)
            self.now += self._write_s
        self.now += SYNC_S
        for each in group:
            self._mailbox.remove(each)
            self._answer(each)
        if self._mailbox:
            self.call_soon(self.commit)

    def _answer(self, identity: bytes) -> None:
        self.waiting[identity] -= 1
        self.answered[identity] += 1
        if identity == LIGHT:
            self._light_at = self.now + THINK_S
        self._served.send(identity, [b"an answer"], InFlightFrames())


def light_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_flood: bool, **costs: Any
) -> int:
    """The answers that the light client gets within the time of a run."""
    served = Transport(lambda _: True)
    served.bind_ipc(folder / "socket")
    world = World(served, **costs)
    world.has_flood = has_flood
    with monkeypatch.context() as patch:
        patch.setattr(transport.time, "monotonic", lambda: world.now)
        patch.setattr(transport.asyncio, "get_running_loop", lambda: world)
        patch.setattr(served, "_receive", world.receive)
        patch.setattr(served, "_has_input", world.has_input)
        patch.setattr(served, "_poll_news", world)
        patch.setattr(served, "_handle", world.handle)
        patch.setattr(served, "_end_burst", world.commit)
        patch.setattr(served, "_refusal", lambda *_: ())
        patch.setattr(served, "_is_waiting", lambda each: world.waiting[each] > 0)
        world.run()
    served.close()
    return world.answered[LIGHT]


@pytest.mark.parametrize(
    "costs",
    [
        {"size": 100, "decide_s": 0.0001, "write_s": 0.0001},
        {"size": 100 * 1024, "decide_s": 0.0004, "write_s": 0.001},
        {"size": 1024 * 1024, "decide_s": 0.003, "write_s": 0.008},
        # Deciding and writing take longer than the light client counts as present.
        {"size": 8 * 1024 * 1024, "decide_s": 0.025, "write_s": 0.06, "parts": 8},
    ],
    ids=["100 B", "100 KiB", "1 MiB", "8 MiB"],
)
def test_client_that_waits_for_replies_keeps_most_of_its_rate_beside_a_flood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, costs: dict[str, Any]
) -> None:
    alone = light_answers(tmp_path, monkeypatch, has_flood=False, **costs)
    beside = light_answers(tmp_path, monkeypatch, has_flood=True, **costs)
    assert beside / alone > 0.6

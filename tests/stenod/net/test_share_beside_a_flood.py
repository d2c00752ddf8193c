"""The rates of clients that share the daemon, on a stepped clock.

The socket, the event loop and the commits are models; receiving, turns and pauses are the daemon's.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from steno_protocol.limits import KIB, MAILBOX_BYTES_MAX, MIB, PART_BYTES
from stenod.api.peers import InFlightFrames
from stenod.net import transport
from stenod.net.transport import Transport

FLOOD_RUN_S, EQUAL_RUN_S = 20.0, 5.0
SYNC_S = 0.001
THINK_S = 0.0002
"""Time from the last reply to a client's next message."""

LIGHT_FROM_S = 0.5
"""Time that the flood has alone at first, in which it fills the mailbox."""

SETTLED_S = 0.2
"""Time after which it is known which clients are heavy."""

SLICE_S = 0.006
"""Time that a client has the processor before another one has it: enough for some messages."""

PART_S = 0.00006
"""Time to take in a part of a message."""


class Frame:
    """A received frame of a size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.bytes = b""

    def __len__(self) -> int:
        return self._size


@dataclass
class Client:
    """A client that sends a message when it has all answers to the last one, or a flood.

    Attributes:
        in_flight: its commands in a message; 0 for a flood, which sends them one by one without
            waiting for answers.
        size: the bytes of a command.
        parts: the messages of a command.
        decide_s: time to receive and decide a command.
        write_s: time to write it.
        sends_at: when it sends its next message.
        answered: the answers that it got.
        waiting: its commands without an answer.
        parts_left: the messages that its present command still needs.
        number: its number among `clients`, which run for `SLICE_S` after each other.
    """

    in_flight: int = 1
    size: int = 100
    parts: int = 1
    decide_s: float = 0.0001
    write_s: float = 0.0
    sends_at: float = 0.0
    answered: int = 0
    waiting: int = 0
    parts_left: int = 1
    number: int = 0
    clients: int = 1

    @property
    def is_flood(self) -> bool:
        return self.in_flight == 0

    @property
    def commands(self) -> int:
        return self.in_flight or 1

    def runs_at(self, now: float) -> float:
        """When the client has the processor that it shares with the others."""
        slices = int(now / SLICE_S)
        left = (self.number - slices) % self.clients
        return (slices + left) * SLICE_S if left else now


class World:
    """An event loop, a socket with the messages of clients, and a disk, on a stepped clock.

    Attributes:
        now: the time.
        turns_s: the times of the steps after which heavy clients waited for turns.
    """

    def __init__(self, served: Transport, clients: dict[bytes, Client]) -> None:
        self.now = 0.0
        self.turns_s: list[float] = []
        self._served = served
        self._clients = clients
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
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

    def run(self, end_s: float) -> None:
        """Run callbacks, and the reader of the socket when a message is signalled."""
        while self.now < end_s:
            self._step(end_s)
            if self._served._turns.until_s:
                self.turns_s.append(self.now)

    def _step(self, end_s: float) -> None:
        due_s = self._timers[0][0] if self._timers else end_s
        if due_s <= self.now:
            heapq.heappop(self._timers)[2]()
        elif self.poll() or (self.has_input() and not self._served._turns.until_s):
            self._served._handle_burst()
        else:
            next_s = min(each.sends_at for each in self._clients.values() if not each.is_flood)
            self.now = min(due_s, max(self.now, next_s))

    # --- the socket -------------------------------------------------------------------------------

    def receive(self) -> tuple[bytes, list[Frame]] | None:
        """One message of each client in turn, as libzmq hands them out.

        A client without a message is not asked again before it has one; it is then the last.
        """
        has = {name: each.sends_at <= self.now for name, each in self._clients.items()}
        self._active += [each for each in has if has[each] and each not in self._active]
        while self._active:
            self._next %= len(self._active)
            identity = self._active[self._next]
            if not has[identity]:
                self._active.remove(identity)
                continue
            self._next += 1
            client = self._clients[identity]
            if not client.is_flood:
                client.sends_at = float("inf")
            return identity, [Frame(10), Frame(client.commands * client.size // client.parts)]
        return None

    def has_input(self, *_: object) -> bool:
        return any(each.sends_at <= self.now for each in self._clients.values())

    def poll(self, _: int = 0) -> bool:
        """Whether a message of a client is signalled: the flood always has one."""
        return any(
            each.sends_at <= self.now for each in self._clients.values() if not each.is_flood
        )

    # --- commands and their commits ---------------------------------------------------------------

    def handle(self, identity: bytes, _: list[bytes], __: str | None) -> int:
        client = self._clients[identity]
        if client.parts_left > 1:
            client.parts_left -= 1
            self.now += PART_S
            return 0
        if client.is_flood and client.waiting * client.size > MAILBOX_BYTES_MAX:
            # A full mailbox refuses.
            self._served.send(identity, [b"busy"], InFlightFrames())
            return 1
        client.parts_left = client.parts
        self.now += client.decide_s * client.commands
        client.waiting += client.commands
        return client.commands

    def commit(self) -> None:
        """Write and sync at most one command of a flood and all of the other clients."""
        group = {
            name: 1 if each.is_flood else each.waiting
            for name, each in self._clients.items()
            if each.waiting
        }
        if not group:
            return
        self.now += SYNC_S
        self.now += sum(self._clients[name].write_s * number for name, number in group.items())
        for name, number in group.items():
            self._answer(name, number)
        if any(each.waiting for each in self._clients.values()):
            self.call_soon(self.commit)

    def is_waiting(self, identity: bytes) -> bool:
        return self._clients[identity].waiting > 0

    def _answer(self, identity: bytes, number: int) -> None:
        client = self._clients[identity]
        client.waiting -= number
        client.answered += number
        if not (client.is_flood or client.waiting):
            client.sends_at = client.runs_at(self.now + THINK_S)
        self._served.send(identity, [b"answers"], InFlightFrames())


def run(folder: Path, clients: dict[bytes, Client], end_s: float) -> World:
    """A world after its run with these clients."""
    served = Transport(lambda _: True)
    served.bind_ipc(folder / "socket")
    world = World(served, clients)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport.time, "monotonic", lambda: world.now)
        patch.setattr(transport.asyncio, "get_running_loop", lambda: world)
        patch.setattr(served, "_receive", world.receive)
        patch.setattr(served, "_has_input", world.has_input)
        patch.setattr(served, "_poll_news", world)
        patch.setattr(served, "_handle", world.handle)
        patch.setattr(served, "_end_burst", world.commit)
        patch.setattr(served, "_refusal", lambda *_: ())
        patch.setattr(served, "_is_waiting", world.is_waiting)
        world.run(end_s)
    served.close()
    return world


FLOODS: dict[str, dict[str, Any]] = {
    "100 B": {"size": 100, "write_s": 0.0001},
    "100 KiB": {"size": 100 * KIB, "decide_s": 0.0004, "write_s": 0.001},
    "1 MiB": {"size": MIB, "decide_s": 0.003, "write_s": 0.008},
    # Deciding and writing take longer than the light client counts as present.
    "8 MiB": {"size": 8 * MIB, "decide_s": 0.025, "write_s": 0.06},
}


@pytest.fixture(scope="module")
def answered_alone(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The answers of the light client when no other one sends."""
    alone = Client(sends_at=LIGHT_FROM_S)
    run(tmp_path_factory.mktemp("alone"), {b"light": alone}, FLOOD_RUN_S)
    return alone.answered


@pytest.mark.parametrize("costs", FLOODS.values(), ids=FLOODS)
def test_client_that_waits_for_replies_keeps_most_of_its_rate_beside_a_flood(
    tmp_path: Path, answered_alone: int, costs: dict[str, Any]
) -> None:
    beside = Client(sends_at=LIGHT_FROM_S)
    parts = -(-costs["size"] // PART_BYTES)
    flood = Client(in_flight=0, parts=parts, parts_left=parts, **costs)
    run(tmp_path, {b"light": beside, b"flood": flood}, FLOOD_RUN_S)
    assert beside.answered / answered_alone > 0.6


@pytest.mark.parametrize("shares", [False, True], ids=["own processors", "one processor"])
@pytest.mark.parametrize(("number", "in_flight"), [(4, 64), (5, 64), (16, 64), (16, 8), (4, 256)])
def test_equal_clients_never_wait_for_turns(
    tmp_path: Path, number: int, in_flight: int, shares: bool
) -> None:
    clients = {
        b"%d" % each: Client(
            in_flight=in_flight,
            decide_s=45e-6,
            number=each,
            clients=number if shares else 1,
        )
        for each in range(number)
    }
    world = run(tmp_path, clients, EQUAL_RUN_S)
    # A client is light when it sends its first message, and the earlier ones may be heavy then.
    assert not [each for each in world.turns_s if each > SETTLED_S]
    assert all(each.answered > 250 for each in clients.values())

"""Lanes: ways to append a line durably, each prepared and timed.

A lane is made from the places of the run; `run` appends `appends` lines, at most `in_flight` of
them unanswered, and returns the latency of each in microseconds.
"""

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import anyio
import msgspec
import zmq

import steno
from bench.adapter_stores import ADAPTER_LANES
from bench.crew import Task
from bench.lines import message
from bench.measuring import latencies_us
from bench.peers import Redis, Sqlite
from steno._sansio.requests import new_key
from steno_protocol import PROTOCOL_VERSION
from steno_protocol.commands import Append, Durability, Hello, Open, encode_command
from steno_protocol.messages import (
    OutgoingRequest,
    decode_answers,
    encode_request,
    encode_requests,
)

Latencies = list[float]


class Lane(Protocol):
    """One way to append."""

    def run(self, begin: Callable[[], None]) -> Latencies:
        """Get ready, call `begin`, append, and return the latencies."""
        ...


class ByHand:
    """flock, write, fsync, unlock for each line, as a program without a daemon does."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def run(self, begin: Callable[[], None]) -> Latencies:
        """See `Lane`."""
        line = message(1) + b"\n"
        path = f"{self._task.by_hand}-{self._task.session.rpartition('/')[2]}"
        with open(path, "ab", buffering=0) as file:  # noqa: PTH123 (as users do)

            def append() -> None:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(line)
                os.fsync(file.fileno())
                fcntl.flock(file, fcntl.LOCK_UN)

            begin()
            return latencies_us(self._task.appends, append)


class Blocking:
    """The blocking client."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def run(self, begin: Callable[[], None]) -> Latencies:
        """See `Lane`."""
        line = message(1)
        given = line if self._task.batch == 1 else [line] * self._task.batch
        with steno.connect_sync(self._task.root, spawn=False) as client:
            session = client.open(self._task.session, follow=False)
            begin()
            return latencies_us(self._task.appends, lambda: session.append_message(given))


class Async:
    """The async client on asyncio, one task for each append that may be in flight."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._latencies: Latencies = []
        self._left = task.appends

    def run(self, begin: Callable[[], None]) -> Latencies:
        """See `Lane`."""
        anyio.run(self._run, begin)
        return self._latencies

    async def _run(self, begin: Callable[[], None]) -> None:
        async with steno.connect(self._task.root, spawn=False) as client:
            session = await client.open(self._task.session, follow=False)
            begin()
            async with anyio.create_task_group() as tasks:
                for _ in range(self._task.in_flight):
                    tasks.start_soon(self._append, session)

    async def _append(self, session: steno.Session) -> None:
        line = message(1)
        while self._left > 0:
            self._left -= 1
            start = time.perf_counter()
            await session.append_message(line)
            self._latencies.append((time.perf_counter() - start) * 1e6)


class _Bare:
    """Frames over a bare socket, so that only the other end is measured."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._left = task.appends
        self._line = message(1)

    def run(self, begin: Callable[[], None]) -> Latencies:
        """See `Lane`."""
        self.greet()
        latencies: Latencies = []
        sent: dict[bytes, float] = {}
        begin()
        self._send(sent, self._task.in_flight)
        while sent:
            answered = self.answered(self.receive())
            latencies.extend((time.perf_counter() - sent.pop(each)) * 1e6 for each in answered)
            self._send(sent, len(answered))
        self.close()
        return latencies

    def greet(self) -> None:
        """The greeting before the first request."""

    def send(self, message_frames: list[bytes]) -> None:
        """Send a message."""
        raise NotImplementedError

    def receive(self) -> list[bytes]:
        """Wait for a message."""
        raise NotImplementedError

    def close(self) -> None:
        """Hang up."""
        raise NotImplementedError

    def messages(self, request_ids: Sequence[bytes]) -> list[list[bytes]]:
        """The frames of each message that asks for so many appends."""
        raise NotImplementedError

    def answered(self, message_frames: list[bytes]) -> list[bytes]:
        """The ids of the requests that a message answers."""
        raise NotImplementedError

    def _send(self, sent: dict[bytes, float], count: int) -> None:
        count = min(count, self._left)
        request_ids = [str(self._left - number).encode() for number in range(count)]
        self._left -= count
        sent.update(dict.fromkeys(request_ids, time.perf_counter()))
        for each in self.messages(request_ids) if count else ():
            self.send(each)


class _ByLibzmq(_Bare):
    """A bare socket of libzmq."""

    def __init__(self, task: Task, endpoint: str) -> None:
        super().__init__(task)
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)

    def send(self, message_frames: list[bytes]) -> None:
        """See `_Bare`."""
        *firsts, last = message_frames
        for frame in firsts:
            self._socket.send(frame, zmq.SNDMORE)
        self._socket.send(last)

    def receive(self) -> list[bytes]:
        """See `_Bare`."""
        return self._socket.recv_multipart()

    def close(self) -> None:
        """See `_Bare`."""
        self._socket.close()


class Floor(_ByLibzmq):
    """A bare socket against the floor."""

    def __init__(self, task: Task, endpoint: str | None = None) -> None:
        super().__init__(task, endpoint or task.floor)
        self._line += b"\n"

    def messages(self, request_ids: Sequence[bytes]) -> list[list[bytes]]:
        """See `_Bare`."""
        return [[request_id, self._line] for request_id in request_ids]

    def answered(self, message_frames: list[bytes]) -> list[bytes]:
        """See `_Bare`."""
        return [message_frames[0]]


class Echo(Floor):
    """A bare socket against a floor that writes nothing."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, task.echo)


class _Body(msgspec.Struct):
    kind: str


_decode_answers = msgspec.json.Decoder(list[tuple[str, _Body]]).decode


class _Steno(_Bare):
    """The daemon's own protocol, without a client around it."""

    durability: Durability = "synced"

    def greet(self) -> None:
        """See `_Bare`."""
        self._records = [self._line] * self._task.batch
        self._ask(b"hello", Hello(protocol=PROTOCOL_VERSION, name="bench"))
        self._ask(b"open", Open(session=self._task.session))

    def _ask(self, request_id: bytes, command: Hello | Open) -> None:
        self.send(encode_request(request_id, command, ()))
        # The daemon also asks now and then whether the client is there: without an id.
        while [each.id for each in decode_answers(self.receive())] != [request_id]:
            pass

    def messages(self, request_ids: Sequence[bytes]) -> list[list[bytes]]:
        """See `_Bare`."""
        return [encode_requests([self._request(each) for each in request_ids])]

    def answered(self, message_frames: list[bytes]) -> list[bytes]:
        """See `_Bare`."""
        header = message_frames[0].partition(b"\n")[2]
        answers = _decode_answers(header)
        for _, body in answers:
            assert body.kind == "ack", header
        return [request_id.encode() for request_id, _ in answers]

    def _request(self, request_id: bytes) -> OutgoingRequest:
        command = Append(
            session=self._task.session, key=new_key(), by="bench", durability=self.durability
        )
        return OutgoingRequest(request_id, encode_command(command), self._records)


class Raw(_Steno, _ByLibzmq):
    """The protocol over a bare socket of libzmq, as clients in other languages have it."""

    def __init__(self, task: Task) -> None:
        _ByLibzmq.__init__(self, task, task.endpoint)


class RawWritten(Raw):
    """`Raw` with the durability `written`."""

    durability: Durability = "written"


def _fenced_publish(task: Task) -> Lane:
    # The other lanes work without the package `nats`.
    from bench.publishing import FencedPublish

    return FencedPublish(task)


LANES: Final[dict[str, Callable[[Task], Lane]]] = {
    "by hand": ByHand,
    "floor": Floor,
    "echo": Echo,
    "raw": Raw,
    "raw, written": RawWritten,
    "redis": Redis,
    "sqlite": Sqlite,
    "blocking": Blocking,
    "async": Async,
    "fenced publish": _fenced_publish,
    **ADAPTER_LANES,
}

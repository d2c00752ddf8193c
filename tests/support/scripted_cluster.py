"""Scripted daemons of one cluster: a session in memory that moves between them."""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import zmq

from steno_protocol import commands, events, replies
from steno_protocol.errors import ErrorCode
from steno_protocol.messages import Request
from steno_protocol.positions import Position
from support.framing import answer_frames
from support.scripted_daemon import Answers, ScriptedDaemon

WAIT_S: Final = 30
DEADLINE_S: Final = 4.0
"""For errors that come at the deadline: a machine that pauses for some seconds leaves time for the
answers before it."""
TURN_S: Final = 0.01
"""The pause of a silent member's thread, after which it looks whether it is to end."""
HOME: Final = 0
"""The member that clients in tests connect to."""


def message(number: int) -> dict[str, Any]:
    """A message with this number as its text."""
    return {"role": "user", "content": str(number)}


def contents(lines: list[bytes]) -> list[str]:
    """The texts of lines."""
    return [json.loads(line)["content"] for line in lines]


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


async def wait_until_async(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, while other tasks run."""
    with anyio.fail_after(WAIT_S):
        while not is_so():
            await anyio.sleep(0.002)


class ScriptedCluster:
    """What the daemons of a cluster share: one session, its keys and its owner.

    Attributes:
        members: its daemons; the first one is the home of the clients in tests.
        owner: the member that owns the session; None: the first that is asked takes it.
        lines: the lines of the session.
        named: what members that are not the owner name instead of the owner, by their number.
    """

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.owner: int | None = 0
        self.lines: list[bytes] = []
        self.acks: dict[str, replies.Ack] = {}
        self.named: dict[int, str | None] = {}
        self.lock = threading.Lock()

    def move(self, number: int | None) -> None:
        """Make another member the owner; the present one ends its subscriptions."""
        with self.lock:
            before, self.owner = self.owner, number
        if before is not None:
            self.members[before].ends_subscriptions.set()

    def kill(self, number: int) -> None:
        """End a member without a word; the session has no owner if it was that."""
        self.members[number].stop()
        self.members[number].wait()

    def appends_at(self, number: int) -> list[commands.Append]:
        """The appends that came to a member."""
        asked = self.members[number].requests
        return [command for command in asked if isinstance(command, commands.Append)]

    def endpoint_of(self, number: int) -> str | None:
        """The address that a member names as the owner's."""
        if number in self.named:
            return self.named[number]
        return None if self.owner is None else self.members[self.owner].endpoint


class Member(ScriptedDaemon):
    """One daemon of a scripted cluster.

    Attributes:
        ends_subscriptions: set: it ends all subscriptions because of a hand-over.
        loses_answers: the number of appends that it applies and whose answers it loses.
    """

    def __init__(self, folder: Path, cluster: ScriptedCluster, number: int) -> None:
        super().__init__(folder)
        self.endpoint = f"ipc://{folder}/{number}.sock"
        self.ends_subscriptions = threading.Event()
        self.loses_answers = 0
        self._speaks = threading.Event()
        self._speaks.set()
        self._has_stopped = threading.Event()
        self._cluster = cluster
        self._number = number
        self._seen: dict[tuple[bytes, bytes], int] = {}

    def fall_silent(self) -> None:
        """Read nothing from now on, as a stopped process, until `speak`."""
        self._speaks.clear()
        assert self._has_stopped.wait(60)

    def speak(self) -> None:
        """Go on after `fall_silent`."""
        self._has_stopped.clear()
        self._speaks.set()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _turn(self, router: "zmq.Socket[bytes]") -> bool:
        if not self._speaks.is_set():
            self._has_stopped.set()
            # What it does not read would bring its thread back here at once.
            self._speaks.wait(TURN_S)
            return False
        if self.ends_subscriptions.is_set():
            self.ends_subscriptions.clear()
            for peer, request_id in self._seen:
                gone = events.Gone(why="the session was handed over", moved=True)
                router.send_multipart([peer, *answer_frames(request_id, gone)])
            self._seen.clear()
        self._publish_new(router)
        return True

    def _publish_new(self, router: "zmq.Socket[bytes]") -> None:
        with self._cluster.lock:
            lines = list(self._cluster.lines)
        for (peer, request_id), known in list(self._seen.items()):
            if known < len(lines):
                event = events.Records(first=f"0:{known}", next=f"0:{len(lines)}")
                frames = answer_frames(request_id, event, b"".join(lines[known:]))
                router.send_multipart([peer, *frames])
                self._seen[peer, request_id] = len(lines)

    def _answer(self, peer: bytes, request: Request) -> Answers:
        if not isinstance(request.command, commands.SessionCommand):
            return super()._answer(peer, request)
        cluster = self._cluster
        with cluster.lock:
            if cluster.owner is None and self._number not in cluster.named:
                cluster.owner = self._number
            if cluster.owner != self._number:
                return [(self._held(cluster.endpoint_of(self._number)), None)]
            self.lines = cluster.lines
            match request.command:
                case commands.Append(key=key):
                    return self._append(key, request)
                case commands.Subscribe(after=after):
                    return self._subscribe(peer, request.id, after)
                case _:
                    return super()._answer(peer, request)

    def _held(self, endpoint: str | None) -> replies.ErrorReply:
        return replies.ErrorReply(
            code=ErrorCode.HELD, message="another daemon owns it", session="demo", endpoint=endpoint
        )

    def _append(self, key: str, request: Request) -> Answers:
        acks = self._cluster.acks
        if key not in acks:
            first = len(self.lines)
            self.lines += [record + b"\n" for record in request.records]
            last = len(self.lines) - 1
            acks[key] = replies.Ack(first=f"0:{first}", last=f"0:{last}", head=f"0:{last + 1}")
        if self.loses_answers:
            self.loses_answers -= 1
            return []
        return [(acks[key], None)]

    def _subscribe(self, peer: bytes, request_id: bytes, after: str) -> Answers:
        head = len(self.lines)
        begin = {"start": 0, "now": head}.get(after)
        begin = Position.parse(after).line if begin is None else begin
        self._seen[peer, request_id] = head
        backlog = events.Records(first=f"0:{begin}", next=f"0:{head}")
        return [
            (replies.Subscribed(head=f"0:{head}", incarnation="i"), None),
            *([(backlog, b"".join(self.lines[begin:]))] if begin < head else []),
            (events.Live(head=f"0:{head}"), None),
        ]


@contextmanager
def scripted_cluster(folder: Path, members: int = 3) -> Generator[ScriptedCluster]:
    """A cluster of scripted daemons, with their sockets in this folder."""
    cluster = ScriptedCluster()
    with ExitStack() as running:
        for number in range(members):
            cluster.members.append(running.enter_context(Member(folder, cluster, number)))
        yield cluster

"""A scripted daemon in a thread: late, wrong or missing replies."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import zmq

from steno_protocol import PROTOCOL_VERSION, commands, events, replies
from steno_protocol.errors import Incompatible
from steno_protocol.messages import Request, Unreadable, decode_requests
from support.framing import answer_frames

Answers = list[tuple[replies.Reply | events.Event, bytes | None]]
Script = Callable[[Request], Answers | None]
"""Returns the reply to a request, or None for the default reply."""


class ScriptedDaemon:
    """A ROUTER that keeps one session in memory and asks `script` first.

    Attributes:
        requests: every command that came, in order.
        gone: the reason in the gone event that followers get instead of the next lines.
    """

    def __init__(self, folder: Path, script: Script | None = None, *, root: str = "") -> None:
        self.endpoint = f"ipc://{folder}/scripted.sock"
        self.requests: list[commands.AnyCommand] = []
        self.lines: list[bytes] = []
        self.gone: str | None = None
        self.root = root
        self.script: Script = script if script is not None else lambda _: None
        self._followers: list[tuple[bytes, bytes]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._bound = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._bound.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """End after the request at hand; a script may call it."""
        self._stop.set()

    def _serve(self) -> None:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            router.linger = 0
            router.bind(self.endpoint)
            self._bound.set()
            while not self._stop.is_set():
                if self._turn(router) and router.poll(5):
                    peer, *frames = router.recv_multipart()
                    for request in self._decoded(frames):
                        assert isinstance(request, Request), request
                        self._take(router, peer, request)

    def _decoded(self, frames: list[bytes]) -> list[Request | Unreadable]:
        # A client that gets no answer tries the protocol before this one, too.
        with suppress(Incompatible):
            return decode_requests(frames)
        return []

    def _turn(self, _router: "zmq.Socket[bytes]") -> bool:
        """Called before each message; True: it may be received."""
        return True

    def _take(self, router: "zmq.Socket[bytes]", peer: bytes, request: Request) -> None:
        self.requests.append(request.command)
        known = len(self.lines)
        answers = self.script(request)
        if answers is None:
            answers = self._answer(peer, request)
        for body, block in answers:
            router.send_multipart([peer, *answer_frames(request.id, body, block)])
        if len(self.lines) > known:
            self._publish(router, len(self.lines) - known)

    def _publish(self, router: "zmq.Socket[bytes]", count: int) -> None:
        block: bytes | None = b"".join(self.lines[-count:])
        head = len(self.lines)
        event: events.Event = events.Records(first=f"0:{head - count}", next=f"0:{head}")
        if self.gone is not None:
            event, block = events.Gone(why=self.gone), None
        for peer, request_id in self._followers:
            router.send_multipart([peer, *answer_frames(request_id, event, block)])

    def _answer(self, peer: bytes, request: Request) -> Answers:
        head = f"0:{len(self.lines)}"
        match request.command:
            case commands.Hello():
                return [(welcome(self.root), None)]
            case commands.Open() | commands.Stat():
                return [(self._stat(), None)]
            case commands.Append():
                self.lines += [record + b"\n" for record in request.records]
                last = len(self.lines) - 1
                first = last + 1 - len(request.records)
                after = f"0:{last + 1}"
                return [(replies.Ack(first=f"0:{first}", last=f"0:{last}", head=after), None)]
            case commands.Subscribe():
                self._followers.append((peer, request.id))
                backlog = events.Records(first="0:0", next=head)
                return [
                    (replies.Subscribed(head=head, incarnation="i"), None),
                    *([(backlog, b"".join(self.lines))] if self.lines else []),
                    (events.Live(head=head), None),
                ]
            case commands.Grant():
                return []
            case _:
                return [(replies.Done(), None)]

    def _stat(self) -> replies.SessionStat:
        return replies.SessionStat(
            session="demo",
            head=f"0:{len(self.lines)}",
            bytes=0,
            generation=0,
            token_count=0,
            token_count_with_pending=0,
            n_checkpoints=0,
            has_system_prompt=False,
            folder="/nowhere",
        )


def welcome(root: str, protocol: int = PROTOCOL_VERSION) -> replies.Welcome:
    """The reply of a daemon of this root to `hello`."""
    return replies.Welcome(
        version="0",
        protocol=protocol,
        pid=1,
        root=root,
        started_at=0.0,
        clock_ms=int(time.monotonic() * 1000),
        limits={},
    )

"""A client's exchange with a clock that the test turns."""

from collections.abc import Sequence

from steno._sansio.exchange import Exchange
from steno._sansio.follower import Follower
from steno._sansio.owner_exchange import OwnerExchange
from steno._sansio.pending import Pending
from steno_protocol import events, replies
from steno_protocol.commands import AnyCommand, Append, Command, Hello, Stat
from steno_protocol.errors import ErrorCode, Outcome
from steno_protocol.messages import encode_requests
from support.framing import answer_frames, only_request

ACK = replies.Ack(first="0:0", last="0:0", head="0:1")
RECORD = b'{"role":"user","content":"hi"}'


class Driver:
    """An exchange with a clock that the test turns, and the requests that it sends."""

    def __init__(self, *, connected: bool = True, endpoint: str | None = None) -> None:
        self.stale_replies = 0
        hello, stale = Hello(protocol=2), self._count_stale
        self.exchange = (
            Exchange(hello, stale) if endpoint is None else OwnerExchange(hello, endpoint, stale)
        )
        self.now = 100.0
        self.woken: list[str] = []
        if connected:
            self.connect()

    def _count_stale(self) -> None:
        self.stale_replies += 1

    def connect(self) -> None:
        self.exchange.connected(self.welcome(), self.now)

    def welcome(self) -> replies.Welcome:
        return replies.Welcome(
            version="0",
            protocol=2,
            pid=1,
            root="/",
            started_at=0.0,
            clock_ms=5_000_000,
            limits={},
        )

    def append(self, key: str = "k1", timeout_s: float = 30.0) -> Pending:
        command = Append(session="demo", key=key)
        return self.exchange.submit(
            command, [RECORD], lambda: self.woken.append(key), self.now, timeout_s
        )

    def stat(self) -> Pending:
        return self.ask(Stat(session="demo"))

    def ask(self, command: Command) -> Pending:
        return self.exchange.submit(command, (), lambda: None, self.now, 30.0)

    def follow(self, after: str = "start", *, until_live: bool = False) -> Follower:
        follower = Follower("demo", after, lambda: self.woken.append("follower"))
        follower.until_live = until_live
        self.exchange.follow(follower, self.now, 30.0)
        return follower

    def sent(self) -> list[tuple[bytes, AnyCommand]]:
        requests = [only_request(encode_requests([each])) for each in self.exchange.outbox]
        self.exchange.outbox.clear()
        return [(request.id, request.command) for request in requests]

    def answer(
        self,
        request_id: bytes,
        body: replies.Reply | events.Event,
        block: bytes | None = None,
    ) -> None:
        self.exchange.receive(answer_frames(request_id, body, block), self.now)

    def refuse(
        self, request_id: bytes, code: ErrorCode, outcome: Outcome = Outcome.NOT_APPLIED
    ) -> None:
        self.answer(request_id, replies.ErrorReply(code=code, message="no", outcome=outcome))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.exchange.tick(self.now)


def only(requests: Sequence[tuple[bytes, AnyCommand]]) -> tuple[bytes, AnyCommand]:
    assert len(requests) == 1, requests
    return requests[0]

"""The requests and subscriptions of one client, without a socket or a clock.

The driver (async or blocking) owns the socket and the clock. It calls `submit`, `receive`,
`connected`, `disconnected` and `tick`, passes its `send` to `flush` while `outbox` holds requests,
and calls `tick` again when `alarm` is reached.

An interrupt (an exception of a signal handler) may end any call here half-way. The driver then
drops the connection and calls `disconnected`. The daemon sends again on the next connection what
was not received as a whole, as after every loss of a connection.

The life of a request:

    submitted --connected--> under way --answer--> done
                  ^             | no answer for `interval_s`: sent again, `repeat` set
                  |             | busy, shutting_down, expired: sent again after `backoff_s`
                  +-------------+ disconnected: waits for `connected`, then sent again
    and at its deadline it is done with Unreachable or OutcomeUnknown, wherever it is.

A request or subscription that another daemon of a cluster has to serve is put into `redirected`;
the driver gives it to the exchange with that daemon (`owner_exchange`), which `adopt`s it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from steno._sansio.pending import Pending, SlowRequests
from steno._sansio.repairs import Repairs
from steno._sansio.requests import encode_header
from steno_protocol import events, limits
from steno_protocol.commands import (
    Command,
    Drain,
    Grant,
    Hello,
    Mutation,
    Read,
    SlowCommand,
    Unsubscribe,
)
from steno_protocol.errors import BadRequest, Busy, ErrorCode, Incompatible, Outcome, StenoError
from steno_protocol.messages import (
    Answer,
    OutgoingRequest,
    decode_answers,
    encode_requests,
    split_message,
)
from steno_protocol.replies import AnyReply, Done, ErrorReply, Subscribed, Welcome

if TYPE_CHECKING:
    from steno._sansio.follower import Follower

_BLOCK_WAY_S: Final = limits.BLOCK_BYTES / limits.SLOW_BYTES_S
"""The longest silence of a slow connection that carries events."""

# Every request is looked up in it, and a union would be searched from its beginning.
_SLOW: Final = frozenset(SlowCommand.__args__)


class Exchange:
    """All requests and subscriptions that one daemon serves to a client.

    Args:
        hello: the greeting.
        on_stale: called at each reply that may be older than what other daemons have.
        repairs: gets the repairs that replies report.

    Attributes:
        endpoint: the address of an owner in a cluster; None for the home daemon.
        redirected: what another daemon has to serve, each with the named address; None: home.
        outbox: requests to send; empty while there is no connection.
        alarm: when `tick` has to be called next, on the caller's clock in seconds; `inf` for never.
        trouble: why there is no connection, for the error of a request that waited in vain.
    """

    def __init__(
        self,
        hello: Hello,
        on_stale: Callable[[], None] | None = None,
        repairs: Repairs | None = None,
    ) -> None:
        self.endpoint: str | None = None
        self._on_stale = on_stale
        self._repairs = Repairs() if repairs is None else repairs
        self.redirected: deque[tuple[Pending | Follower, str | None]] = deque()
        self.outbox: deque[OutgoingRequest] = deque()
        # The parts of its first request that are not sent yet.
        self._parts: deque[list[bytes]] = deque()
        self._takes_parts = False
        self.alarm: float = inf
        self.trouble: str | None = None
        self._hello = hello
        self._clock_offset_ms: int | None = None
        # A daemon from before paces refuses the field.
        self._pace_ms_max: int = 0
        self._number = 0
        self._pending: dict[bytes, Pending] = {}
        self._slow_requests = SlowRequests()
        self._followers: dict[bytes, Follower] = {}
        self._abandoned: deque[Follower] = deque()
        self._failure: StenoError | None = None
        self._heard_at = -inf
        # Of this connection: the bytes of all requests, and of those up to the last answered one.
        self._asked_bytes = self._answered_bytes = 0

    # --- requests --------------------------------------------------------------------------------

    @property
    def needs_daemon(self) -> bool:
        """True while a caller waits for a reply."""
        return bool(self._pending) or any(f.is_awaited for f in self._followers.values())

    @property
    def wants_connection(self) -> bool:
        """True while a caller waits for a reply or follows a session."""
        return bool(self._pending or self._followers)

    @property
    def is_lone(self) -> bool:
        """True while at most one request is under way, so that no other could share its message."""
        return len(self._pending) <= 1

    @property
    def deadline(self) -> float:
        """The earliest deadline of the waiting callers; `inf` without one."""
        # Copied in one step, here and below: a finaliser or another thread may `forget` meanwhile.
        requests = (pending.deadline for pending in list(self._pending.values()))
        return min((*requests, *(f.deadline for f in self._followers.values())), default=inf)

    @property
    def is_connected(self) -> bool:
        """True between `connected` and `disconnected`."""
        return self._clock_offset_ms is not None

    def submit(
        self,
        command: Command,
        records: Sequence[bytes],
        wake: Callable[[], None] | None,
        now: float,
        timeout_s: float,
    ) -> Pending:
        """Begin a request; `wake` is called once it is done.

        Raises:
            TooLarge, BadRequest: it cannot be sent at all.
            Busy: this client has `CLIENT_REQUESTS_MAX` requests under way.
        """
        if self._failure is not None:
            raise self._failure
        if len(self._pending) >= limits.CLIENT_REQUESTS_MAX:
            raise Busy(f"this client has {len(self._pending)} requests under way: wait for some")
        size = command.bytes_max if isinstance(command, Read) else 0
        for record in records:
            size += len(record)
            if b"\n" in record:
                return self.submit(command, [*map(_one_line, records)], wake, now, timeout_s)
        self._number += 1
        pending = Pending(
            id=b"r%d" % self._number,
            command=command,
            records=records,
            timeout_s=timeout_s,
            deadline=now + timeout_s,
            size=size,
            is_slow=type(command) in _SLOW,
            wake=wake,
        )
        if self._clock_offset_ms is not None:
            self._send(pending, now)
        else:
            encode_header(command)
        self._pending[pending.id] = pending
        self._arm(min(pending.due, pending.deadline))
        return pending

    def forget(self, pending: Pending) -> None:
        """Forget a request that no caller waits for; its reply will be ignored."""
        self._pending.pop(pending.id, None)
        if pending.is_slow:
            self._slow_requests.end(pending)

    def fail(self, error: StenoError, *, for_ever: bool = False) -> None:
        """End every request with `error`; `for_ever` also refuses later ones.

        A mutation that may have been applied ends with OutcomeUnknown instead.
        """
        if for_ever:
            self._failure = error
        for pending in list(self._pending.values()):
            self._finish(pending, pending.outcome(error))
        for follower in list(self._followers.values()):
            if for_ever or follower.is_awaited:
                self._end(follower, error)

    # --- the daemons of a cluster ----------------------------------------------------------------

    def carries(self, item: "Pending | Follower") -> bool:
        """True while a caller waits for this request or subscription here."""
        if isinstance(item, Pending):
            return self._pending.get(item.id) is item and not item.is_done
        if item in self._abandoned:
            return False
        return any(follower is item for follower in self._followers.values())

    def adopt(self, item: "Pending | Follower", now: float, due: float) -> None:
        """Take over what another exchange carried; it is sent at `due`."""
        if isinstance(item, Pending):
            item.id = self._next_id(b"r")
            item.due = due
            self._pending[item.id] = item
            if self.is_connected and due <= now:
                self._send(item, now)
        else:
            item.interval_s = limits.RESEND_S
            # Events of the other daemon count against no window of this one.
            item.stalled = bool(item.inbox)
            item.due = inf if item.stalled else due
            self._followers[self._next_id(b"s")] = item
            if self.is_connected and due <= now and not item.stalled:
                self._subscribe(item, now)
        self._arm(min(item.due, item.deadline))

    def leave(self, item: "Pending | Follower") -> list[bytes]:
        """Stop serving what another exchange adopts next; return its ids for `drop` after that."""
        if isinstance(item, Pending):
            # A sent copy may be applied here.
            item.uncertain = item.uncertain or item.copies > 0
            item.copies = 0
            self._slow_requests.release(item)
            return [item.id]
        self._unsubscribe(item)
        item.has_caught_up = False
        return [each for each, other in self._followers.items() if other is item]

    def drop(self, item: "Pending | Follower", ids: Sequence[bytes] | None = None) -> None:
        """Forget what another exchange adopted, under the ids of `leave` or under all."""
        if isinstance(item, Pending):
            known = [each for each, other in self._pending.items() if other is item]
            for each in known if ids is None else ids:
                self._pending.pop(each, None)
        elif ids is None:
            self._drop_ids(item)
        else:
            for each in ids:
                self._followers.pop(each, None)

    def redirect_followers(self, session: str, endpoint: str) -> None:
        """Redirect the subscriptions of a session that has another owner now."""
        for follower in list(self._followers.values()):
            if follower.session == session:
                self.redirected.append((follower, endpoint))

    def redirect_sessions(self) -> None:
        """Redirect everything about a session: this daemon is lost, and another may serve it."""
        for item in self._all():
            if item.session is not None:
                self.redirected.append((item, None))

    def _all(self) -> "list[Pending | Follower]":
        return [*self._pending.values(), *self._followers.values()]

    # --- the connection --------------------------------------------------------------------------

    def connected(self, welcome: Welcome, now: float) -> None:
        """Send waiting requests and renew subscriptions on a new connection."""
        self._clock_offset_ms = welcome.clock_ms - int(now * 1000)
        self._pace_ms_max = welcome.limits.get("subscription_pace_ms_max", 0)
        # A daemon from before parts has longer frames.
        self._takes_parts = "part_bytes" in welcome.limits
        self.trouble = None
        for pending in list(self._pending.values()):
            self._send(pending, now)
            self._arm(pending.due)
        for follower in list(self._followers.values()):
            if follower.inbox:
                # An interrupt came before the caller got it.
                follower.wake()
            # Events of the old connection count against no window of the new one, so they have to
            # be consumed before more are requested.
            follower.stalled = bool(follower.inbox)
            follower.due = inf
            if not follower.stalled:
                self._subscribe(follower, now)

    def disconnected(self, why: str) -> None:
        """Keep all requests for the next connection: this one answers none of them any more."""
        self._clock_offset_ms = None
        self.trouble = why
        self.outbox.clear()
        self._parts.clear()
        self._slow_requests.forget_all()
        self._asked_bytes = self._answered_bytes = 0
        for pending in list(self._pending.values()):
            if isinstance(pending.command, Drain) and pending.copies:
                # It was asked to end, and it ended.
                self._resolve(pending, Done(), b"")
            pending.uncertain = pending.uncertain or pending.copies > 0
            pending.copies = 0
            pending.due = inf
        for follower in self._followers.values():
            follower.name = None
            follower.has_caught_up = False
            follower.due = inf

    def flush(self, send: Callable[[Sequence[bytes]], bool]) -> None:
        """Send the outbox, until `send` returns False because it takes no more messages."""
        while self.outbox:
            together = self._next_together() if len(self.outbox) > 1 else [self.outbox[0]]
            frames = encode_requests(together)
            is_long = len(frames[-1]) > limits.PART_BYTES and self._takes_parts
            if not (self._flush_parts(frames, send) if is_long else send(frames)):
                return
            for _ in together:
                self.outbox.popleft()

    def _flush_parts(self, frames: list[bytes], send: Callable[[Sequence[bytes]], bool]) -> bool:
        """Send the first message of the outbox in parts; False while some are left."""
        if not self._parts:
            self._parts.extend(split_message(frames))
        while self._parts:
            if not send(self._parts[0]):
                return False
            self._parts.popleft()
        return True

    def receive(self, frames: Sequence[bytes], now: float) -> None:
        """Take in one message from the daemon.

        Raises:
            Incompatible: it is not of this protocol.
        """
        self._heard_at = now
        try:
            for answer in decode_answers(frames):
                pending = self._pending.get(answer.id)
                if pending is not None:
                    self._take_answer(pending, answer, now)
                else:
                    self._take_other(answer, now)
        except BadRequest as error:
            raise Incompatible(
                f"the daemon sent what this client cannot read ({error.message}): restart it, so"
                " that both are of one version"
            ) from None
        if self._slow_requests.waiting:
            self._send_slow_requests(now)

    def tick(self, now: float) -> None:
        """Send again, time out and renew subscriptions, as far as each is due."""
        while self._abandoned:
            self.unfollow(self._abandoned[0])
            # Callers that wait for its mirror would wait for ever.
            self._abandoned.popleft().wake()
        if self._slow_requests.waiting:
            self._send_slow_requests(now)
        if now < self.alarm:
            return
        self.alarm = inf
        self._tick_due(now)

    # --- subscriptions ---------------------------------------------------------------------------

    def follow(self, follower: "Follower", now: float, timeout_s: float) -> None:
        """Begin to follow a session; the follower's `wake` is called after each event.

        Raises:
            TooLarge, BadRequest: the request for it cannot be sent at all.
        """
        if self._failure is not None:
            raise self._failure
        # The caller gets the error here; on the next connection it would end all requests.
        encode_header(follower.asked_as("s"))
        follower.deadline = now + timeout_s
        follower.timeout_s = timeout_s
        self._followers[self._next_id(b"s")] = follower
        self._arm(min(follower.due, follower.deadline))
        if self.is_connected:
            self._subscribe(follower, now)

    def consumed(self, follower: "Follower", now: float) -> None:
        """Grant the daemon credit for popped events, in portions of half a window."""
        if follower.stalled:
            if not follower.inbox and self.is_connected:
                self._subscribe(follower, now)
        elif follower.owed_bytes * 2 >= follower.window and follower.name is not None:
            self._grant(follower.name, follower.owed_bytes)
            follower.owed_bytes = 0

    def unfollow(self, follower: "Follower") -> None:
        """End a subscription; ending it twice is harmless."""
        if self._drop_ids(follower):
            self._unsubscribe(follower)

    def abandon(self, follower: "Follower") -> None:
        """As `unfollow`, at the next tick; may be called by a garbage collector, in any thread."""
        self._abandoned.append(follower)

    # --- inside ----------------------------------------------------------------------------------

    def _next_together(self) -> list[OutgoingRequest]:
        """The first requests of the outbox that fit into one message."""
        together = [self.outbox[0]]
        size = together[0].size
        for request in islice(self.outbox, 1, limits.MESSAGE_REQUESTS_MAX):
            size += request.size
            if size > limits.FAST_CHECK_BYTES_MAX:
                break
            together.append(request)
        return together

    def _send_slow_requests(self, now: float) -> None:
        while (pending := self._slow_requests.next()) is not None:
            if pending.id in self._pending:
                self._send(pending, now)
                self._arm(pending.due)
            else:
                self._slow_requests.end(pending)

    def _send(self, pending: Pending, now: float) -> None:
        assert self._clock_offset_ms is not None
        if pending.is_slow and not self._slow_requests.admits(pending):
            pending.due = inf
            return
        command = pending.command
        deadline_ms = max(0, int(pending.deadline * 1000) + self._clock_offset_ms)
        if pending.uncertain and isinstance(command, Mutation):
            command = msgspec.structs.replace(command, deadline_ms=deadline_ms, repeat=True)
        else:
            command = msgspec.structs.replace(command, deadline_ms=deadline_ms)
        header = encode_header(command)
        self.outbox.append(OutgoingRequest(pending.id, header, pending.records))
        pending.copies += 1
        self._asked_bytes += len(header) + pending.size
        pending.asked_bytes = self._asked_bytes
        pending.due = now + pending.interval_s
        under_way = self._asked_bytes - self._answered_bytes
        if under_way >= limits.TRACKED_FRAME_BYTES:
            # A slow connection may carry these bytes for so long, and a second copy would add more.
            pending.due += min(under_way / limits.SLOW_BYTES_S, limits.REQUEST_TIMEOUT_S)

    def _take_other(self, answer: Answer, now: float) -> None:
        """Take in an answer to no pending request."""
        if answer.id in self._followers:
            self._take_event(answer, now)
        elif isinstance(answer.body, Subscribed):
            # The reply to an abandoned attempt arrived late: its events are dropped.
            command = Unsubscribe(subscription=answer.id.decode())
            self.outbox.append(OutgoingRequest(self._next_id(b"u"), encode_header(command)))
        elif isinstance(answer.body, Welcome):
            self._clock_offset_ms = answer.body.clock_ms - int(now * 1000)

    def _take_answer(self, pending: Pending, answer: Answer, now: float) -> None:
        body = answer.body
        self._answered_bytes = max(self._answered_bytes, pending.asked_bytes)
        if isinstance(body, events.Event):
            pending.copies = max(0, pending.copies - 1)
            return
        if body.repaired:
            self._repairs.add(body.repaired)
        if not isinstance(body, ErrorReply):
            self._resolve(pending, body, answer.block)
            return
        # Not before: a reply that an interrupt kept from its request may be that of a change.
        pending.copies = max(0, pending.copies - 1)
        if isinstance(pending.command, Drain) and body.code is ErrorCode.SHUTTING_DOWN:
            self._resolve(pending, Done(), b"")
        elif self._is_redirect(body):
            self.redirected.append((pending, body.endpoint))
        elif pending.is_retried_after(body.code):
            self._retry_later(pending, body, now)
        elif pending.copies and body.outcome is Outcome.NOT_APPLIED:
            # Another copy is still queued and may be applied: only its answer is final.
            pending.refusal = body.exception(pending.key)
        else:
            self._finish(pending, pending.refused(body))

    def _is_redirect(self, body: ErrorReply) -> bool:
        """Whether another daemon of the cluster serves the session, now or soon."""
        return body.code is ErrorCode.HELD and body.endpoint is not None

    def _retry_later(self, pending: Pending, body: ErrorReply, now: float) -> None:
        pending.refusal = body.exception(pending.key)
        if body.code is ErrorCode.EXPIRED:
            # The estimate of the daemon's clock is wrong, for instance after a machine slept.
            self.outbox.append(OutgoingRequest(self._next_id(b"h"), encode_header(self._hello)))
        if not pending.copies:
            # Clients that were refused together should not come back together.
            pending.due = now + pending.backoff_s * (1 + self._number % 8 / 16)
            pending.backoff_s = min(2 * pending.backoff_s, limits.RESEND_S)
            self._arm(pending.due)

    def _tick_due(self, now: float) -> None:
        for pending in list(self._pending.values()):
            self._tick_request(pending, now)
        for request_id, follower in list(self._followers.items()):
            self._tick_follower(request_id, follower, now)

    def _tick_request(self, pending: Pending, now: float) -> None:
        if now >= pending.deadline:
            self._finish(pending, pending.timed_out(self.trouble))
            return
        if now >= pending.due and self.is_connected:
            if pending.copies:
                pending.uncertain = True
                pending.interval_s = min(2 * pending.interval_s, limits.RESEND_S_MAX)
            self._send(pending, now)
        self._arm(min(pending.due, pending.deadline))

    def _finish(self, pending: Pending, error: StenoError) -> None:
        pending.error = error
        self.forget(pending)
        if pending.wake is not None:
            pending.wake()

    def _resolve(self, pending: Pending, reply: AnyReply, block: bytes) -> None:
        if reply.stale and self._on_stale is not None:
            self._on_stale()
        # In this order: an interrupt between `forget` and the reply would leave it without an end.
        pending.block = block
        pending.reply = reply
        self.forget(pending)
        if pending.wake is not None:
            pending.wake()

    def _begin(self, follower: "Follower", reply: Subscribed) -> None:
        if reply.stale and self._on_stale is not None:
            self._on_stale()
        follower.begin(reply)
        if follower.route is not None:
            follower.route.arrived()

    def _take_event(self, answer: Answer, now: float) -> None:
        follower = self._followers[answer.id]
        if follower.name is None:
            # It belongs to an abandoned attempt; the next attempt is due.
            return
        if isinstance(answer.body, Subscribed | ErrorReply) and answer.body.repaired:
            self._repairs.add(answer.body.repaired)
        match answer.body:
            case Subscribed() as reply:
                self._begin(follower, reply)
            case ErrorReply() as reply:
                self._take_refusal(follower, reply, now)
                return
            case events.Gone(moved=True):
                self._go_on_elsewhere(follower, now)
                return
            case events.Event() as event:
                if not follower.take(event, answer.block):
                    self._unsubscribe(follower)
                    self._subscribe_later(follower, now)
                elif follower.error is not None:
                    self._end(follower, follower.error)
                    return
            case _:
                return
        if follower.deadline != inf:
            # Each piece of a long backlog shows that the daemon is alive.
            follower.deadline = now + follower.timeout_s
        follower.wake()
        self.consumed(follower, now)

    def _subscribe(self, follower: "Follower", now: float) -> None:
        # A new name and a new request id for each attempt, so that late events of an earlier one
        # are ignored, and not mistaken for events of this one.
        request_id = self._next_id(b"s")
        # It always has an id: a follower without one is never subscribed again.
        self._followers[request_id] = follower
        self._drop_ids(follower, but=request_id)
        self._unsubscribe(follower)
        follower.name = request_id.decode()
        follower.stalled = False
        follower.has_caught_up = False
        follower.asked_at = now
        follower.due = now + follower.interval_s
        # A daemon that is slow under load must not get ever more requests.
        follower.interval_s = min(2 * follower.interval_s, limits.RESEND_S_MAX)
        self._arm(min(follower.due, follower.deadline))
        asked = follower.asked_as(follower.name, self._pace_ms_max)
        self.outbox.append(OutgoingRequest(request_id, encode_header(asked)))

    def _subscribe_later(self, follower: "Follower", now: float) -> None:
        follower.name = None
        follower.due = now + follower.backoff_s
        follower.backoff_s = min(2 * follower.backoff_s, limits.RESEND_S)
        self._arm(follower.due)

    def _take_refusal(self, follower: "Follower", reply: ErrorReply, now: float) -> None:
        if self._is_redirect(reply):
            follower.name = None
            self.redirected.append((follower, reply.endpoint))
        elif follower.is_asked_again_after(reply.code):
            self._subscribe_later(follower, now)
        else:
            self._end(follower, reply.exception())

    def _go_on_elsewhere(self, follower: "Follower", now: float) -> None:
        """Subscribe anew after a hand-over: the home daemon knows the next owner."""
        self._subscribe_later(follower, now)
        if follower.inbox:
            # As after `lagged`: the inbox never exceeds one window.
            follower.stalled = True
            follower.due = inf

    def _tick_follower(self, request_id: bytes, follower: "Follower", now: float) -> None:
        if now >= follower.deadline:
            self._end(follower, follower.timed_out(self.trouble))
        elif now >= follower.due and self.is_connected:
            if self._may_be_coming(follower, now):
                follower.due = self._heard_at + _BLOCK_WAY_S
            else:
                self._subscribe(follower, now)
        if request_id in self._followers:
            self._arm(min(follower.due, follower.deadline))

    def _may_be_coming(self, follower: "Follower", now: float) -> bool:
        """Whether its answer may still arrive, behind other events on a slow connection."""
        is_early = now < follower.asked_at + limits.PEER_EVENTS_BYTES_MAX / limits.SLOW_BYTES_S
        return follower.name is not None and is_early and now < self._heard_at + _BLOCK_WAY_S

    def _end(self, follower: "Follower", error: StenoError) -> None:
        self.unfollow(follower)
        follower.error = error
        follower.wake()

    def _unsubscribe(self, follower: "Follower") -> None:
        if follower.name is not None and self.is_connected:
            command = Unsubscribe(subscription=follower.name)
            self.outbox.append(OutgoingRequest(self._next_id(b"u"), encode_header(command)))
        follower.name = None

    def _grant(self, name: str, owed_bytes: int) -> None:
        while owed_bytes:
            portion = min(owed_bytes, limits.SUBSCRIPTION_WINDOW_BYTES_MAX)
            command = Grant(subscription=name, bytes=portion)
            # Under the id of its subscription: a daemon that forgot it answers with an event.
            self.outbox.append(OutgoingRequest(name.encode(), encode_header(command)))
            owed_bytes -= portion

    def _drop_ids(self, follower: "Follower", but: bytes | None = None) -> bool:
        """Forget the ids of a follower, except one; False when there were none."""
        ids = [each for each, other in self._followers.items() if other is follower and each != but]
        for each in ids:
            self._followers.pop(each, None)
        return bool(ids)

    def _next_id(self, kind: bytes) -> bytes:
        self._number += 1
        return b"%s%d" % (kind, self._number)

    def _arm(self, due: float) -> None:
        self.alarm = min(self.alarm, due)


def _one_line(record: bytes) -> bytes:
    """A record on one line; newlines between JSON's tokens mean nothing."""
    if b"\n" not in record:
        return record
    try:
        return msgspec.json.format(record, indent=-1)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the record is not a JSON object: {error}") from None

"""The path from request to reply: decode, dispatch, reply."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import assert_never

import msgspec

from steno_protocol import limits
from steno_protocol.commands import (
    AnyCommand,
    AppendStream,
    AppendWire,
    Cluster,
    CompactAbort,
    CompactBegin,
    Delete,
    DeleteStream,
    Describe,
    Drain,
    Fork,
    Gc,
    Grant,
    HandOver,
    Hello,
    Join,
    List,
    Mutation,
    Open,
    PendingDmail,
    Read,
    Rename,
    SendDmail,
    SessionCommand,
    SignedCommand,
    SlowCommand,
    Stat,
    Streams,
    Subscribe,
    TakeIn,
    Timeline,
    Trash,
    Undelete,
    Unsubscribe,
    Verify,
    WholeCommand,
    WriteSystemPrompt,
    command_name,
)
from steno_protocol.compression import Contradicted, Damaged, Unexpandable
from steno_protocol.errors import (
    Busy,
    NotFound,
    StenoError,
    StorageFailed,
    TooLarge,
    Unauthorized,
)
from steno_protocol.events import Event, Lagged, Reset
from steno_protocol.messages import (
    Part,
    Request,
    Unreadable,
    decode_requests,
    encode_replies,
    header_ids,
    part_of,
    request_ids,
)
from steno_protocol.positions import Position
from steno_protocol.replies import (
    ClusterReport,
    Done,
    ErrorReply,
    Joined,
    MailReport,
    Reply,
    StatsReport,
    Subscribed,
    TimelineReport,
)
from steno_protocol.rights import Right, right_needed
from stenod.api.assembly import Assemblies
from stenod.api.auth import Admission
from stenod.api.peers import (
    KEYS_REMEDY,
    InFlightFrames,
    Outbox,
    PausedPeers,
    Peer,
    SendBudget,
    Socket,
    Subscription,
)
from stenod.api.privacy import for_reader
from stenod.api.status import Question, Reporter
from stenod.feed.feed import Subscriber
from stenod.operations.operation import looking_up, take_room
from stenod.operations.operations import Operations
from stenod.runtime.error_mapping import ErrorMapping, doubted, draining, forget_way, remedy_of
from stenod.sessions.foreign_poll import ForeignPoll
from stenod.sessions.leases import Compactions
from stenod.sessions.queries import Queries
from stenod.sessions.registry import Registry
from stenod.store.disk import DiskRefused
from stenod.writer.mailbox import Item
from stenod.writer.services import Services


def _only_read(command: AnyCommand) -> Unauthorized:
    return Unauthorized(
        f"the files of this root are only read here, and {command_name(command)} changes them: run"
        " it as the user of the root, on a file system that can be written"
    )


class _Asker(msgspec.Struct, frozen=True, eq=False):
    """The sender of one request, as the target of its reply.

    Attributes:
        router: the router that serves the request.
        peer: the peer that sent the request.
        request_id: the request's id.
        session: the session that the request is about; None for any other request.
        is_command: the request is a command for a writer.
        is_stale: the reply comes from files that may be older than those of the session's owner.
    """

    router: "Router"
    peer: Peer
    request_id: bytes
    session: str | None = None
    is_command: bool = False
    is_stale: bool = False

    def reply(self, body: Reply) -> None:
        """Queue the reply."""
        if self.is_command:
            self.peer.commands -= 1
        self.router.outbox.reply(self.peer, self.request_id, self.marked(body))

    def marked(self, body: Reply) -> Reply:
        """Return a reply that says whether it is stale, and what was repaired for its session.

        It is without what its reader may not know.
        """
        repairs = self.router.repairs
        if self.session is not None and self.session in repairs.sessions:
            body = msgspec.structs.replace(body, repaired=repairs.take(self.session))
        if self.peer.is_reader:
            body = for_reader(body, self.router.reporter.folders)
        return msgspec.structs.replace(body, stale=True) if self.is_stale else body

    def refuse(self, error: StenoError) -> None:
        """Queue an error as the reply."""
        reply = ErrorReply.of(forget_way(error), self.session)
        self.router.count_error(reply.code, reply.session)
        self.reply(reply)


_ChangingCommand = (
    Open | Fork | Rename | Delete | DeleteStream | Undelete | TakeIn | Describe | Gc | HandOver
    | Join
)  # fmt: skip
"""The slow commands that change files."""

_OtherSlowCommand = (
    List | Trash | Read | Timeline | Subscribe | CompactBegin | PendingDmail | Gc | Cluster
    | HandOver | Join
)  # fmt: skip
"""The slow commands that are not about a session as a whole."""

_ReadingCommand = Stat | Read | Timeline | Verify | Subscribe | PendingDmail | Streams
"""The slow commands that are served from files that may be old, if nothing better is there."""


class Router:
    """The dispatcher of all peers' requests.

    Args:
        reporter: replies about the daemon itself.
        registry: the open sessions and their writers.
        queries: serves the commands that read sessions.
        operations: serves the commands for a session as a whole.
        outbox: sends the replies.
        services: clocks, threads and statistics.
        admission: the admitted clients of other machines.
        is_reader: commands that change something are refused.
        drain: called when a client asks the daemon to end.
        release_soon: called after a message whose memory is worth returning to the system.

    Attributes:
        repairs: the repairs that no reply has reported yet.
        peers: the connected peers, by their socket and identity.
        connection_count: connections so far.
        handled: messages that were served so far.
        ignored: messages that no reply is possible to.
        foreign_poll: polls followed sessions for changes by other programs.
    """

    def __init__(
        self,
        reporter: Reporter,
        registry: Registry,
        queries: Queries,
        operations: Operations,
        outbox: Outbox,
        services: Services,
        admission: Admission,
        *,
        is_reader: bool = False,
        drain: Callable[[], None] = lambda: None,
        release_soon: Callable[[], None] = lambda: None,
    ) -> None:
        self.reporter = reporter
        self.outbox = outbox
        self.repairs = services.repairs
        self.peers: dict[tuple[Socket, bytes], Peer] = {}
        self.connection_count = 0
        self.handled = 0
        self.ignored = 0
        self.foreign_poll = ForeignPoll(registry, services.spawn)
        self._drain = drain
        self._is_reader = is_reader
        self._release_soon = release_soon
        self._drainers: list[_Asker] = []
        self._registry = registry
        self._queries = queries
        self._operations = operations
        self._services = services
        self._paused_peers = PausedPeers(services.spawn)
        self._assemblies = Assemblies()
        self._send_budget = SendBudget()
        self._admission = admission
        self._compactions = Compactions(services)
        self._slow_count = 0
        self._full_until = 0.0
        self._is_draining = False
        self._has_drained = False
        outbox.forget = self.forget

    def handle(
        self, socket: Socket, identity: bytes, frames: list[bytes], user: str | None = None
    ) -> int:
        """Serve one message; an invalid one affects only its sender.

        Args:
            socket: the socket that received the message.
            identity: the socket's name for the sender.
            frames: the message.
            user: the public key of a sender on another machine.

        Returns:
            The number of requests that get an answer, 1 for a message that is none; 0 for a part
            before the last one.
        """
        self.handled += 1
        # An identity is unique only within its socket.
        address = (socket, identity)
        peer = self.peers.get(address) or self._new_peer(address, user)
        peer.is_req = len(frames) > 1 and not frames[0]
        frames = frames[1:] if peer.is_req else frames
        if (part := part_of(frames)) is not None:
            frames = self._assemble(peer, part, frames[1])
            if not frames:
                return 1 if part.requests else 0
        try:
            requests = decode_requests(frames)
        except StenoError:
            # No reply is possible: without a request id no client could match it.
            self.ignored += 1
            return 1
        for request in requests:
            self._handle(peer, request, user)
        return max(1, len(requests))

    def refusal(self, socket: Socket, identity: bytes, frames: list[bytes]) -> Sequence[bytes]:
        """Return the refusal of a message for which there is no room beside those of other clients.

        Args:
            socket: the socket that received the message.
            identity: the socket's name for the sender.
            frames: the message, without the bytes of its last frame.
        """
        peer = self.peers.get((socket, identity))
        requests = header_ids(frames[1:] if frames[0] == b"" else frames)
        if peer is None or not requests:
            return ()
        refused = ErrorReply.of(
            Busy(
                "this connection sends more than the daemon takes beside other clients: wait for"
                " replies, and send it again"
            ),
            None,
        )
        self.count_error(refused.code, None)
        message = encode_replies([(each, refused) for each in requests])
        return [b"", *message] if peer.is_req else message

    def is_waiting(self, socket: Socket, identity: bytes) -> bool:
        """Whether a peer has commands that are not answered yet.

        Args:
            socket: the socket that the peer is connected to.
            identity: the socket's name for the peer.
        """
        peer = self.peers.get((socket, identity))
        return peer is not None and peer.commands > 0

    def _assemble(self, peer: Peer, part: Part, data: bytes) -> list[bytes]:
        """Take in a part of a message; returns the message after its last part, else no frames."""
        match self._assemblies.add(peer, part, data):
            case None:
                return []
            case StenoError() as error:
                for request_id in request_ids(part):
                    _Asker(self, peer, request_id).refuse(error)
                return []
            case message:
                self._release_soon()
                return message

    def _handle(self, peer: Peer, request: Request | Unreadable, user: str | None) -> None:
        peer.requests += 1
        if isinstance(request, Unreadable):
            _Asker(self, peer, request.id).refuse(request.error)
            return
        command = request.command
        session = command.session if isinstance(command, SessionCommand) else None
        is_command = isinstance(command, Mutation)
        asker = _Asker(self, peer, request.id, session, is_command)
        peer.commands += is_command
        try:
            if self._is_reader and right_needed(command) > Right.READ:
                raise _only_read(command)
            if user is not None:
                command = self._admitted(peer, user, command)
            self._serve(asker, command, request)
        except StenoError as error:
            asker.refuse(error)

    def finish_drain(self) -> None:
        """Reply to the clients that asked for the drain: everything is on disk."""
        self._has_drained = True
        for asker in self._drainers:
            asker.reply(Done())
        self.outbox.flush()

    def begin_drain(self) -> None:
        """Accept no more commands; queued commands are still written."""
        self._is_draining = self.reporter.is_draining = True
        self._registry.close()

    def count_error(self, code: str, session: str | None) -> None:
        """Count and log an error reply."""
        self._services.statistics.errors[code] += 1
        self._services.statistics.failed_at[code] = self._services.wall()
        self._services.log("refused", code=code, session=session)

    def stats(self) -> StatsReport:
        """Returns the daemon's counters."""
        return self.reporter.stats(self.peers.values(), self.ignored)

    def forget(self, peer: Peer) -> None:
        """Remove a peer that is gone, and end its subscriptions."""
        peer.unsubscribe_all()
        peer.in_flight.release_all()
        self._assemblies.forget(peer)
        address = (peer.socket, peer.identity)
        if self.peers.get(address) is peer:
            del self.peers[address]

    def forget_gone(self) -> None:
        """Remove the peers that are no longer connected."""
        without_link: list[Peer] = []
        for peer in list(self.peers.values()):
            for subscription in tuple(peer.subscriptions.values()):
                subscription.subscriber.send_end()
            if peer.link is None:
                without_link.append(peer)
            elif not peer.link.is_open:
                self.forget(peer)
            elif peer.subscriptions and peer.user and not self._admission.client(peer.user):
                peer.revoke()
        # Without a known connection only a send shows whether a peer is connected.
        self.outbox.probe(without_link)

    def _new_peer(self, address: tuple[Socket, bytes], user: str | None) -> Peer:
        if len(self.peers) >= limits.PEERS_MAX:
            self._make_room()
        self.connection_count += 1
        in_flight = InFlightFrames(self._send_budget)
        socket, identity = address
        peer = Peer(
            socket, identity, self._services.monotonic(), self.connection_count, user,
            socket.link(), in_flight=in_flight,
        )  # fmt: skip
        self.peers[address] = peer
        self._services.log("connected", peer=socket.sender())
        return peer

    def _make_room(self) -> None:
        """Remove the peers that are gone, or else the oldest peer, which can subscribe again."""
        now = self._services.monotonic()
        if now >= self._full_until:
            self.forget_gone()
            if len(self.peers) < limits.PEERS_MAX:
                return
            self._full_until = now + limits.PEERS_LOOK_S
        peer = next(iter(self.peers.values()))
        for subscription in peer.subscriptions.values():
            subscription.lag(f"more than {limits.PEERS_MAX} clients are connected")
        self.forget(peer)

    def _admitted(self, peer: Peer, user: str, command: AnyCommand) -> AnyCommand:
        """Return a remote client's command with the name of its key as the author.

        Raises:
            Unauthorized: the key is no longer admitted, or its right in the current list of keys
                does not suffice.
        """
        client = self._admission.client(user)
        peer.is_reader = client is None or client.right == Right.READ
        needed = right_needed(command)
        if client is not None and client.right >= needed:
            peer.key_name = client.name
            if isinstance(command, SignedCommand) and not self._admission.is_own(user):
                return msgspec.structs.replace(command, by=client.name, claim=command.by)
            return command
        if client is None:
            peer.revoke()
            holder = f"the key {user} is no longer admitted"
        else:
            holder = f"the key {client.name} has the right {client.right.label}"
        name = command_name(command)
        raise Unauthorized(f"{holder}, and {name} needs the right {needed.label}: {KEYS_REMEDY}")

    def _serve(self, asker: _Asker, command: AnyCommand, request: Request) -> None:
        if isinstance(command, Mutation):
            self._submit(asker, command, request)
        elif isinstance(command, Grant):
            self._grant(asker, command)
        elif isinstance(command, SlowCommand):
            self._start(asker, command)
        else:
            self._serve_at_once(asker, command)

    def _serve_at_once(
        self, asker: _Asker, command: Hello | Question | Unsubscribe | Drain | CompactAbort
    ) -> None:
        match command:
            case Hello():
                if self._has_drained:
                    # The clients that asked for the drain have their reply, and the daemon ends
                    # before it could serve a new client.
                    raise draining()
                asker.reply(self.reporter.greet(asker.peer, command))
            case Unsubscribe():
                if not asker.peer.unsubscribe(command.subscription):
                    raise NotFound(f"there is no subscription {command.subscription!r} here")
                asker.reply(Done())
            case Drain():
                self._drainers.append(asker)
                # At once, because later requests in the same burst must be refused.
                self.begin_drain()
                self._drain()
            case CompactAbort():
                for writer in self._registry.writers(command.session):
                    self._compactions.abort(writer, command)
                asker.reply(Done())
            case _:
                asker.peer.check_backpressure()
                self.forget_gone()
                asker.reply(self.reporter.report(command, self.peers.values(), self.ignored))

    def _submit(self, asker: _Asker, command: Mutation, request: Request) -> None:
        if self._is_draining:
            raise doubted(draining(), command, self._services.unknown)
        if command.durability == "replicated":
            self._registry.check_replicated(command.session)
        deadline_s = None if command.deadline_ms is None else command.deadline_ms / 1000
        size = sum(map(len, request.records)) + _text_bytes(command)
        # A client that follows its own session mostly waits for its own records in the feed.
        is_awaited = (
            command.durability == "written"
            and not isinstance(command, (AppendWire, AppendStream))
            and asker.peer.follows(command.session)
        )
        item = Item(command, request.records, asker, size, deadline_s, is_awaited)
        self._registry.submit(command.session, item)

    def _start(self, asker: _Asker, command: SlowCommand) -> None:
        slow_requests = asker.peer.slow_requests
        if asker.request_id in slow_requests:
            # The client sent the request again while the first copy is served.
            slow_requests[asker.request_id] += 1
            return
        if self._slow_count >= limits.READERS_MAX:
            raise Busy(f"the daemon is reading for {self._slow_count} requests: try again soon")
        if len(slow_requests) >= limits.PEER_READERS_MAX:
            raise Busy(
                f"the daemon is reading for {len(slow_requests)} requests of this connection:"
                " try again when some of them have their reply"
            )
        self._slow_count += 1
        slow_requests[asker.request_id] = 1
        self._services.spawn(lambda: self._serve_in_task(asker, command))

    async def _serve_in_task(self, asker: _Asker, command: SlowCommand) -> None:
        """Serve a command that waits for files; every outcome is a reply."""
        try:
            if self._registry.member is not None:
                asker = await self._acquire(asker, command)
            if isinstance(command, WholeCommand):
                asker.reply(await self._operations.serve(command))
            else:
                await self._serve_slow(asker, command)
        except Exception as error:
            refusal = self._error_of(asker, command, error)
            # One success is enough; a refusal is final once no other copy is under way. A client
            # that waits an hour sends fewer copies, and all answers are made in one turn.
            copies = min(asker.peer.slow_requests[asker.request_id], limits.ANSWERS_TOGETHER_MAX)
            for _ in range(copies):
                asker.refuse(refusal)
        finally:
            self._slow_count -= 1
            del asker.peer.slow_requests[asker.request_id]
            self.outbox.flush()

    def _error_of(self, asker: _Asker, command: SlowCommand, error: Exception) -> StenoError:
        is_changing = isinstance(command, _ChangingCommand)
        if isinstance(error, OSError) and not (
            is_changing or isinstance(error, (DiskRefused, Damaged, Contradicted, Unexpandable))
        ):
            return StorageFailed(f"the files cannot be read: {error}; {remedy_of(error)}")
        return ErrorMapping(asker.session or "", self._services.log).of(error)

    async def _acquire(self, asker: _Asker, command: SlowCommand) -> _Asker:
        """Make this daemon the owner of the command's session, if it shares it with others.

        Returns:
            The asker, whose reply may be stale without a majority of the cluster's servers.
        """
        if asker.session is None or isinstance(command, Undelete | TakeIn):
            # A move that was cut short is settled before its place is owned.
            return asker
        is_reading = isinstance(command, _ReadingCommand)
        # Where nobody can be asked for the owner, an earlier copy cannot be looked up either.
        lookup = (
            looking_up(command)
            if isinstance(command, Fork | Rename | Delete | DeleteStream)
            else nullcontext()
        )
        with lookup:
            is_stale = await self._registry.acquire(asker.session, for_reading=is_reading)
        return msgspec.structs.replace(asker, is_stale=True) if is_stale else asker

    async def _serve_slow(self, asker: _Asker, command: _OtherSlowCommand) -> None:
        match command:
            case List():
                await asker.peer.wait_for_room()
                asker.reply(await self._queries.sessions(command))
            case Trash():
                await asker.peer.wait_for_room()
                asker.reply(await self._operations.deletions.list_trash(command))
            case Read():
                async with asker.peer.reading:
                    await asker.peer.wait_for_room()
                    size = asker.peer.in_flight.block_size(command.bytes_max)
                    with asker.peer.in_flight.reserved(size):
                        wanted = msgspec.structs.replace(command, bytes_max=size)
                        is_local = asker.peer.user is None
                        body, block = await self._queries.read(wanted, is_local=is_local)
                        self.outbox.reply_block(
                            asker.peer, asker.request_id, asker.marked(body), block
                        )
            case Timeline():
                await asker.peer.wait_for_room()
                entries = await self._queries.timeline(command.session)
                asker.reply(TimelineReport(entries=entries))
            case Subscribe():
                await self._subscribe(asker, command)
            case CompactBegin():
                writer = await self._registry.writer(command.session, "context")
                take_room(self._services, command.session)
                asker.reply(await self._compactions.begin(writer, command))
            case PendingDmail():
                asker.reply(MailReport(mail=await self._queries.pending_mail(command.session)))
            case Gc() | Cluster() | HandOver() | Join():
                asker.reply(await self._administer(command))
            case _:
                assert_never(command)

    async def _administer(self, command: Gc | Cluster | HandOver | Join) -> Reply:
        if isinstance(command, Gc):
            return await self._operations.collector.collect(command)
        if isinstance(command, HandOver):
            await self._registry.hand_over(command.session, command.host)
            return Done()
        if isinstance(command, Join):
            return Joined(left=await self._registry.join(command.sessions))
        member = self._registry.member
        if member is None:
            return ClusterReport()
        return await self._services.read(
            lambda: member.report(command.prefix, command.after, command.limit)
        )

    async def _subscribe(self, asker: _Asker, command: Subscribe) -> None:
        peer = asker.peer
        writer = await self._registry.writer(command.session, command.file)
        # Checked after the wait, because other subscriptions of this peer may have begun meanwhile.
        is_new = command.subscription not in peer.subscriptions
        if is_new and len(peer.subscriptions) >= limits.SUBSCRIPTIONS_PER_PEER_MAX:
            raise TooLarge(
                f"this connection has {len(peer.subscriptions)} subscriptions, which is the limit:"
                " end one first"
            )
        feed = writer.feed
        after = self._position(command, feed.head)
        is_recreated = command.incarnation not in {None, feed.incarnation}
        if is_recreated:
            after = Position(feed.head.generation, 0)
        if after > feed.head:
            # In a cluster the follower may come from a newer owner.
            await self._registry.confirm(command.session)
        feed.check(after)
        peer.unsubscribe(command.subscription)
        subscriber = Subscriber(
            lambda event, block: self.outbox.event(peer, asker.request_id, event, block),
            after,
            command.window,
            accepts=lambda: self._paused_peers.accepts_events(peer),
            reading=peer.reading,
            pace_s=command.pace_ms / 1000,
            forget=lambda ended: peer.forget(command.subscription, ended),
        )
        # Registered before the first send: if that shows that the peer is gone, all of the peer's
        # subscriptions end.
        peer.subscriptions[command.subscription] = Subscription(
            command.session, feed, subscriber, asker.refuse, command.file
        )
        asker.reply(
            Subscribed(
                head=str(feed.head),
                incarnation=feed.incarnation,
                checkpoint_floor=feed.checkpoint_floor,
            )
        )
        if is_recreated:
            reset = Reset(
                generation=after.generation,
                kept=0,
                why="made again",
                incarnation=feed.incarnation,
                head=str(feed.head),
                checkpoint_floor=feed.checkpoint_floor,
            )
            subscriber.send(reset, None)
        self.outbox.flush()
        if not subscriber.gone:
            feed.add(subscriber)
            self.foreign_poll.begin(command.session)

    def _position(self, command: Subscribe, head: Position) -> Position:
        match command.after:
            case "start":
                return Position(head.generation, 0)
            case "now":
                return head
            case text:
                return Position.parse(text)

    def _grant(self, asker: _Asker, command: Grant) -> None:
        subscription = asker.peer.subscriptions.get(command.subscription)
        if subscription is None or subscription.subscriber.gone:
            asker.peer.subscriptions.pop(command.subscription, None)
            event: Event = Lagged(next="0:0", why="the daemon does not know this subscription")
            self.outbox.event(asker.peer, asker.request_id, event, None)
            return
        subscription.feed.grant(subscription.subscriber, command.bytes)


def _text_bytes(command: Mutation) -> int:
    """Bytes of a text that a command has in its header, and that is written as a record."""
    match command:
        case WriteSystemPrompt():
            return len(command.prompt.encode(errors="surrogatepass"))
        case SendDmail():
            return len(command.message.encode(errors="surrogatepass"))
        case _:
            return 0

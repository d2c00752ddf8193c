"""The async link: one connection, kept by tasks, with its requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from steno._async.in_thread import in_thread
from steno._async.readable import asyncio_loop, whenever_readable
from steno._connect import fork_guard
from steno._connect.connect import connect as connect_now
from steno._connect.connect import is_killed, log_restart
from steno._connect.connection import Connection, Futile
from steno._connect.probe import Ready, hello_of, probe_deadline
from steno._connect.safe_open import open_source
from steno._connect.target import Target
from steno._connect.write_masks import Masks, is_unknown, prepared, write_masks
from steno._sansio.argument_checks import given_timeout
from steno._sansio.exchange import Exchange
from steno._sansio.pending import Pending
from steno._sansio.reading import LineReader
from steno._sansio.repairs import Repairs
from steno._sansio.requests import ReplyT, not_contained, result_of
from steno_protocol import commands, limits, replies
from steno_protocol.errors import BadRequest, Internal, StenoError, Unreachable
from steno_protocol.positions import Position

if TYPE_CHECKING:
    from steno._async.owner_link import OwnerLink
    from steno._sansio.follower import Follower
    from steno._sansio.mirror import Mirror
    from steno._sansio.owners import Owners


class Link:
    """A connection to a daemon; its tasks make a new one when it is lost.

    In a cluster that daemon is the home daemon: what it does not own goes by links to the owners,
    which are made when it first names one.

    `BlockingLink` has methods of the same names, so that the verbs of both clients have one source.

    Attributes:
        name: the author of changes.
        timeout: seconds that one request may take.
        welcome: the daemon's identity and limits.
        is_inherited: this process was forked from the one that made the link.
        repairs: the repairs of sessions that replies reported.
        close_requests: sent before the connection closes, so that no other client waits in vain.
    """

    def __init__(
        self,
        target: Target,
        timeout: float,
        home: "Link | None" = None,
        exchange: Exchange | None = None,
    ) -> None:
        self.name: str = target.name
        self.timeout: float = given_timeout(timeout)
        self.welcome: replies.Welcome | None = None
        self.is_inherited: bool = False
        self.close_requests: set[commands.CompactAbort] = set()
        self._target = target
        self.repairs: Repairs = Repairs() if home is None else home.repairs
        self._exchange = exchange or Exchange(hello_of(target), repairs=self.repairs)
        self._masks: Masks | None = None
        self._owners: Owners[OwnerLink] | None = None
        self._connection: Connection | None = None
        self._armed = inf
        self._crash: Exception | None = None
        self._is_open = False
        self._was_opened = False
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_turn = False
        self._tasks: anyio.abc.TaskGroup
        self._owner: asyncio.Task[None] | None = None
        self._timer: anyio.Event
        self._wanted: anyio.Event
        fork_guard.guard(self)

    async def open(self) -> None:
        """Connect, and start the tasks that keep the connection.

        Raises:
            Unreachable: there is no daemon, and none was to be started or could be.
            Incompatible: what answers is not the daemon that was wanted.
            BadRequest: it was opened before; an open link stays open.
        """
        if self._was_opened:
            # A second connection would replace the first one, and closing it would close both.
            raise BadRequest(
                "the client was entered before, and is one connection: use it where it is open, or"
                " make another one with `connect`"
            )
        self._was_opened = True
        try:
            await self._open()
        except BaseException:
            self._was_opened = False
            raise

    async def _open(self) -> None:
        self._target, self._masks = await anyio.to_thread.run_sync(prepared, self._target)
        self._adopt(await self._reach(needs_daemon=True))
        if self.welcome is not None and is_unknown(self._target):
            self._masks = await anyio.to_thread.run_sync(write_masks, self.welcome.root)
        self._timer = anyio.Event()
        self._wanted = anyio.Event()
        self._loop = asyncio_loop()
        self._tasks = anyio.create_task_group()
        if self._loop is None:
            await self._tasks.__aenter__()
            self._start()
        else:
            # In a task of their own: a task group has to be left by the task that entered it, and
            # asyncio's programs often close a client in another task (fixtures, generators, hooks).
            self._owner = self._loop.create_task(self._own_tasks(), name="steno client")
            self._owner.add_done_callback(self._ended)
        self._is_open = True

    async def close(self) -> None:
        """End the tasks and the connection; waiting callers get an error.

        On asyncio any task may close it, on trio only the task that opened it. Closing twice is
        harmless.

        Raises:
            BadRequest: it was never opened, or in another event loop, where it stays open.
        """
        if self._is_closed:
            await anyio.lowlevel.checkpoint()
            return
        if not self._was_opened:
            self.check_open()
        self.check_loop()
        try:
            await self._send_close()
        finally:
            await self._end()
            self._is_closed = True

    async def _end(self) -> None:
        self._refuse_all()
        self._tasks.cancel_scope.cancel()
        if self._owner is not None:
            with anyio.CancelScope(shield=True):
                # Not the task itself: a caller that is cancelled here would cancel it too.
                await asyncio.wait([self._owner])
            if not self._owner.cancelled():
                self._owner.result()
            return
        try:
            # Without an error of the body: a task group would wrap it into an ExceptionGroup.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._hang_up("the client was closed")

    @property
    def target(self) -> Target:
        """The wanted daemon, and how this client introduces itself."""
        return self._target

    @property
    def crash(self) -> Exception | None:
        """The internal error that ended the tasks, if there was one."""
        return self._crash

    def inherit(self) -> None:
        """See `fork_guard.Inherited`."""
        self.is_inherited = True
        if self._connection is not None:
            self._connection.let_go()

    def check_open(self) -> None:
        """Raise BadRequest if the client cannot be used any more."""
        if self.is_inherited:
            raise fork_guard.inherited_error()
        if not self._is_open:
            raise BadRequest("the client is not connected: use it inside `async with`")
        self.check_loop()

    def check_loop(self) -> None:
        """Raise BadRequest in another event loop of asyncio, where no callback would wake a task.

        On trio a client cannot outlive the run that it was opened in.
        """
        if self._loop is None:
            return
        try:
            is_own = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_own = False
        if not is_own:
            raise BadRequest(
                "the client belongs to another event loop: make one in this loop with `connect`"
            )

    async def change(
        self, command: commands.Mutation, records: Sequence[bytes], mirror: "Mirror | None"
    ) -> replies.Ack:
        """Send a change of a session, and return its ack once the mirror contains the change.

        Args:
            command: the change.
            records: the records of the command.
            mirror: the mirror of the session, if it is followed.

        Raises:
            StenoError: the subscription of the mirror has ended; nothing was sent.
            OutcomeUnknown: the change was acknowledged and did not reach the mirror in time.
        """
        ack, _ = await self.request(command, replies.Ack, records, mirror=mirror)
        if mirror is not None and mirror.lacks(ack):
            with anyio.move_on_after(self.timeout) as scope, suppress(StenoError):
                # The change is applied even if the mirror ends: a reader of the history gets the
                # error.
                await self.reach(mirror, Position.parse(ack.head), urgent=True)
            if scope.cancelled_caught:
                raise not_contained(command, ack)
        return ack

    async def ask(
        self, command: commands.Command, kind: type[ReplyT], *, mirror: "Mirror | None" = None
    ) -> ReplyT:
        """Send a command and return its reply, which has to be of this kind."""
        return (await self.request(command, kind, mirror=mirror))[0]

    async def request(
        self,
        command: commands.Command,
        kind: type[ReplyT],
        records: Sequence[bytes] = (),
        *,
        mirror: "Mirror | None" = None,
    ) -> tuple[ReplyT, bytes]:
        """Send a command with its records, and return its reply and the block of lines.

        Args:
            command: the command.
            kind: the type of the expected reply.
            records: the records of the command.
            mirror: the command is not sent if the subscription of this mirror has ended: the
                session was deleted, and another one may have its name now.
        """
        return await self.finish(self.begin(command, records, mirror), kind)

    async def abort(self, command: commands.CompactAbort) -> None:
        """Send the end of a compaction, also after a cancellation; errors are ignored."""
        with anyio.move_on_after(limits.COMPACTION_ABORT_S, shield=True), suppress(StenoError):
            await self.ask(command, replies.Done)

    def begin(
        self,
        command: commands.Command,
        records: Sequence[bytes] = (),
        mirror: "Mirror | None" = None,
    ) -> Pending:
        """Send a command without waiting for its reply: `finish` or `forget` has to follow."""
        self.check_open()
        if mirror is not None:
            mirror.check()
        if self._masks is not None:
            command, records = self._masks(command, records)
        owners = self._owners
        link = self if owners is None else owners.link_for(command) or self
        now = time.monotonic()
        pending = link._exchange.submit(command, records, None, now, self.timeout)
        if owners is not None:
            owners.begin(pending, link._exchange)
        link._push()
        return pending

    async def finish(self, pending: Pending, kind: type[ReplyT]) -> tuple[ReplyT, bytes]:
        """Wait for the reply to a command of `begin`, which has to be of this kind."""
        try:
            if pending.reply is not None or pending.error is not None:
                await anyio.lowlevel.checkpoint()
            elif self._loop is None:
                event = anyio.Event()
                pending.wake = event.set
                await event.wait()
            else:
                # An event is made of a future, and costs five times as much.
                answered = self._loop.create_future()
                pending.wake = partial(_wake, answered)
                await answered
        finally:
            # Without a call where there is no cluster.
            link = self if self._owners is None else self._carrier(pending)
            link._exchange.forget(pending)
        return result_of(pending, kind)

    def forget(self, pending: Pending) -> None:
        """Forget a request that `begin` sent; safe in a finaliser."""
        self._carrier(pending)._exchange.forget(pending)

    def follow(self, follower: "Follower") -> None:
        """Begin a subscription."""
        self.check_open()
        owners = self._owners
        link = self if owners is None else owners.link_of(follower.session) or self
        link._exchange.follow(follower, time.monotonic(), self.timeout)
        if owners is not None:
            owners.begin(follower, link._exchange)
        link._push()

    def unfollow(self, follower: "Follower") -> None:
        """End a subscription."""
        link = self._carrier(follower)
        link._exchange.unfollow(follower)
        link._push()

    def abandon(self, follower: "Follower") -> None:
        """End a subscription a little later; safe in a finaliser."""
        self._carrier(follower)._exchange.abandon(follower)

    def consumed(self, follower: "Follower") -> None:
        """Grant the daemon credit for popped events."""
        link = self if self._owners is None else self._carrier(follower)
        link._exchange.consumed(follower, time.monotonic())
        if link._exchange.outbox:
            link._push()

    def drop_owner(self, link: "OwnerLink") -> None:
        """Take back what a link to an owner carried when it ended."""
        if self._owners is not None:
            self._owners.drop(link)
            link.exchange.turn_back(link.exchange.trouble or "it was lost")
            self._redirect(link.exchange)

    async def fetch(self, reader: LineReader, *, ahead: bool = False) -> bool:
        """Fetch the next block of lines; return False at the end.

        Args:
            reader: gets the block.
            ahead: request the block after it at once; a caller that stops early has to `forget` it.
        """
        self.check_open()
        if reader.has_file and await in_thread(
            lambda: reader.take_from_file(limits.READ_AHEAD_BYTES_MAX)
        ):
            return True
        pending = reader.ahead or self._request_block(reader)
        reader.ahead = None
        if pending is None:
            return False
        reader.take(*await self.finish(pending, replies.Lines))
        if (source := reader.source) is not None:
            reader.use(await in_thread(lambda: open_source(source)))
        if ahead and not reader.has_file:
            reader.ahead = self._request_block(reader)
        return True

    async def reach(
        self, mirror: "Mirror", position: Position | None, *, urgent: bool = False
    ) -> None:
        """Wait until the mirror contains everything before `position`.

        Args:
            mirror: the mirror of a session.
            position: the head to reach; None is the end of the first backlog.
            urgent: start a daemon for it; otherwise it waits until another caller does.
        """
        has_come = mirror.arrival(position)
        if has_come():
            return
        self.check_loop()
        mirror.follower.waiters += urgent
        try:
            while not has_come():
                event = anyio.Event()
                mirror.wake_at(has_come, event.set)
                self._push()
                try:
                    await event.wait()
                finally:
                    mirror.forget(event.set)
        finally:
            mirror.follower.waiters -= urgent

    # --- inside ----------------------------------------------------------------------------------

    def _carrier(self, item: "Pending | Follower") -> "Link":
        """The link that carries a request or a subscription."""
        return self if self._owners is None else self._owners.carrier(item) or self

    def _redirect(self, ended: Exchange | None = None) -> None:
        """Give what another daemon has to serve to the link to that daemon."""
        if self._owners is None:
            # Imported late: most clients meet no other owner.
            from steno._async.owner_link import OwnerLink  # noqa: PLC0415
            from steno._sansio.owners import Owners  # noqa: PLC0415

            self._owners = Owners(self._exchange, partial(OwnerLink, self))
        self._owners.redirect(time.monotonic(), ended)
        # The task that keeps the time starts the tasks of new links: asyncio's loop may call this
        # outside of tasks, where anyio cannot start one.
        self._timer.set()
        for link in (self, *self._owner_links()):
            link._push_soon()

    def _owner_links(self) -> "list[OwnerLink]":
        return [] if self._owners is None else list(self._owners.links.values())

    def _push_soon(self) -> None:
        """As `_push`, after the caller has returned: an answer that is there may redirect more."""
        if self._connection is None:
            self._push()
        elif self._loop is not None:
            self._gather(self._loop)
        else:
            self._tasks.start_soon(self._push_in_turn)

    async def _push_in_turn(self) -> None:
        self._push()

    async def _send_close(self) -> None:
        if self._connection is None:
            # A request would start a daemon.
            return
        for command in list(self.close_requests):
            await self.abort(command)

    def _request_block(self, reader: LineReader) -> Pending | None:
        command = reader.next_command()
        return None if command is None else self.begin(command)

    def _start(self) -> None:
        self._start_timer()
        self._tasks.start_soon(self._guarded, self._keep_connected)

    def _start_timer(self) -> None:
        self._tasks.start_soon(self._guarded, self._keep_time)

    async def _own_tasks(self) -> None:
        async with self._tasks:
            self._start()

    def _ended(self, _: asyncio.Task[None]) -> None:
        # A program may cancel all tasks that it finds: no caller may wait for ever after that.
        self._refuse_all()
        self._hang_up("the client was closed")

    def _refuse_all(self) -> None:
        self._is_open = False
        for link in (self, *self._owner_links()):
            link._exchange.fail(Unreachable("the client was closed"), for_ever=True)

    def _push(self) -> None:
        """Send the outbox, and take in messages that arrived meanwhile."""
        connection = self._connection
        if connection is None:
            self._wanted.set()
            if self._exchange.alarm < self._armed:
                self._timer.set()
            return
        if self._is_turn:
            # The requests of all tasks in this turn of the loop are sent together at its end.
            return
        if self._loop is None or self._exchange.is_lone:
            self._flush(connection)
            self._take_in_arrived(connection)
        else:
            self._gather(self._loop)

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send the outbox at the end of this turn of the loop, all at once."""
        if not self._is_turn:
            self._is_turn = True
            loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn = False
        connection = self._connection
        if connection is None:
            # It was lost in this turn.
            self._push()
            return
        try:
            self._flush(connection)
        except Exception as error:
            self._break(error)
        else:
            self._take_in_arrived(connection)

    def _take_in_arrived(self, connection: Connection) -> None:
        # No callback would run for messages that are already there.
        if connection.has_messages:
            self._take_in(connection)

    def _flush(self, connection: Connection) -> None:
        if self._exchange.outbox:
            self._exchange.flush(connection.send)
        if self._exchange.alarm < self._armed:
            self._timer.set()

    def _pump(self, connection: Connection) -> bool:
        """Take in a bounded number of messages; return True when there are more."""
        try:
            now = time.monotonic()
            was_lone = self._exchange.is_lone
            messages = connection.receive(limits.CLIENT_TURN_MESSAGES)
            for frames in messages:
                self._exchange.receive(frames, now)
            self._exchange.tick(now)
            if self._exchange.redirected:
                self._redirect()
            is_stirred = bool(self._exchange.outbox)
            self._flush(connection)
        except Exception as error:
            self._break(error)
            return False
        if messages and not was_lone and self._loop is not None:
            # Callers whose answers came together will send their next requests together.
            self._gather(self._loop)
        if len(messages) < limits.CLIENT_TURN_MESSAGES and not is_stirred:
            return False
        # Sending has used up the signal of messages that came meanwhile.
        return connection.has_messages or bool(self._exchange.outbox and connection.can_send)

    def _take_in(self, connection: Connection) -> None:
        """Take in messages, and the rest of them after the other tasks had their turn."""
        if connection is not self._connection or not self._pump(connection):
            return
        if self._loop is None:
            self._tasks.start_soon(self._catch_up, connection)
        else:
            # No task: asyncio's loop calls this outside of tasks, where anyio cannot start one.
            self._loop.call_soon(self._take_in, connection)

    async def _catch_up(self, connection: Connection) -> None:
        await anyio.lowlevel.checkpoint()
        self._take_in(connection)

    async def _keep_time(self) -> None:
        while True:
            self._timer = anyio.Event()
            for link in self._owner_links():
                link.start(self._tasks)
            self._armed = self._exchange.alarm
            with anyio.move_on_after(self._armed - time.monotonic()):
                await self._timer.wait()
            self._exchange.tick(time.monotonic())
            if self._exchange.redirected:
                self._redirect()
            if self._connection is not None:
                self._push()

    async def _keep_connected(self) -> None:
        while True:
            if self._connection is not None:
                await self._serve(self._connection)
                self._hang_up("the connection to the daemon was lost")
                # A machine that vanished would be waited for in vain.
                self._target = self._target.rotated()
                if self._owners is not None:
                    self._owners.leave_home()
                    self._redirect()
            await self._connect_again()

    async def _serve(self, connection: Connection) -> None:
        """Receive until the connection ends."""
        async with anyio.create_task_group() as tasks:
            take_in = partial(self._take_in, connection)
            tasks.start_soon(self._guarded, partial(whenever_readable, connection.fd, take_in))
            while not connection.is_lost():
                await anyio.wait_readable(connection.monitor_fd)
            tasks.cancel_scope.cancel()

    async def _connect_again(self) -> None:
        """Connect as soon as a caller needs it, and start a daemon for waiting callers.

        A follower alone restarts only a killed daemon: `steno stop` stops followed daemons, too.
        """
        pause_s = limits.RECONNECT_S
        while not self._exchange.wants_connection:
            await self._until_wanted(inf)
        while True:
            try:
                self._adopt(await self._reach(needs_daemon=self._exchange.needs_daemon))
                return
            except Futile as error:
                self._exchange.fail(error)
            except Unreachable as error:
                self._exchange.trouble = error.message
            await self._until_wanted(pause_s)
            pause_s = min(2 * pause_s, limits.RECONNECT_S_MAX)

    async def _until_wanted(self, pause_s: float) -> None:
        self._wanted = anyio.Event()
        with anyio.move_on_after(pause_s):
            await self._wanted.wait()

    async def _reach(self, *, needs_daemon: bool) -> Ready:
        deadline = time.monotonic() + self.timeout
        attempt = _Attempt(self._target, deadline, needs_daemon=needs_daemon)
        try:
            return await anyio.to_thread.run_sync(attempt.run, abandon_on_cancel=True)
        except BaseException:
            attempt.abandon()
            raise

    def _adopt(self, ready: Ready) -> None:
        self._connection = ready.connection
        self.welcome = ready.welcome
        self._exchange.connected(ready.welcome, time.monotonic())

    def _hang_up(self, why: str) -> None:
        self._exchange.disconnected(why)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run one of the client's tasks; every waiting caller gets the error that ends it."""
        try:
            await task()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if not isinstance(error, StenoError):
            self._crash = error
            error = Internal(f"the client failed: {error!r}; please report it")
        for link in (self, *self._owner_links()):
            link._exchange.fail(error, for_ever=True)


def _wake(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)


class _Attempt:
    """One attempt to connect in a thread; its result is dropped if the caller gave up."""

    def __init__(self, target: Target, deadline: float, *, needs_daemon: bool) -> None:
        self._target = target
        self._deadline = deadline
        self._needs_daemon = needs_daemon
        self._ready: Ready | None = None
        self._is_abandoned = False

    def run(self) -> Ready:
        is_revival = not self._needs_daemon and self._target.spawn and is_killed(self._target)
        may_spawn = self._needs_daemon or is_revival
        target = self._target if may_spawn else self._target.without_spawn()
        # Without a caller that waits, the attempt ends soon: its thread outlives a closed client.
        deadline = self._deadline if may_spawn else probe_deadline(target, self._deadline)
        self._ready = connect_now(target, deadline)
        if is_revival:
            log_restart(self._ready)
        if self._is_abandoned:
            self._ready.connection.close()
        return self._ready

    def abandon(self) -> None:
        self._is_abandoned = True
        if self._ready is not None:
            self._ready.connection.close()

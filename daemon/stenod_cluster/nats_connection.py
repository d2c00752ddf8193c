"""The connection to the NATS servers, on the daemon's event loop.

This is the only module that imports `nats`, which needs the loop of asyncio. Threads block on
`Connection.call`. When a connection ends, all that waits for an answer ends with it at once, and
the caller decides whether to send again: nats-py itself would keep messages, and send them later
than their deadline.
"""

import asyncio
import concurrent.futures
import itertools
import random
import secrets
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from errno import EACCES, ECONNREFUSED, EMSGSIZE
from typing import Any, Final, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from steno_protocol.errors import Unauthorized
from steno_system.private_files import read_private
from stenod_cluster import limits
from stenod_cluster.journal import JournalLost
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.wire import Reply, header_lines

T = TypeVar("T")

_NO_RESPONDERS: Final = "503"
_IS_JUDGING: Final = ContextVar("_IS_JUDGING", default=False)


class NotConnectedError(Exception):
    """No server is connected, or not one that may be used; nothing was sent."""


class UnansweredError(Exception):
    """No answer came; what was sent may have arrived."""


class NoRespondersError(Exception):
    """The servers know nobody who takes what was sent."""


class _Answers:
    """The answers to one request.

    Args:
        is_last: whether an answer is the last one.
        limit: the time limit of the request, renewed by each answer.
        wait_s: seconds for each answer.

    Attributes:
        all: all of them, once the last one has come; None if the connection ended before it.
    """

    def __init__(
        self, is_last: Callable[[Reply], bool], limit: asyncio.Timeout, wait_s: float
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.all: asyncio.Future[list[Reply] | None] = self._loop.create_future()
        self._is_last = is_last
        self._limit = limit
        self._wait_s = wait_s
        self._found: list[Reply] = []

    def take(self, reply: Reply) -> None:
        """Take one."""
        if self.all.done():
            return
        self._found.append(reply)
        until = self._loop.time() + self._wait_s
        if reply.status == _NO_RESPONDERS or self._is_last(reply):
            self.all.set_result(self._found)
        elif until > (self._limit.when() or 0.0) + limits.RENEWED_S:
            self._limit.reschedule(until)

    def lose(self) -> None:
        """There will be no more."""
        if not self.all.done():
            self.all.set_result(None)


class _Client(Client):
    """The library's client, which looks at each character of each header's name by itself.

    That takes a third of the time of a long session's messages.
    """

    _parse_header_lines = staticmethod(header_lines)


class Connection:
    """A connection to one of the servers, which is replaced when it ends.

    A new one is for `prepare` alone, until that calls `trust`: it may lead to another stream.

    Args:
        options: the servers, and what they ask for.
        name: the name of this client on the servers.
        prepare: runs for as long as a connection lasts, and alone asks over it before `trust`.

    Raises:
        OSError: a file that the options name cannot be used.
    """

    def __init__(
        self,
        options: ReplicationOptions,
        name: str,
        prepare: "Callable[[], Coroutine[Any, Any, None]]",
    ) -> None:
        self._options = options
        self._name = name
        self._prepare = prepare
        self._tls = _tls_context(options)
        _check_credentials(options)
        self._servers = list(options.servers)
        self._client: Client | None = None
        self._open: set[Client] = set()
        self._trouble = "no server has been asked yet"
        self._heard_error: Exception | None = None
        self._hearers: list[tuple[str, Callable[[str, bytes], None]]] = []
        self._waiting: dict[str, _Answers] = {}
        self._tokens = itertools.count()
        self._inbox = ""
        self._calls: set[asyncio.Task[Any]] = set()
        self._preparing: asyncio.Task[None] | None = None
        self._posted: set[asyncio.Task[None]] = set()
        self._connected = asyncio.Event()
        self._trusted = asyncio.Event()
        self._was_trusted = False
        self._lost = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_refused = False
        self._has_ended = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()

    def begin(self) -> None:
        """Connect, from now on for as long as it takes; returns at once."""
        self._keeping = self._loop.create_task(self._keep_connected())

    @property
    def is_closed(self) -> bool:
        """Whether it ended, because `close` was called."""
        return self._ended.is_set()

    @property
    def is_trusted(self) -> bool:
        """Whether this connection leads to the right stream: nobody but `prepare` asks another."""
        return self._trusted.is_set()

    @property
    def trouble(self) -> str:
        """Why there is no connection or answer, as far as is known."""
        return self._trouble

    @property
    def is_refused(self) -> bool:
        """Whether all servers refuse this daemon for a reason that an operator has to remove."""
        return self._is_refused or "permissions violation" in str(self._heard_error).lower()

    def check_payload(self) -> None:
        """Raise OSError if the connected server takes no message of the largest size."""
        if self._client is not None:
            self._client_for(bytes(limits.JOURNAL_BODY_BYTES_MAX))

    @property
    def server(self) -> str | None:
        """The address of the connected server, None if there is none."""
        client = self._client
        url = client.connected_url if client is not None else None
        return url.netloc.rpartition("@")[2] if url is not None else None

    # --- from other threads -----------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, which has a deadline of its own, on the loop; blocks another thread.

        Raises:
            JournalLost: the connection was closed.
        """
        assert threading.current_thread() is not self._thread, "the loop would wait for itself"
        if self.is_closed:
            work.close()
            raise JournalLost(None, "the connection to the cluster is closed")
        try:
            return asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop).result()
        except (concurrent.futures.CancelledError, RuntimeError):
            work.close()
            raise JournalLost(None, "the connection to the cluster was closed") from None

    def post(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine on the loop without waiting; nothing happens if it is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._start(work()))

    def hear(self, subject: str, hear: Callable[[str, bytes], None]) -> None:
        """Call `hear` on the loop with the subject and body of each message to a subject."""
        self.post(lambda: self._hear(subject, hear))

    def close(self) -> None:
        """Close it; what waits for an answer ends. Threads return when that is over."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._track(self._end()))
            if threading.current_thread() is not self._thread:
                self._has_ended.wait(limits.CLOSE_S * 3)

    # --- on the loop ------------------------------------------------------------------------------

    async def wait_connected(self, wait_s: float) -> bool:
        """Wait for a connection. Returns whether there is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._connected.wait()
        return self._client is not None and not self.is_closed

    def trust(self) -> None:
        """Let all ask over the connection."""
        self._was_trusted = True
        self._trusted.set()

    def distrust(self) -> None:
        """Let `prepare` alone ask over the connection, and what is `judging`."""
        self._trusted.clear()

    @contextmanager
    def judging(self) -> Generator[None]:
        """Ask over a connection that was trusted: what was stored over it may have to go again."""
        token = _IS_JUDGING.set(True)
        try:
            yield
        finally:
            _IS_JUDGING.reset(token)

    async def wait_trusted(self, wait_s: float) -> None:
        """Wait until others than `prepare` may ask over a connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._trusted.wait()

    async def request(
        self, subject: str, body: bytes, wait_s: float, headers: dict[str, str] | None = None
    ) -> Reply:
        """Send a message and wait for its answer.

        Raises:
            NotConnectedError, NoRespondersError: nothing was sent, or nobody took it.
            UnansweredError: no answer came.
            OSError: the server does not take a message of this size.
        """
        return (await self.request_all(subject, body, wait_s, lambda _: True, headers))[0]

    async def request_all(
        self,
        subject: str,
        body: bytes,
        wait_s: float,
        is_last: Callable[[Reply], bool],
        headers: dict[str, str] | None = None,
    ) -> list[Reply]:
        """Send a message and wait for its answers, up to the one that `is_last` says.

        Each of them has `wait_s` seconds; raises as `request`.
        """
        client = self._client_for(body)
        self._check_trusted()
        token = str(next(self._tokens))
        try:
            # A server that reads no more blocks what is sent, too, when the buffers are full.
            async with asyncio.timeout(wait_s) as limit:
                answers = self._waiting[token] = _Answers(is_last, limit, wait_s)
                await self._send(client, subject, body, f"{self._inbox}.{token}", headers)
                return _judged(await answers.all)
        except TimeoutError:
            # A server answers nothing to what it does not permit, and says so beside.
            said = self._trouble if self._heard_error is not None else "the servers do not answer"
            raise UnansweredError(said) from None
        finally:
            self._waiting.pop(token, None)

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        """Send a message that nobody answers and that decides nothing, over any connection.

        A daemon that says nothing while it looks at the stream would be succeeded, and what begins
        a batch is not stored without its end.
        """
        with suppress(NotConnectedError, UnansweredError, OSError):
            client = self._client_for(body)
            async with asyncio.timeout(limits.RESEND_S):
                await self._send(client, subject, body, "", headers)

    async def move_to(self, name: str) -> None:
        """Go to the server with this name if it can be reached; nothing is lost by it."""
        client = self._client
        if client is None or _greeting(client).get("server_name") == name:
            return
        here = self.server
        for server in [each for each in self._servers if _bare(each) != here]:
            if self.is_closed or await self._is_joined(server, name):
                return

    async def check(self) -> None:
        """Give the connection up if its server does not answer a ping."""
        client = self._client
        if client is None:
            return
        try:
            async with asyncio.timeout(limits.CHECK_S):
                await client.flush()
        except (TimeoutError, nats.errors.Error, OSError):
            self._lose(client, f"{self.server} does not answer")

    def _client_for(self, body: bytes) -> Client:
        client = self._client
        if client is None:
            raise NotConnectedError(self._trouble)
        if len(body) + limits.HEADER_BYTES_MAX > client.max_payload:
            raise OSError(
                EMSGSIZE,
                f"{self.server} takes messages of up to {client.max_payload} bytes, and one has"
                f" {len(body)}: set max_payload of all servers to 1MB or more",
            )
        return client

    def _check_trusted(self) -> None:
        # What an old copy of the stream says of a name would move or remove the files here.
        may_ask = self.is_trusted or (self._was_trusted and _IS_JUDGING.get())
        if not may_ask and asyncio.current_task() is not self._preparing:
            raise NotConnectedError(self._trouble)

    async def _send(
        self,
        client: Client,
        subject: str,
        body: bytes,
        reply: str,
        headers: dict[str, str] | None,
    ) -> None:
        try:
            await client.publish(subject, body, reply, headers)
        except nats.errors.ConnectionClosedError:
            # The library tells it only once it has closed everything. Until then whoever waits for
            # a connection would find this one, again and again, and give the loop no other turn.
            self._lose(client, f"the connection to {self.server} ended")
            raise NotConnectedError(self._trouble) from None
        except TimeoutError:
            raise
        except (nats.errors.Error, OSError) as error:
            raise UnansweredError(str(error)) from None

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work
        finally:
            self._calls.discard(task)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self.is_closed or len(self._posted) >= limits.ANNOUNCEMENTS_MAX:
            work.close()
            return
        task = self._loop.create_task(work)
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    async def _hear(self, subject: str, hear: Callable[[str, bytes], None]) -> None:
        self._hearers.append((subject, hear))
        if self._client is not None:
            await _subscribe(self._client, subject, _hearing(hear))

    async def _keep_connected(self) -> None:
        try:
            while not self.is_closed:
                await self._connect_to_any()
                wait = self._lost if self._client is not None else self._ended
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if self._client else limits.RECONNECT_S):
                        await wait.wait()
            until = self._loop.time() + limits.CLOSE_S
            while self._calls and (left_s := until - self._loop.time()) > 0:
                await asyncio.wait(self._calls, timeout=left_s)
        finally:
            # An event loop that ends starts no other task.
            for client in self._open:
                _close_socket(client)
            self._has_ended.set()

    async def _end(self) -> None:
        """End once the announcements are sent: the last one is that this daemon ends."""
        if self._posted:
            await asyncio.wait(set(self._posted), timeout=limits.CLOSE_S)
        self._trouble = "the connection to the cluster was closed"
        self._ended.set()
        self._connected.set()
        self._trusted.set()
        if self._client is not None:
            self._lose(self._client, self._trouble)

    async def _connect_to_any(self) -> None:
        is_refused = True
        # All daemons at the first server of the list would be one server's load.
        for server in random.sample(self._servers, len(self._servers)):
            if self.is_closed:
                return
            client = _Client()
            try:
                # Name, TLS and greeting each take a part of it.
                async with asyncio.timeout(2 * limits.CONNECT_S):
                    await self._connect(client, server)
                    await self._adopt(client)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                failure = self._heard_error or error
                wants_certificate = bool(_greeting(client).get("tls_verify"))
                is_uncertified = wants_certificate and not self._options.tls_cert
                self._trouble = _explained(server, failure, is_uncertified=is_uncertified)
                is_refused &= is_uncertified or _is_refusal(failure)
                self._track(self._close(client))
            else:
                self._is_refused = False
                return
        self._is_refused = is_refused

    async def _is_joined(self, server: str, name: str) -> bool:
        """Connect to a server, and stay if it has this name."""
        client = _Client()
        is_joined = False
        try:
            with suppress(OSError, nats.errors.Error, TimeoutError):
                async with asyncio.timeout(2 * limits.CONNECT_S):
                    await self._connect(client, server)
                    if _greeting(client).get("server_name") == name:
                        await self._adopt(client)
                        is_joined = True
        finally:
            if not is_joined:
                self._track(self._close(client))
        return is_joined

    async def _connect(self, client: Client, server: str) -> None:
        self._heard_error = None
        self._open.add(client)

        async def lost() -> None:
            self._lose(client, f"the connection to {_bare(server)} ended")

        async def failed(error: Exception) -> None:
            self._heard_error = error
            if self._client is client:
                self._trouble = _explained(server, error)

        await client.connect(
            [server],
            name=self._name,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=1,
            ping_interval=int(limits.PING_S),
            max_outstanding_pings=limits.PINGS_UNANSWERED_MAX,
            pending_size=limits.PENDING_BYTES_MAX,
            tls=self._tls,
            user_credentials=self._options.credentials or None,
            closed_cb=lost,
            error_cb=failed,
        )
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The library waits with `asyncio.wait_for`, which before Python 3.12 loses a
            # cancellation that comes together with the result.
            await self._close(client)
            raise asyncio.CancelledError

    async def _adopt(self, client: Client) -> None:
        """Use a new connection for all that is sent from now on."""
        self._check_encryption(client)
        inbox = f"_INBOX.{secrets.token_hex(11)}"
        await _subscribe(client, f"{inbox}.*", self._answered)
        for subject, hear in self._hearers:
            await _subscribe(client, subject, _hearing(hear))
        if self.is_closed or not client.is_connected:
            # `_end` and `_lose` did not know it yet, and would leave it and its tasks alone.
            raise nats.errors.ConnectionClosedError
        found = [f"{url.scheme}://{url.netloc}" for url in client.discovered_servers]
        self._servers = list(dict.fromkeys([*self._options.servers, *found]))
        if self._client is not None:
            self._track(self._leave(self._client))
        self._client, self._inbox = client, inbox
        self._lost.clear()
        self._connected.set()
        self._was_trusted = False
        self.distrust()
        self._end_preparing()
        self._preparing = self._track(self._prepare())

    async def _leave(self, client: Client) -> None:
        """Close a connection that was replaced, once what was sent has its answers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.RESEND_S):
                await self._ended.wait()
        await self._close(client)

    async def _close(self, client: Client) -> None:
        # A server that does not read any more lets nothing be flushed.
        try:
            with suppress(TimeoutError, nats.errors.Error, OSError, asyncio.InvalidStateError):
                async with asyncio.timeout(limits.CLOSE_S):
                    await client.close()
        finally:
            _close_socket(client)
            self._open.discard(client)

    def _check_encryption(self, client: Client) -> None:
        # nats-py encrypts if the server wishes it, and goes on without if it does not.
        if self._options.has_tls and not _greeting(client).get("tls_required"):
            raise nats.errors.SecureConnWantedError

    def _lose(self, client: Client, why: str) -> None:
        if self._client is not client:
            return
        self._client = None
        if not self.is_closed:
            self._connected.clear()
            self.distrust()
        if self._heard_error is None:
            self._trouble = why
        for answers in self._waiting.values():
            answers.lose()
        self._lost.set()
        self._end_preparing()
        self._track(self._close(client))

    def _end_preparing(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()

    def _track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _answered(self, message: Msg) -> None:
        self._heard_error = None
        answers = self._waiting.get(message.subject.rpartition(".")[2])
        if answers is not None:
            answers.take(Reply(message.headers or {}, message.data))


def _greeting(client: Client) -> dict[str, Any]:
    """What the server said of itself at first; nothing public of nats-py has it."""
    return client._server_info  # pyright: ignore[reportPrivateUsage]


def _judged(answers: list[Reply] | None) -> list[Reply]:
    if answers is None:
        raise UnansweredError("the connection ended before the answer")
    if answers[-1].status == _NO_RESPONDERS:
        raise NoRespondersError
    return answers


def _hearing(hear: Callable[[str, bytes], None]) -> Callable[[Msg], Awaitable[None]]:
    async def heard(message: Msg) -> None:
        hear(message.subject, message.data)

    return heard


async def _subscribe(client: Client, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> None:
    # The library does not give the type of one of the other parameters.
    await client.subscribe(subject, cb=heard)  # pyright: ignore[reportUnknownMemberType]


def _close_socket(client: Client) -> None:
    """Close the socket, which the library leaves open if its close ends before its time."""
    transport = client._transport  # pyright: ignore[reportPrivateUsage]
    if transport is not None:
        transport.close()  # type: ignore[no-untyped-call]


def _explained(server: str, error: Exception, *, is_uncertified: bool = False) -> str:
    """What a failure to connect means, and what to do.

    Args:
        server: the server.
        error: the failure.
        is_uncertified: the server wants a certificate, and this daemon has none.
    """
    where = _bare(server)
    said = str(error).removeprefix("nats: ") or type(error).__name__
    match error:
        case _ if is_uncertified:
            return (
                f"{where} wants a certificate of this daemon: set replication.tls_cert and"
                " replication.tls_key to one that the server's authority signed"
            )
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {where} is not valid here ({said}): set replication.tls_ca to"
                " the authority that signed it, and connect by a name that it contains"
            )
        case ssl.SSLError():
            return (
                f"{where} refuses TLS ({said}): it may want a certificate of this daemon, see"
                " replication.tls_cert and replication.tls_key"
            )
        case nats.errors.SecureConnWantedError():
            return (
                f"{where} does not encrypt, but replication.tls_ca or tls:// asks for it: configure"
                " tls on the server, or remove the options"
            )
        case _ if _is_unauthorized(error):
            return (
                f"{where} refuses the credentials ({said}): check replication.credentials, or the"
                " user and password in replication.servers"
            )
        case _ if "permissions violation" in said.lower():
            return (
                f"{where} says {said!r}: allow the account to publish and subscribe to steno.>,"
                " $JS.API.> and _INBOX.>"
            )
        case ConnectionRefusedError():
            return f"no NATS server listens at {where}: start it, or correct replication.servers"
        case _:
            return f"{where} was not reached ({said}): check the server and replication.servers"


def _is_refusal(error: Exception) -> bool:
    """Whether a failure to connect comes again until an operator changes something."""
    is_encryption = isinstance(error, ssl.SSLError | nats.errors.SecureConnWantedError)
    return is_encryption or _is_unauthorized(error)


def _is_unauthorized(error: Exception) -> bool:
    said = str(error).lower()
    is_said = "authorization" in said or "authentication" in said
    return is_said or isinstance(error, nats.errors.AuthorizationError)


def _bare(server: str) -> str:
    """A server's address without a password."""
    return server.rpartition("/")[2].rpartition("@")[2]


def _tls_context(options: ReplicationOptions) -> ssl.SSLContext | None:
    if not options.has_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls_ca or None)
        if options.tls_cert:
            context.load_cert_chain(options.tls_cert, options.tls_key or None)
    except OSError as error:
        raise OSError(
            error.errno or EACCES,
            f"replication.tls_ca, tls_cert or tls_key cannot be used ({error.strerror or error}):"
            " each is the path of a PEM file that this user may read",
        ) from None
    return context


def _check_credentials(options: ReplicationOptions) -> None:
    if not options.credentials:
        return
    try:
        text = read_private(options.credentials, may_be_link=True).decode()
    except (OSError, UnicodeDecodeError, Unauthorized) as error:
        raise OSError(
            EACCES,
            f"replication.credentials cannot be read ({error}): it is the path of a .creds file",
        ) from None
    if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
        raise OSError(
            ECONNREFUSED,
            f"{options.credentials} is no .creds file of NATS, which has a user's JWT and a seed:"
            " correct replication.credentials",
        )

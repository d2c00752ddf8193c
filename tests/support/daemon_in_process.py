"""A daemon without process and socket, over a simulated disk."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from steno_protocol import credentials, limits, paths
from steno_protocol.events import AnyEvent
from steno_protocol.messages import decode_answers
from steno_protocol.replies import AnyReply
from stenod.api.auth import Admission
from stenod.api.peers import InFlightFrames, Link, Outbox, Sent
from stenod.api.router import Router
from stenod.api.status import Reporter
from stenod.operations.operation import Parts
from stenod.operations.operations import Operations
from stenod.runtime.config import Config
from stenod.runtime.fd_limit import HandleLimit
from stenod.runtime.statistics import Statistics
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from stenod.sessions.queries import Queries
from stenod.sessions.registry import Registry
from stenod.sessions.session_folders import SessionFolders
from stenod.writer.services import Services
from support.commits import TestCommits
from support.simulated_disk import SimulatedDisk
from support.stored_session import NOW_S

ROOT = "/disk"
MOUNTED = "/mounted"
"""The tree of another program, mounted as `kimi:`."""

T = TypeVar("T")


class DaemonInProcess:
    """A daemon's router, registry and writers, and the socket that its peers are connected to.

    Args:
        disk: the disk of its root.
        keys: a folder of the machine with the keys of clients from elsewhere.
        handles_max: its limit of open files.

    Attributes:
        disk: the disk of its root.
        answers: replies and events of each request.
        sizes: frames of each message that it sent.
        other_handles: file handles that count as its clients'.
        link_of: the connection of a peer, by its identity.
        faults: internal errors in its log.
        now_s: the monotonic clock; only a test moves it.
        wall_s: the wall clock; only a test moves it.
        operations: the commands on whole sessions.
        services: the services of its writers.
    """

    def __init__(
        self,
        disk: SimulatedDisk,
        keys: Path | None = None,
        handles_max: int = sys.maxsize,
    ) -> None:
        self.disk = disk
        self.answers: dict[bytes, list[AnyReply | AnyEvent]] = {}
        self.sizes: list[int] = []
        self.other_handles = 0
        self.faults: list[str] = []
        self.now_s = 100.0
        self.wall_s = NOW_S
        self.link_of: Callable[[bytes], Link | None] = lambda _: None
        self._identity = b""
        self._tasks: TaskGroup | None = None
        disk.foreign.make_folder(f"{ROOT}/{paths.SESSIONS}")
        disk.foreign.make_folder(MOUNTED)
        disk.sync_all()
        statistics = Statistics()
        outbox = Outbox(statistics, self._is_revoked)
        services = Services(
            commit=TestCommits(is_inline=True),
            read=_inline,
            monotonic=lambda: self.now_s,
            wall=lambda: self.wall_s,
            flush=outbox.flush,
            statistics=statistics,
            log=self._log,
            spawn=self._spawn,
            unknown=UnknownOutcomes(started_ms=int(self.wall_s * 1000)),
        )
        self.services = services
        config = Config(Path(ROOT), Path(f"{ROOT}/socket"), {"kimi": Path(MOUNTED)})
        trees = SessionFolders(config, disk)
        handles = HandleLimit(
            handles_max,
            lambda: self.other_handles + limits.HANDLES_PER_SESSION_MAX * len(self.registry),
        )
        self.registry = Registry(trees, services, handles)
        looks = Queries(self.registry, trees, services)
        self.operations = Operations(Parts(trees, self.registry, looks, services))
        self.router = Router(
            Reporter(config, self.registry, services),
            self.registry,
            looks,
            self.operations,
            outbox,
            services,
            Admission(keys or config.root / credentials.KEYS_FOLDER, self._log),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["DaemonInProcess"]:
        """Serve until the block ends; queued commands are written first."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            yield self
            self.registry.close()
            await self.registry.wait_quiet()
            tasks.cancel_scope.cancel()

    def handle(
        self, frames: Sequence[bytes], identity: bytes = b"peer", user: str | None = None
    ) -> None:
        """Handle one message, as the transport does."""
        self._identity = identity if user is None else user.encode()
        self.router.handle(self, self._identity, list(frames), user)
        self.registry.commit()

    async def wait_for_answer(self, request_id: bytes, turns: int = 3000) -> None:
        """Return when a request has an answer.

        Raises:
            AssertionError: it gets none, however often every task had its turn.
        """
        for _ in range(turns):
            if request_id in self.answers:
                return
            await anyio.lowlevel.checkpoint()
        raise AssertionError(f"the request {request_id!r} got no answer")

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """Take a message to a peer, as its socket does."""
        self.sizes.append(len(frames))
        # The answer to a REQ socket begins with the delimiter of its request.
        message = frames[1:] if frames[0] == b"" else frames
        for answer in decode_answers(message):
            self.answers.setdefault(answer.id, []).append(answer.body)
        return Sent.OK

    def sender(self) -> str:
        """See `Socket`."""
        return ""

    def link(self) -> Link | None:
        """See `Socket`."""
        return self.link_of(self._identity)

    def _is_revoked(self, _: str) -> bool:
        return False

    def _log(self, event: str, **fields: object) -> None:
        if event == "internal":
            self.faults.append(str(fields))

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.faults.append(repr(error))


async def _inline(work: Callable[[], T]) -> T:
    await anyio.lowlevel.checkpoint()
    return work()

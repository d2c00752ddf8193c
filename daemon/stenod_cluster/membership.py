"""The membership of one daemon in a cluster: its journal, its disk, its word that it lives."""

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeGuard

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

import steno_system as system
from steno_protocol import paths
from steno_protocol.errors import BadRequest, NotFound, StenoError, StorageFailed
from steno_protocol.replies import ClusterHost, ClusterReport, ClusterSession
from steno_system.private_files import read_private
from stenod.sessions.cluster_member import Elsewhere
from stenod.store.disk import Disk
from stenod_cluster import limits
from stenod_cluster.copies import kept_from
from stenod_cluster.disk import ReplicatedDisk
from stenod_cluster.facts import ClusterFacts, broken_promises
from stenod_cluster.hosts import Hosts
from stenod_cluster.journal import (
    Announcements,
    ForeignMessage,
    ForeignStream,
    Journal,
    JournalLost,
    Kind,
    Message,
    Owner,
    subject_of_name,
)
from stenod_cluster.ownership import Ownership
from stenod_cluster.trust import replace_durably


class Engine(Journal, Announcements, Protocol):
    """A journal that knows its servers, and carries the words of the daemons."""

    @property
    def is_joining(self) -> bool:
        """Whether the operator lets hosts join the stream again, one after another.

        It is known once the journal was ready, and stays for the life of the process. It is the
        same in the next process unless this one serves.
        """
        ...

    def note_serving(self) -> None:
        """Remember on this disk that the daemon serves."""
        ...

    def wait_ready(self, wait_s: float) -> None:
        """Wait until it can publish; raises JournalLost after so many seconds."""
        ...

    def state(self) -> ClusterFacts:
        """Returns facts about the servers; blocks."""
        ...

    def counts(self) -> dict[str, int]:
        """Returns the number of messages of each session, by its identity.

        Raises:
            JournalLost: no server answered.
        """
        ...

    def close(self) -> None:
        """Close the connection; waiting callers get `JournalLost` or `InDoubt`."""
        ...


class _Known(NamedTuple):
    """What the journal has of a name.

    Attributes:
        name: the name.
        label: its last message.
        last: the last message of its session; None if it leads to none.
    """

    name: str
    label: Message | ForeignMessage
    last: Message | ForeignMessage | None


def _leads(label: Message | ForeignMessage | None) -> TypeGuard[Message]:
    """Whether a message says that its name leads to a session."""
    return isinstance(label, Message) and label.kind is Kind.NAME


class Membership:
    """One daemon of a cluster.

    Args:
        cluster: the cluster's name.
        engine: the journal.
        root: the daemon's root.
        local: this machine's disk.
        endpoint: where clients of other machines reach this daemon.
        dead_s: seconds without a word after which a daemon may be succeeded.
        log: logs an event with fields.

    Attributes:
        disk: the disk of the daemon.
    """

    def __init__(
        self,
        cluster: str,
        engine: Engine,
        root: Path,
        local: Disk,
        endpoint: str,
        dead_s: float,
        log: Callable[..., None],
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._log = log
        self._lost: deque[str] = deque()
        # Names that lead to another session than they did, as far as this daemon heard.
        self._untidy: deque[str] = deque(maxlen=limits.UNTIDY_NAMES_MAX)
        self._asked_in_vain_at = -limits.ASK_AGAIN_S
        owner = Owner(host_of(root), os.urandom(8).hex(), endpoint)
        # What other daemons gave to this one, and of it what it has not taken over yet.
        self._given: deque[tuple[str, Owner]] = deque()
        self._taking: set[tuple[str, Owner]] = set()
        self._takes = anyio.CapacityLimiter(limits.TAKES_MAX)
        self._is_given, self._is_taken = anyio.Event(), anyio.Event()
        self._hosts = Hosts(
            engine, owner, dead_s, time.monotonic, self._hear_taken, self._untidy.append,
            self._hear_given,
        )  # fmt: skip
        tree = str(root / paths.SESSIONS)
        self._ownership = Ownership(local, tree, engine, self._hosts, log, system.boot_id())
        self._ownership.on_lost = self._lost.append
        self._replicated = ReplicatedDisk(local, tree, self._ownership)
        self.disk: Disk = self._replicated

    def check_promises(self, *, is_lazy_allowed: bool) -> None:
        """Refuse to begin if an ack would not survive the loss of a server; blocks.

        Raises:
            BadRequest: the servers do not keep what an ack promises, and the operator did not
                allow that.
            StorageFailed: no majority of the servers is there.
        """
        try:
            self._engine.wait_ready(limits.READY_S)
            self._ownership.is_joining = self._engine.is_joining
            # What was asked before there was a connection went nowhere.
            self._hosts.ask()
            self._ownership.look_for_losses()
            broken = self._broken_promises()
        except ForeignStream as error:
            raise StorageFailed(str(error.strerror)) from None
        except JournalLost as error:
            raise StorageFailed(
                f"the servers of the cluster {self._cluster} cannot be used:"
                f" {error.strerror}; start a majority of them, or correct [replication]"
            ) from None
        except OSError as error:
            raise BadRequest(f"the cluster {self._cluster} cannot be used: {error.strerror}") from (
                None
            )
        if broken and not is_lazy_allowed:
            raise BadRequest(
                f"the cluster {self._cluster} does not keep what an ack promises:"
                f" {'; '.join(broken)}. Set replication.lazy_sync = true to accept that"
            )
        for each in broken:
            self._log("promise_broken", why=each)

    def _broken_promises(self) -> list[str]:
        """The broken promises of the servers; waits for servers that are just going up or down."""
        until = time.monotonic() + limits.SETTLE_S
        while True:
            facts = self._engine.state()
            broken = broken_promises(facts)
            is_settled = not any(server.trouble for server in facts.servers)
            if not broken or is_settled or time.monotonic() >= until:
                return broken
            time.sleep(limits.SETTLE_POLL_S)

    def own(self, session: str, *, for_reading: bool = False) -> None:
        """Own a session, and make its files equal to the journal; see `ClusterMember`; blocks."""
        if for_reading and not self.is_sure and self._is_cut_off(session):
            raise JournalLost(None, "no majority of the servers answers")
        self._ownership.forget_unpublished(session)
        self._ownership.acquire(session)

    def join(self, sessions: Sequence[str]) -> list[str]:
        """Own sessions that the journal never had; see `ClusterMember`; blocks."""
        return self._ownership.acquire_new(sessions)

    def follow(self, session: str) -> None:
        """Bring the files of another daemon's session up to the journal; see `ClusterMember`."""
        self._ownership.follow(session)

    def _is_cut_off(self, session: str) -> bool:
        """Whether nobody can be asked about a session with files here."""
        if not self._ownership.is_here(session):
            return False
        if self._ownership.found(session) is None:
            return self._is_asked_in_vain(self._engine.confirm)
        return self.is_stale(session)

    @property
    def is_sure(self) -> bool:
        """True while no other daemon can own what this one owns, as far as clocks can tell."""
        return time.monotonic() - self._ownership.heard_at < self._hosts.dead_s

    def is_stale(self, session: str) -> bool:
        """Return whether another daemon may have changed it; see `ClusterMember`; blocks."""
        return self._is_asked_in_vain(lambda: self._ownership.confirm(session))

    def is_list_stale(self) -> bool:
        """Return whether the list of the cluster's sessions may lack what others did; blocks."""
        # Any server answers for its own part of a list. All streams are taken to be on the same
        # servers, so that one of them is asked about.
        return not self.is_sure and self._is_asked_in_vain(self._engine.confirm)

    def _is_asked_in_vain(self, ask: Callable[[], None]) -> bool:
        if time.monotonic() - self._asked_in_vain_at < limits.ASK_AGAIN_S:
            return True
        try:
            ask()
        except JournalLost:
            self._asked_in_vain_at = time.monotonic()
            return True
        return False

    def others(self, prefix: str, after: str, limit: int) -> list[Elsewhere]:
        """List the sessions that other daemons own, removed or gave away, by their ids; blocks."""
        names = _sessions_of(self._engine.names(), prefix, after)
        asked = [name for name in names if self._ownership.found(name) is None]
        found: list[Elsewhere] = []
        there = 0
        for name, label, last in self._last_messages(asked, limit):
            if isinstance(label, ForeignMessage) or isinstance(last, ForeignMessage):
                # Its owner is unknown: the list has it as it is on this disk.
                continue
            if label.kind is Kind.GONE or last is None:
                if not self._ownership.copies.outlives(name, label):
                    found.append(Elsewhere(name, None, label.at))
                continue
            found.append(self._elsewhere(name, last))
            there += 1
            if there == limit:
                break
        return found

    def _elsewhere(self, session: str, last: Message) -> Elsewhere:
        living = self._hosts.living(last.owner.host) or last.owner
        return Elsewhere(
            session, living.endpoint, last.at, last.owner.host == self._hosts.owner.host
        )

    def _last_messages(self, names: Sequence[str], wanted: int) -> Iterator[_Known]:
        """Yield what the journal has of names, in order; the servers are asked as it is taken.

        Args:
            names: the names.
            wanted: how many of them the caller wants, of those that lead to a session.
        """
        step = min(wanted, limits.READ_TOGETHER_MAX)
        for start in range(0, len(names), step):
            part = names[start : start + step]
            labels = self._engine.last_of([subject_of_name(name) for name in part])
            asked = [each.label.identity for each in labels if _leads(each)]
            lasts = dict(zip(asked, self._engine.last_of(asked), strict=True))
            for name, label in zip(part, labels, strict=True):
                if label is not None:
                    last = lasts[label.label.identity] if _leads(label) else None
                    yield _Known(name, label, last)

    def shorten(self, session: str) -> None:
        """Let the journal have a copy of the session only; see `ClusterMember`; blocks."""
        self._ownership.shorten(session)

    def give(self, session: str, host: str) -> None:
        """Give a closed session to another daemon; see `ClusterMember`; blocks."""
        self._ownership.release_to(session, self._peer(host))

    def _peer(self, host: str) -> Owner:
        others = (owner for owner, _ in self._hosts.peers() if self._hosts.living(owner.host))
        # This daemon is what a client names that repeats the command at the new owner.
        for owner in (self._hosts.owner, *others):
            if host in {owner.host, owner.endpoint}:
                return owner
        raise NotFound(
            f"no living daemon of the cluster {self._cluster} is {host!r}:"
            " `steno cluster status` lists them"
        )

    def moved(self, session: str, key: str) -> str | None:
        """Return where the command with a key brought a session; see `ClusterMember`; blocks."""
        found = self._replicated.name_changes.moved(session, key)
        if found is not None:
            self._ownership.tidy(session)
        return found

    def fetch_deleted(self, session: str) -> None:
        """Bring what others deleted into the trash of this disk; see `ClusterMember`; blocks."""
        self._replicated.name_changes.fetch_deleted(session)

    async def serve(self, lose: Callable[[str], Awaitable[None]]) -> None:
        """Say that this daemon lives, and close sessions that others own, until cancelled.

        Args:
            lose: closes a session that another daemon owns.
        """
        with suppress(OSError):
            await anyio.to_thread.run_sync(self._engine.note_serving)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_for_losses)
            tasks.start_soon(self._take_given, tasks)
            tasks.start_soon(self._tidy)
            while True:
                self._hosts.tell_alive()
                while self._lost:
                    await lose(self._lost.popleft())
                await anyio.sleep(self._hosts.period_s)

    async def _look_for_losses(self) -> None:
        """Ask again and again, well within `dead_s`, whether others took folders over."""
        while True:
            self._is_taken = anyio.Event()
            try:
                lost = await anyio.to_thread.run_sync(
                    self._ownership.look_for_losses, abandon_on_cancel=True
                )
            except OSError:
                # Reads need not ask in vain again.
                self._asked_in_vain_at = time.monotonic()
            else:
                self._asked_in_vain_at = -limits.ASK_AGAIN_S
                for folder, owner in lost:
                    self._log("lost", session=folder, to=owner.endpoint)
                    self._lost.append(folder)
            with anyio.move_on_after(self._hosts.dead_s / limits.LOOKS_MIN):
                await self._is_taken.wait()

    async def _take_given(self, tasks: TaskGroup) -> None:
        """Take over what other daemons give to this one; a large session delays no other one."""
        while True:
            self._is_given = anyio.Event()
            while self._given:
                tasks.start_soon(self._take, *self._given.popleft())
            await self._is_given.wait()

    async def _take(self, session: str, giver: Owner) -> None:
        take = partial(self._ownership.take, session, giver)
        try:
            await anyio.to_thread.run_sync(take, limiter=self._takes)
        except (OSError, StenoError) as error:
            # The other daemon gives it once more, or says so to its client.
            self._log("not_taken", session=session, giver=giver.endpoint, why=str(error))
        finally:
            self._taking.discard((session, giver))

    async def _tidy(self) -> None:
        """Let the copies on this disk follow the names that other daemons changed."""
        with suppress(OSError):
            # A daemon may have died in a collection.
            await anyio.to_thread.run_sync(self._ownership.holds.collect_all)
        with suppress(OSError):
            stale = self._ownership.copies.stale
            self._untidy.extend(await anyio.to_thread.run_sync(lambda: list(stale())))
        while True:
            while self._untidy:
                name = self._untidy.popleft()
                # A copy that cannot be put away now is put away when its name is used.
                with suppress(OSError, StenoError):
                    await anyio.to_thread.run_sync(self._ownership.tidy, name)
            await anyio.sleep(self._hosts.period_s)

    def close(self) -> None:
        """Tell the others that this daemon ends, and close the connection; blocks."""
        self._ownership.close()
        self._engine.close()

    def _hear_taken(self, folder: str, owner: Owner) -> None:
        if self._ownership.found(folder) is not None:
            self._log("lost", session=folder, to=owner.endpoint)
        self._ownership.lose(folder, owner)
        self._lost.append(folder)
        # The other daemon waits for the word that the copy here is marked as an old one.
        self._is_taken.set()

    def _hear_given(self, session: str, giver: Owner) -> None:
        if (session, giver) not in self._taking:
            self._taking.add((session, giver))
            self._given.append((session, giver))
            self._is_given.set()

    # --- report ----------------------------------------------------------------------------------

    def report(self, prefix: str, after: str | None, limit: int) -> ClusterReport:
        """Report the cluster as this daemon sees it; blocks.

        Args:
            prefix: only sessions whose id begins with this.
            after: only sessions after this id.
            limit: sessions at most.
        """
        facts = self._engine.state()
        owner, counts = self._hosts.owner, self._ownership.counts
        sessions: list[ClusterSession] = []
        has_more = False
        trouble = facts.trouble
        if limit:
            try:
                sessions, has_more = self._sessions(prefix, after, limit)
            except OSError as error:
                trouble = trouble or error.strerror or str(error)
        return ClusterReport(
            cluster=self._cluster,
            host=owner.host,
            endpoint=owner.endpoint,
            hosts=tuple(self._reported_hosts()),
            server=facts.connected,
            trouble=trouble,
            broken_promises=tuple(broken_promises(facts)),
            streams=facts.streams,
            owned=len(self._ownership),
            takeovers=counts.takeovers,
            last_takeover=counts.last_takeover,
            last_takeover_at=counts.last_takeover_at,
            last_takeover_s=counts.last_takeover_s,
            fenced=counts.fenced,
            in_doubt=counts.in_doubt,
            sessions=tuple(sessions),
            more=has_more,
        )

    def _reported_hosts(self) -> Iterable[ClusterHost]:
        owner = self._hosts.owner
        yield ClusterHost(host=owner.host, endpoint=owner.endpoint, heard_s=0.0, alive=True)
        for other, heard_s in sorted(self._hosts.peers(), key=lambda each: each[0].endpoint):
            yield ClusterHost(
                host=other.host,
                endpoint=other.endpoint,
                heard_s=round(heard_s, 3),
                alive=heard_s < self._hosts.dead_s,
            )

    def _sessions(
        self, prefix: str, after: str | None, limit: int
    ) -> tuple[list[ClusterSession], bool]:
        counts = self._engine.counts()
        names = _sessions_of(self._engine.names(), prefix, after or "")
        there = (self._session(each, counts) for each in self._last_messages(names, limit + 1))
        found = list(islice(filter(None, there), limit + 1))
        return found[:limit], len(found) > limit

    def _session(self, known: _Known, counts: Mapping[str, int]) -> ClusterSession | None:
        """What the report says of a name; None if it leads to no session."""
        name, label, last = known
        match label, last:
            case (ForeignMessage() as foreign, _) | (_, ForeignMessage() as foreign):
                return ClusterSession(
                    session=name,
                    host="",
                    endpoint="",
                    changed_at=0.0,
                    messages=0,
                    trouble=str(foreign.strerror),
                )
            case Message(), Message(owner=owner, at=at):
                return ClusterSession(
                    session=name,
                    host=owner.host,
                    endpoint=owner.endpoint,
                    changed_at=at,
                    messages=counts.get(label.label.identity, 0),
                    trouble=self._trouble(name, owner),
                )
            case _:
                return None

    def _trouble(self, session: str, owner: Owner) -> str:
        """What an operator has to do about the records of this disk; empty if nothing."""
        if (kept := kept_from(session)) is not None:
            return (
                f"these are a host's records of {kept!r}, which were not a beginning of the"
                f" cluster's: compare them (`steno show {session}`), then delete or rename it"
            )
        is_other = owner.host != self._hosts.owner.host
        if is_other and self._ownership.copies.is_uncompared(session):
            return (
                f"the session is {owner.endpoint}'s, and this host has files of that id which were"
                " not compared with it yet: run `steno cluster join`"
            )
        return ""


def _sessions_of(names: Iterable[str], prefix: str, after: str) -> list[str]:
    """The sessions with a prefix behind an id, in order; another program may name any folder."""
    return sorted(
        name for name in names if name.startswith(prefix) and name > after and _is_session(name)
    )


def _is_session(folder: str) -> bool:
    try:
        mount, _ = paths.split_session(folder)
    except BadRequest:
        return False
    return mount is None


def host_of(root: Path) -> str:
    """Return the identity of a root, which is made at its first use.

    Raises:
        BadRequest: the file of the identity is damaged.
    """
    path = root / paths.HOST
    if not path.exists():
        replace_durably(path, f"{os.urandom(8).hex()}\n".encode())
    found = read_private(path).decode(errors="replace").strip()
    if not found.isalnum() or len(found) > limits.HOST_CHARS_MAX:
        raise BadRequest(
            f"{path} is damaged: it has to be one line of letters and digits; remove it if no other"
            " root of the cluster is a copy of this one"
        )
    return found

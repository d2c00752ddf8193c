"""The async client: one connection for any number of tasks and sessions."""

import os
from collections.abc import Sequence
from pathlib import PurePath
from types import TracebackType
from typing import Literal, Self

import msgspec

from steno._async.link import Link
from steno._async.session import Session
from steno._connect.target import make_target
from steno._sansio.argument_checks import given_labels
from steno._sansio.requests import ReplyT, given_key, made_unfollowed, opening, page_size
from steno._sansio.view import NotPicklable
from steno.values import Deleted, deleted_of
from steno_protocol import commands, limits, replies
from steno_protocol.errors import StenoError
from steno_protocol.timeline_entries import TimelineEntry

__all__ = ["Client", "Session", "connect"]


def connect(
    root: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | Sequence[str] | None = None,
    name: str | None = None,
    spawn: bool = True,
    timeout: float = limits.REQUEST_TIMEOUT_S,
    key_file: str | os.PathLike[str] | None = None,
) -> "Client":
    """Make a client of the daemon of `root`, used as `async with steno.connect() as client`.

    Args:
        root: the folder that holds the sessions; None: STENO_HOME, else ~/.local/state/steno.
        endpoint: the address of a daemon that is not found through its root; such a daemon is never
            started. Of several addresses of one cluster, the first one that answers is taken, and
            the next when that one is lost.
        name: the author, stored in each line as `_by`; None for the program's name and pid.
        spawn: start a daemon when none runs, and again when it has died and is needed.
        timeout: seconds that one request may take, resends included; 0 to 1 000 000.
        key_file: the key for a daemon on another machine, as `steno keys new` made it.

    Returns:
        The client, which `async with` connects.

    Raises:
        BadRequest: an argument is out of range. `async with` raises the errors of connecting.

    Example:
        >>> async with steno.connect(name="planner") as other:
        ...     session = await other.open("another")
        ...     str(session.head)
        '0:0'
    """
    return Client(Link(make_target(root, endpoint, name, spawn=spawn, key_file=key_file), timeout))


class Client(NotPicklable):
    """A connection to a daemon, renewed when it is lost; made by `connect`.

    Several tasks may use one client at once. A cancelled call leaves the client intact; its command
    may have been applied, and the caller may repeat it with the same key.

    A client is entered once, and belongs to the event loop that it was entered in. On asyncio one
    task may enter it and another one leave it; on trio one task has to do both.

    Every request can also raise Unreachable, Unauthorized, Incompatible, Busy, Expired,
    ShuttingDown and Internal; the methods do not repeat these.

    Example:
        >>> texts = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
        >>> ack = await client.session("talk").append_message(texts)
        >>> str(ack.first), str(ack.last)
        ('0:2', '0:3')
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    async def __aenter__(self) -> Self:
        await self._link.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._link.close()
        if self._link.crash is not None and error is None:
            raise self._link.crash

    @property
    def name(self) -> str:
        """The author of this client's changes, the `_by` of its lines.

        Example:
            >>> client.name
            'planner'
        """
        return self._link.name

    @property
    def welcome(self) -> replies.Welcome | None:
        """The identity and the limits of the daemon, as of the last connection.

        Example:
            >>> client.welcome.version == steno.__version__
            True
        """
        return self._link.welcome

    @property
    def is_inherited(self) -> bool:
        """True in a child of the process that made this client, where it cannot be used.

        Example:
            >>> client.is_inherited
            False
        """
        return self._link.is_inherited

    async def open(
        self,
        session: str,
        *,
        follow: bool = True,
        create: bool = True,
        exclusive: bool = False,
        stamp: bool = True,
        key: str | None = None,
    ) -> Session:
        """Open a session for writing; create it when there is none.

        Args:
            session: its id, segments joined by `/`.
            follow: load its history and keep it current; a writer without a reader saves that.
            create: create the session when there is none; otherwise that is NotFound.
            exclusive: raise Exists when there is a session already.
            stamp: for a new session: mark its lines with `_id` and `_by`, so that a repeat is
                harmless across crashes. False keeps the caller's bytes as they are.
            key: the idempotency key of this call, so that a retry is also answered as the creation,
                and not with Exists; a fresh one by default.

        Returns:
            The session; a new one is on the disk, and with `follow` its history is loaded.

        Raises:
            BadRequest, NotFound, Exists, Held, StorageFailed, Unreachable: the session is not open.
            OutcomeUnknown: without an answer, the session may have been created; or it was, and
                cannot be followed. Open it again.

        Example:
            >>> session = await client.open("team/planner-1")
            >>> session.id, len(session.history)
            ('team/planner-1', 0)
        """
        command = opening(
            session, self._link.name, key, create=create, exclusive=exclusive, stamp=stamp
        )
        stat = await self._link.ask(command, replies.SessionStat)
        opened = Session(self._link, session, stat)
        if follow:
            try:
                await opened.load()
            except StenoError as error:
                if not stat.created:
                    raise
                raise made_unfollowed(error, session, command.key) from error
        return opened

    def session(self, session: str) -> Session:
        """Return a handle to a session; no request is sent, nothing is opened or loaded.

        Args:
            session: its id.

        Returns:
            A handle for changes and reads; `load` makes it follow the session.

        Example:
            >>> session = client.session("talk")
            >>> ack = await session.append_message({"role": "user", "content": "more"})
            >>> str(ack.head)
            '0:3'
        """
        return Session(self._link, session, None)

    async def sessions(
        self,
        prefix: str = "",
        *,
        archived: Literal["no", "only", "all"] = "all",
        labels: Sequence[str] = (),
        title: str = "",
        after: str = "",
        limit: int | None = None,
    ) -> list[replies.SessionEntry]:
        """List the sessions whose id starts with `prefix`, ordered by id.

        Args:
            prefix: the beginning of the ids.
            archived: `no` leaves archived sessions out, `only` leaves the others out.
            labels: only sessions with all of these labels.
            title: only sessions whose title contains this, ignoring case.
            after: only ids after this one; the id of the last session continues a list.
            limit: at most this many sessions; None for all.

        Returns:
            An entry for each session, with its id, size, title, labels and `modified_at`, the last
            change of its context or of a stream.

        Raises:
            BadRequest: a label, `archived` or the limit is invalid.
            StorageFailed: the folders cannot be read.

        Example:
            >>> session = await client.open("team/planner-1")
            >>> [entry.session for entry in await client.sessions("team/")]
            ['team/planner-1']
        """
        entries: list[replies.SessionEntry] = []
        more = True
        while more:
            asked = commands.List(
                prefix=prefix,
                after=entries[-1].session if entries else after,
                limit=page_size(limit, len(entries)),
                archived=archived,
                labels=given_labels(labels),
                title=title,
            )
            page = await self._link.ask(asked, replies.Sessions)
            entries += page.sessions
            more = page.more and len(entries) != limit
        return entries

    async def stat(self, session: str) -> replies.SessionStat:
        """Return the numbers of a session at its head; it is neither created nor repaired.

        Args:
            session: its id.

        Returns:
            Head, size, token counts, title and folder.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> stat = await client.stat("talk")
            >>> stat.head, stat.n_checkpoints
            ('0:2', 1)
        """
        return await self._link.ask(commands.Stat(session=session), replies.SessionStat)

    async def timeline(self, session: str) -> list[TimelineEntry]:
        """Return the timeline of a session, oldest entry first.

        Args:
            session: its id.

        Returns:
            An entry for the creation and for every rewrite, fork, D-Mail and repair.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> [entry.kind for entry in await client.timeline("talk")]
            ['created']
        """
        report = await self._link.ask(commands.Timeline(session=session), replies.TimelineReport)
        return report.entries

    async def delete(self, session: str, *, key: str | None = None) -> Deleted:
        """Move a session to the trash, with the sessions below it.

        Args:
            session: its id.
            key: the idempotency key of this deletion: a repeat gets the first answer, also after
                another session of the same id was created.

        Returns:
            The folder of its files in the trash, and when they expire; the move is on the disk.

        Raises:
            NotFound: there is no such session.
            OutcomeUnknown: the session may have been moved; repeat with the error's `key`.

        Example:
            >>> deleted = await client.delete("talk")
            >>> (deleted.trash / "context.jsonl").exists()
            True
        """
        asked = commands.Delete(session=session, key=given_key(key), by=self._link.name)
        return deleted_of(await self._link.ask(asked, replies.Deleted))

    async def undelete(
        self,
        session: str,
        *,
        trash: str | os.PathLike[str] | None = None,
        key: str | None = None,
    ) -> replies.Moved:
        """Restore a deleted session from the trash, with the sessions deleted with it.

        Args:
            session: the id under which it was deleted.
            trash: the folder in the trash, as `delete` and `trash` return it; None for the latest
                deletion of this id.
            key: the idempotency key of this call: a repeat gets the first answer.

        Returns:
            The id of the session and its folder; the move is on the disk.

        Raises:
            NotFound: the trash has no such session, or it has expired.
            Exists: another session has the id now: rename or delete that one first.
            Busy: the folder in the trash is being removed.
            OutcomeUnknown: the session may have been restored; repeat with the error's `key`.

        Example:
            >>> deleted = await client.delete("talk")
            >>> (await client.undelete("talk")).session
            'talk'
        """
        name = None if trash is None else PurePath(trash).name
        asked = commands.Undelete(session=session, trash=name, key=given_key(key))
        return await self._link.ask(asked, replies.Moved)

    async def trash(self, prefix: str = "") -> list[replies.TrashEntry]:
        """List the deleted sessions whose id starts with `prefix`, the latest deletion first.

        Args:
            prefix: the beginning of the ids.

        Returns:
            An entry for each deletion, with its folder in the trash and the time when it expires.

        Raises:
            StorageFailed: the trash cannot be read.

        Example:
            >>> deleted = await client.delete("talk")
            >>> [entry.session for entry in await client.trash()]
            ['talk']
        """
        entries: list[replies.TrashEntry] = []
        more = True
        while more:
            after = entries[-1].trash if entries else None
            asked = commands.Trash(prefix=prefix, after=after)
            page = await self._link.ask(asked, replies.TrashReport)
            entries += page.entries
            more = page.more
        return entries

    async def rename(
        self, session: str, new_session: str, *, key: str | None = None
    ) -> replies.Moved:
        """Give a session, and the sessions below it, another id in the same root or mount.

        Its records, keys, checkpoints and pending D-Mail stay as they are. Handles and followers of
        the old id get NotFound, with the new id as its `new_session`: open the session again under
        that. The old id is free.

        Args:
            session: its present id.
            new_session: its new id.
            key: the idempotency key of this rename: a repeat gets the first answer, also after
                another session with the old id was created.

        Returns:
            The new id and the folder of the session; the move is on the disk.

        Raises:
            NotFound: there is no such session.
            Exists: the new id is taken.
            BadRequest: the new id is invalid, below the old one, or in another root or mount.
            Busy: another operation moves or deletes one of the two.
            OutcomeUnknown: the session may have been renamed; repeat with the error's `key`.

        Example:
            >>> (await client.rename("talk", "plans/shop")).session
            'plans/shop'
        """
        asked = commands.Rename(
            session=session, new_session=new_session, key=given_key(key), by=self._link.name
        )
        return await self._link.ask(asked, replies.Moved)

    async def status(self) -> replies.StatusReport:
        """Return the state of the daemon.

        Returns:
            Its version, pid, uptime, queue and syncs.

        Raises:
            Unreachable: no daemon answered in time.

        Example:
            >>> status = await client.status()
            >>> status.version == steno.__version__, status.draining
            (True, False)
        """
        return await self._link.ask(commands.Status(), replies.StatusReport)

    async def clients(self, session: str | None = None) -> replies.ClientsReport:
        """List the connected clients, or the followers of `session`.

        Args:
            session: an id; None for all clients of the daemon.

        Returns:
            The clients, each with its name, pid, requests and subscriptions; none when there is no
            such session.

        Raises:
            BadRequest: the id is no session id.

        Example:
            >>> [each.name for each in (await client.clients("talk")).clients]
            ['planner']
        """
        return await self._link.ask(commands.Clients(session=session), replies.ClientsReport)

    async def cluster(self, prefix: str = "", *, limit: int | None = 0) -> replies.ClusterReport:
        """Report the cluster of the daemon: its hosts, its servers, and the owners of sessions.

        Args:
            prefix: only sessions whose id starts with this are listed.
            limit: at most this many sessions; 0 for none, which asks the servers less, and None for
                all.

        Returns:
            The cluster as this daemon sees it; its `cluster` is empty if the daemon is in none.

        Raises:
            BadRequest: the limit is invalid.

        Example:
            >>> (await client.cluster()).cluster
            ''
        """
        found: list[replies.ClusterSession] = []
        report = None
        while report is None or (report.more and len(found) != limit):
            asked = commands.Cluster(
                prefix=prefix,
                after=found[-1].session if found else None,
                limit=page_size(limit, len(found), 0),
            )
            report = await self._link.ask(asked, replies.ClusterReport)
            found += report.sessions
        return msgspec.structs.replace(report, sessions=tuple(found))

    async def hand_over(self, session: str, host: str) -> None:
        """Give a session to another daemon of the cluster; clients of it go there by themselves.

        Args:
            session: its id.
            host: the identity or the endpoint of the other daemon, as `cluster` reports it.

        Returns:
            The other daemon is the owner, and has the session's files.

        Raises:
            BadRequest: the daemon is in no cluster, or the session is in a mount.
            NotFound: there is no such session, or no such daemon lives.
            Busy: the other daemon does not say that it has the session; either may own it.
            StorageFailed: the cluster's servers did not answer; either may own it.

        Example:
            >>> try:
            ...     await client.hand_over("talk", "tcp://10.0.0.6:7117")
            ... except steno.BadRequest as error:
            ...     print(error.message.partition(":")[0])
            this daemon is in no cluster
        """
        await self._link.ask(commands.HandOver(session=session, host=host), replies.Done)

    async def drain(self) -> None:
        """Ask the daemon to finish its queue, sync it, and end.

        The next request of a client that may spawn starts it again.

        Raises:
            Unauthorized: the key of this client has no right to end the daemon.

        Example:
            >>> await client.drain()
        """
        await self._link.ask(commands.Drain(), replies.Done)

    async def request(
        self, command: commands.Command, kind: type[ReplyT], records: Sequence[bytes] = ()
    ) -> tuple[ReplyT, bytes]:
        """Send any command of the protocol, for programs that go below the verbs.

        Args:
            command: the command.
            kind: the type of the expected reply.
            records: the records of the command, each the bytes of a JSON object.

        Returns:
            The reply, and the block of lines that came with it.

        Raises:
            StenoError: the error that the daemon replied with.

        Example:
            >>> from steno_protocol import commands, replies
            >>> asked = commands.Stat(session="talk")
            >>> reply, block = await client.request(asked, replies.SessionStat)
            >>> reply.head
            '0:2'
        """
        return await self._link.request(command, kind, records)

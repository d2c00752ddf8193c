"""The blocking client: the verbs and errors of the async one, without an event loop."""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self

from steno._connect.target import make_target
from steno._sansio.argument_checks import given_labels
from steno._sansio.forks import delete_command
from steno._sansio.not_picklable import NotPicklable
from steno._sansio.request_builders import ReplyT, open_unfollowed, opening
from steno._sync.link import BlockingLink
from steno._sync.session import BlockingSession
from steno._sync.subscription import BlockingSubscription
from steno.values import Deleted, deleted_of
from steno_protocol import commands, limits, replies
from steno_protocol.errors import StenoError
from steno_protocol.timeline_entries import TimelineEntry

__all__ = ["BlockingClient", "BlockingSession", "BlockingSubscription", "connect_sync"]


def connect_sync(
    root: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | None = None,
    name: str | None = None,
    spawn: bool = True,
    timeout: float = limits.REQUEST_TIMEOUT_S,
    key_file: str | os.PathLike[str] | None = None,
) -> "BlockingClient":
    """Connect to the daemon of `root`; to be used as `with steno.connect_sync() as client`.

    Args and errors are those of `connect`; the connection stands when this returns.

    Raises:
        Unreachable: there is no daemon, and none was to be started or could be.
        Incompatible: what answers is not the daemon that was wanted.
    """
    return BlockingClient(
        BlockingLink(make_target(root, endpoint, name, spawn=spawn, key_file=key_file), timeout)
    )


class BlockingClient(NotPicklable):
    """A connection to a daemon that mends itself; made by `connect_sync`.

    Requests from several threads are put one after the other, in the order in which they come. One
    whose turn does not come within `timeout` seconds ends with Busy, and was not sent. A thread
    that waits for an event, or for a history to arrive, keeps no other waiting. What arrives on its
    own, for histories and subscriptions, is taken in during calls.

    A signal handler may end a call by raising; the client is sound after it. It must not use the
    client that its thread is in a call of: that ends with Busy.
    """

    def __init__(self, link: BlockingLink) -> None:
        self._link = link

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; closing twice is harmless. Other threads' waits end with Unreachable.

        Raises:
            Busy: another thread's request took longer than `timeout`; the client is still open.
        """
        self._link.close()

    @property
    def name(self) -> str:
        """The author of this client's changes, the `_by` of its lines."""
        return self._link.name

    @property
    def welcome(self) -> replies.Welcome:
        """What the daemon said of itself when it was reached last, its limits included."""
        return self._link.welcome

    @property
    def is_inherited(self) -> bool:
        """True in a child of the process that made this client, where it cannot be used."""
        return self._link.is_inherited

    def open(
        self,
        session: str,
        *,
        follow: bool = True,
        create: bool = True,
        exclusive: bool = False,
        stamp: bool = True,
        key: str | None = None,
    ) -> BlockingSession:
        """Open a session for writing, creating it when there is none; see `Client.open`."""
        command = opening(
            session,
            self._link.name,
            key,
            create=create,
            exclusive=exclusive,
            stamp=stamp,
        )
        stat = self._link.ask(command, replies.SessionStat)
        opened = BlockingSession(self._link, session, stat)
        if follow:
            try:
                opened.load()
            except StenoError as error:
                raise open_unfollowed(error, stat, command.key) from error
        return opened

    def session(self, session: str) -> BlockingSession:
        """A handle to a session, without asking for it: nothing is opened, created or loaded."""
        return BlockingSession(self._link, session, None)

    def sessions(
        self,
        prefix: str = "",
        *,
        archived: Literal["no", "only", "all"] = "all",
        labels: Sequence[str] = (),
        title: str = "",
    ) -> list[replies.SessionEntry]:
        """The sessions whose id starts with `prefix`, ordered by id.

        Args:
            archived: whether archived sessions are left out, the only ones, or among the others.
            labels: only sessions that bear all of these.
            title: only sessions whose title contains this, ignoring case.
        """
        entries: list[replies.SessionEntry] = []
        more = True
        while more:
            after = entries[-1].session if entries else ""
            asked = commands.List(
                prefix=prefix,
                after=after,
                archived=archived,
                labels=given_labels(labels),
                title=title,
            )
            page = self._link.ask(asked, replies.Sessions)
            entries += page.sessions
            more = page.more
        return entries

    def stat(self, session: str) -> replies.SessionStat:
        """The numbers of a session at its head; it is neither created nor repaired."""
        return self._link.ask(commands.Stat(session=session), replies.SessionStat)

    def timeline(self, session: str) -> list[TimelineEntry]:
        """What ever happened to a session, oldest first."""
        return self._link.ask(commands.Timeline(session=session), replies.TimelineReport).entries

    def delete(self, session: str, *, key: str | None = None) -> Deleted:
        """Move a session to the trash, with the sessions below it.

        Args:
            key: names this deletion for ever: a repeat gets the first answer, also when a session
                of the same id was made since.

        Returns:
            Where its files lie now, and until when; the move is on the disk.

        Raises:
            NotFound: there is no such session.
            OutcomeUnknown: it may have been moved; repeat with the error's `key`.
        """
        asked = delete_command(session, self._link.name, key)
        return deleted_of(self._link.ask(asked, replies.Deleted))

    def status(self) -> replies.StatusReport:
        """How the daemon is."""
        return self._link.ask(commands.Status(), replies.StatusReport)

    def clients(self, session: str | None = None) -> replies.ClientsReport:
        """The connected clients, or the followers of `session`."""
        return self._link.ask(commands.Clients(session=session), replies.ClientsReport)

    def drain(self) -> None:
        """Ask the daemon to finish what is queued, sync it, and end."""
        self._link.ask(commands.Drain(), replies.Done)

    def request(
        self, command: commands.Command, kind: type[ReplyT], records: Sequence[bytes] = ()
    ) -> tuple[ReplyT, bytes]:
        """Send any command of the protocol, for programs that go below the verbs.

        Args:
            kind: what the reply has to be.
            records: the records of the command, each the bytes of a JSON object.

        Returns:
            The reply, and the block of lines that came with it.
        """
        return self._link.request(command, kind, records)

"""The identity of the stream: whether it is the one that this root used, with all of its messages.

A stream that was deleted and made again, or restored from an old copy, has the name of the one
before. The time of its creation, a marker message in it, and the highest sequence that this root
knows tell it from that one.
"""

import asyncio
import secrets
from contextlib import suppress
from errno import EINVAL, ENOENT
from typing import Any, Final, NoReturn

import msgspec

from stenod_cluster import limits
from stenod_cluster.jetstream import Rejected, api, at_leader
from stenod_cluster.journal import AGAIN, REMEDY, ForeignStream, JournalLost
from stenod_cluster.nats_connection import (
    Connection,
    NoRespondersError,
    NotConnectedError,
    UnansweredError,
)
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.streams import differences, stream_config
from stenod_cluster.subjects import marker_subject, stream_name
from stenod_cluster.trust import Known, Own, Request, Trust
from stenod_cluster.verdicts import STREAM_NOT_FOUND
from stenod_cluster.wire import EXPECTED, MESSAGE_ID, Reply

_CONFIG_DIFFERS: Final = 10058


class Suspicion(Exception):
    """The stream lacks what this root knows, which may pass; the text says what."""


class StreamIdentity:
    """What is known of the stream of a cluster.

    Args:
        connection: the connection to the servers.
        options: the cluster.
        trust: the streams that this root knows.

    Attributes:
        created: when it was created; empty before the first look.
        identity: its identity; empty before the first look.
        began: the sequence of its marker.
        stored: the highest sequence that is known.
        own: the last message of this root in it, as far as this process knows.
        is_old_copy: it stored a sequence anew, and may have caught up with the highest one.
        is_joining: the operator lets the hosts join it one after another. This process began to
            use it then, and cannot know whether all of them are there.
    """

    def __init__(self, connection: Connection, options: ReplicationOptions, trust: Trust) -> None:
        self.created = ""
        self.identity = ""
        self.began = 0
        self.stored = 0
        self.own = Own()
        self.is_old_copy = False
        self.is_joining = False
        self._is_serving = False
        # The question for the time of creation that was sent, and the one that comes behind it.
        self._asked: asyncio.Task[str] | None = None
        self._next: asyncio.Task[str] | None = None
        self._connection = connection
        self._options = options
        self._trust = trust
        self._name = stream_name(options.cluster)

    async def check(self) -> dict[str, Any]:
        """Returns what the servers say of the stream, if it is the right one.

        Raises:
            Suspicion: it lacks what this root knows.
            ForeignStream: it is another one than this root used.
            JournalLost: nobody answered.
            OSError: it is not there, or has other settings.
        """
        stored, own = self.stored, self.own
        found = await self._info()
        different = differences(self._options, found["config"])
        if different:
            raise OSError(
                EINVAL,
                f"stream {self._name} has settings that steno cannot work with:"
                f" {'; '.join(different)}. Change it with `nats stream edit {self._name}`, or"
                " choose another replication.cluster",
            )
        await self._check_known(found["created"], found["state"]["last_seq"], stored, own)
        return found

    def note_own(self, own: Own) -> None:
        """Remember a message of this root that is durable in the stream."""
        self.stored = max(self.stored, own.sequence)
        self.own = max(self.own, own, key=_place)

    async def note_serving(self) -> None:
        """Remember that this root has a daemon that serves: its next process joins no more."""
        self._is_serving = True
        known = self._trust.known(self._name)
        if known is not None and known.is_joining:
            served = msgspec.structs.replace(known, is_joining=False)
            await asyncio.to_thread(self._trust.accept, self._name, served)

    async def check_same(self, sequence: int, count: int) -> None:
        """Check that messages went to the stream that was looked at; remove them from another.

        Args:
            sequence: that of the last one.
            count: how many they are.

        Raises:
            ForeignStream: it did not.
            OSError: nobody says so.
        """
        # One answer is enough for all messages that were stored before the question was sent.
        if self._next is None:
            self._next = asyncio.create_task(self._created_behind(self._asked))
        if await asyncio.shield(self._next) != self.created:
            await self._remove(sequence, count)
            raise other_stream(self._name)

    async def _created_behind(self, asked: "asyncio.Task[str] | None") -> str:
        """Ask when the stream was created, once the question before has its answer."""
        if asked is not None:
            await asyncio.wait([asked])
        self._asked, self._next = self._next, None
        found = await api(self._connection, "STREAM.INFO", self._name, {}, limits.MONITOR_S)
        return str(found["created"])

    async def refuse_old_copy(self, sequence: int, count: int, before: int) -> NoReturn:
        """Remove messages that have sequences which others had already.

        Args:
            sequence: that of the last one.
            count: how many they are.
            before: the highest sequence that was known when they were sent.

        Raises:
            ForeignStream: they are removed.
            OSError: they may be there.
        """
        await self._note_old_copy(Known(self.identity, before))
        await self._remove(sequence, count)
        raise self._old_copy(before)

    async def _note_old_copy(self, known: Known) -> None:
        # Messages, and a look at the stream, may be under way.
        self.is_old_copy = True
        known = msgspec.structs.replace(known, is_old_copy=True)
        await asyncio.to_thread(self._trust.accept, self._name, known)

    def _old_copy(self, last: int) -> ForeignStream:
        return ForeignStream(
            None,
            f"stream {self._name} is an old copy: its servers acknowledged messages up to {last},"
            f" and stored others in their place: {REMEDY}",
        )

    async def end_request(self) -> None:
        """What the operator asked for was done."""
        if self._trust.request is not Request.NONE:
            await asyncio.to_thread(self._trust.end_request)

    async def _remove(self, sequence: int, count: int) -> None:
        for each in range(sequence - count + 1, sequence + 1):
            request = {"seq": each}
            await api(self._connection, "STREAM.MSG.DELETE", self._name, request, limits.MONITOR_S)

    async def _info(self) -> dict[str, Any]:
        """Returns what the servers say of the stream, which is created if the operator said so."""
        name, wait_s = self._name, limits.RESEND_S
        try:
            return await api(self._connection, "STREAM.INFO", name, {}, wait_s)
        except Rejected as error:
            if error.code != STREAM_NOT_FOUND:
                raise
        request, known = self._trust.request, self._trust.known(name)
        if known is not None and request is not Request.AGAIN:
            raise Suspicion(f"the servers have lost stream {name}")
        if request is Request.NONE:
            raise OSError(
                ENOENT,
                f"the servers have no stream {name}: on one host, once, run"
                " `steno cluster join --create`",
            )
        config = stream_config(self._options)
        try:
            return await api(self._connection, "STREAM.CREATE", name, config, wait_s)
        except Rejected as error:
            if error.code != _CONFIG_DIFFERS:
                raise
        # Another daemon or an operator created it meanwhile.
        return await api(self._connection, "STREAM.INFO", name, {}, wait_s)

    async def _check_known(self, created: str, last: int, stored: int, own: Own) -> None:
        """Compare the stream with what this root knows of it, and remember it.

        Args:
            created: when it was created.
            last: its last sequence.
            stored: the highest sequence that this daemon knew before it asked.
            own: its last message, as it knew it then.

        Raises:
            Suspicion: it lacks what this root knows.
            ForeignStream: it is another one than this root used.
        """
        marker = await self._marker()
        known, is_again = self._trust.known(self._name), self._trust.request is Request.AGAIN
        if known is not None:
            # The next process has to know what is missing, too.
            stored, own = max(stored, known.last), max(own, known.own, key=_place)
            known = msgspec.structs.replace(known, last=stored, own=own)
            await asyncio.to_thread(self._trust.accept, self._name, known)
        own = Own() if known is None or is_again else known.own
        if known is not None and not is_again:
            self._compare(known, created, marker, last, stored)
            if await self._has_other(known.own):
                await self._note_old_copy(known)
                raise self._old_copy(known.last)
        elif marker is None or (
            known is not None and await self._is_before_loss(known, created, marker, last)
        ):
            # A new marker tells the stream after a loss from the one before, on all hosts.
            marker = await self._new_marker(marker, AGAIN.encode() if is_again else b"")
            last = max(last, marker.sequence)
        assert marker is not None
        is_new = known is None and marker.body.endswith(AGAIN.encode())
        was_joining = known is not None and known.is_joining
        self.is_joining = self.is_joining or is_again or is_new or was_joining
        is_due = self.is_joining and not self._is_serving
        known = Known(_identity(created, marker), last, own=own, is_joining=is_due)
        self.created, self.identity = created, known.identity
        self.began = marker.sequence
        self.stored = last if is_again else max(self.stored, last)
        await asyncio.to_thread(self._trust.accept, self._name, known)
        if self.is_old_copy:
            raise self._old_copy(last)

    def _compare(
        self, known: Known, created: str, marker: Reply | None, last: int, stored: int
    ) -> None:
        """Raise if the stream is not the one that this root knows, or lacks messages."""
        if known.identity.partition(" ")[0] != created:
            raise other_stream(self._name)
        if marker is None:
            raise Suspicion(f"stream {self._name} has lost its first message")
        if known.identity != _identity(created, marker):
            raise ForeignStream(
                None, f"another host joined stream {self._name} again after a loss: {REMEDY}"
            )
        if known.is_old_copy:
            raise self._old_copy(known.last)
        if last < max(stored, known.last):
            raise Suspicion(
                f"stream {self._name} has messages up to {last}, and its servers acknowledged"
                f" {max(stored, known.last)}"
            )

    async def _is_before_loss(self, known: Known, created: str, marker: Reply, last: int) -> bool:
        """Whether the stream lost messages, and no host has joined it again since."""
        identity = _identity(created, marker)
        if known.identity.partition(" ")[2] != identity.partition(" ")[2]:
            return False
        is_other = known.identity != identity or known.is_old_copy or last < known.last
        return is_other or await self._has_other(known.own)

    async def _has_other(self, own: Own) -> bool:
        """Whether the stream has another message in the place of the last one of this root.

        The hosts that use an old copy before this one looks bring its numbers up to those that it
        had. A message that is not there was purged, and says nothing.
        """
        if not own.sequence:
            return False
        found = await at_leader(self._connection, self._name, {"seq": own.sequence})
        return found is not None and found.headers.get(MESSAGE_ID) != own.id

    async def _marker(self) -> Reply | None:
        subject = marker_subject(self._options.cluster)
        return await at_leader(self._connection, self._name, {"last_by_subj": subject})

    async def _new_marker(self, before: Reply | None, ending: bytes) -> Reply:
        """Publish a marker behind the last one; returns the one that the stream has then."""
        subject = marker_subject(self._options.cluster)
        headers = {EXPECTED: str(before.sequence if before else 0)}
        body = secrets.token_hex(16).encode() + ending
        with suppress(NotConnectedError, NoRespondersError, UnansweredError):
            await self._connection.request(subject, body, limits.RESEND_S, headers)
        # Two hosts may do it at the same time: the stream has the marker of one of them.
        found = await self._marker()
        if found is None or found == before:
            raise JournalLost(None, f"stream {self._name} does not take its marker")
        return found


def other_stream(name: str) -> ForeignStream:
    """Return the error for a stream that was made since this root used the one of its name."""
    return ForeignStream(
        None, f"stream {name} was made again since this root used it, and is another one: {REMEDY}"
    )


def _identity(created: str, marker: Reply) -> str:
    return f"{created} {marker.body.decode(errors='replace')}"


def _place(own: Own) -> int:
    return own.sequence

"""One publication or batch, sent until the servers decide, or the deadline comes.

The fence lets one of its copies in; the id in the headers shows whether that one is stored.
"""

import asyncio
import secrets
from collections.abc import Callable

from stenod_cluster import limits
from stenod_cluster.jetstream import direct_get
from stenod_cluster.journal import Fenced, ForeignMessage, InDoubt, JournalLost, Kind, Publication
from stenod_cluster.nats_connection import (
    Connection,
    NoRespondersError,
    NotConnectedError,
    UnansweredError,
)
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.subjects import stream_name, subject_of
from stenod_cluster.verdicts import Again, Verdict, WrongSequence, verdict_of
from stenod_cluster.wire import KIND, MESSAGE_ID, Reply, batch_headers, headers_of, message_of


class Publishing:
    """The attempts to publish one message, or several as an atomic batch.

    Args:
        connection: the connection to the servers.
        options: the cluster.
        publication: what is published.
        deadline: when to give up, by the clock of the event loop.
        doubted: called when the servers lack what they had; returns why the stream is not used.

    Attributes:
        id: what the servers have in the headers of each of its messages.

    Raises:
        OSError: a name has no subject.
    """

    def __init__(
        self,
        connection: Connection,
        options: ReplicationOptions,
        publication: Publication,
        deadline: float,
        doubted: Callable[[], OSError | None],
    ) -> None:
        self._connection = connection
        self._publication = publication
        self._deadline = deadline
        self._doubted = doubted
        self._subjects = [subject_of(options.cluster, each.subject) for each in publication.batch]
        self._stream = stream_name(options.cluster)
        self.id = secrets.token_hex(16)
        self._is_in_doubt = False
        self._reason = "no server has been asked yet"
        self._pause_s = limits.RETRY_S

    async def outcome(self) -> int | OSError:
        """Returns the sequence of the message, or why there is none."""
        clock = asyncio.get_running_loop().time
        while (left_s := self._deadline - clock()) > 0 and not self._connection.is_closed:
            found = await self._attempt(left_s)
            if found is not None:
                return found
        return self._given_up()

    async def _attempt(self, left_s: float) -> int | OSError | None:
        """Send it once. Returns None if it has to be sent again."""
        try:
            reply = await self._sent(min(left_s, limits.RESEND_S))
        except NotConnectedError as error:
            self._reason = str(error)
            await self._connection.wait_trusted(left_s)
        except NoRespondersError:
            if (foreign := self._doubted()) is not None:
                return self._in_doubt() or foreign
            await self._pause(f"stream {self._stream} has no leader, or is not there")
        except UnansweredError as error:
            self._is_in_doubt = True
            self._reason = str(error)
            await self._connection.check()
        except OSError as error:
            return error
        else:
            return await self._judged(verdict_of(reply.body, self._stream))
        return None

    async def _sent(self, wait_s: float) -> Reply:
        """Send the message, behind those that come before it in one batch."""
        batch, subjects = self._publication.batch, self._subjects
        if len(batch) == 1:
            headers = [headers_of(self._publication, self.id)]
        else:
            headers = batch_headers(batch, self.id)
        for place, each in enumerate(batch[:-1]):
            # The servers answer for all of them at the end.
            await self._connection.publish(subjects[place], each.body, headers[place])
        return await self._connection.request(subjects[-1], batch[-1].body, wait_s, headers[-1])

    async def _judged(self, verdict: Verdict) -> int | OSError | None:
        match verdict:
            case int():
                return verdict
            case WrongSequence(last):
                if self._publication.also or last > self._publication.after:
                    return await self._overtaken()
                return await self._is_behind(f"messages up to {last}")
            case Again(reason, may_be_stored):
                self._is_in_doubt |= may_be_stored
                await self._pause(reason)
            case OSError():
                verdict.filename = self._publication.subject
                return self._in_doubt() or verdict
        return None

    async def _is_behind(self, known: str) -> OSError | None:
        """Try again with a leader that lacks what was published before."""
        if (foreign := self._doubted()) is not None:
            return self._in_doubt() or foreign
        # A leader that does not know yet that it is none any more.
        await self._pause(
            f"the leader of {self._stream} knows {known} of the subject, and"
            f" {self._publication.after} was published"
        )
        return None

    async def _overtaken(self) -> int | OSError | None:
        """Decide by the messages that are behind the fences."""
        is_behind = False
        for place, publication in enumerate(self._publication.batch):
            newest = await self._read({"last_by_subj": self._subjects[place]})
            known = 0 if newest is None else newest.sequence
            if newest is None or known <= publication.after:
                is_behind |= known < publication.after
                continue
            if self._is_ours(newest):
                return self._last_sequence(place, newest)
            if self._is_in_doubt:
                return await self._overtaken_in_doubt(place, newest)
            return self._fenced(place, newest)
        if is_behind and self._publication.also:
            return await self._is_behind("fewer messages")
        await self._pause("the replica that answered lags")
        return None

    async def _overtaken_in_doubt(self, place: int, newest: Reply) -> int | OSError | None:
        """Decide whether an attempt without an answer came before the newest message."""
        after = self._publication.batch[place].after
        first = await self._read({"seq": after + 1, "next_by_subj": self._subjects[place]})
        if first is None:
            await self._pause("the replica that answered lags")
            return None
        if self._is_ours(first):
            return self._last_sequence(place, first)
        found = self._fenced(place, newest)
        # Messages are purged only behind a copy of the whole folder.
        is_purged = first.headers.get(KIND) == Kind.SNAPSHOT
        return self._in_doubt() if isinstance(found, Fenced) and is_purged else found

    def _last_sequence(self, place: int, reply: Reply) -> int:
        """The sequence of the last message of the batch, by that of one of them."""
        return reply.sequence + len(self._subjects) - 1 - place

    def _fenced(self, place: int, newest: Reply) -> OSError:
        subject = self._publication.batch[place].subject
        try:
            return Fenced(subject, message_of(subject, newest))
        except ForeignMessage as error:
            return error

    def _is_ours(self, reply: Reply) -> bool:
        return reply.headers.get(MESSAGE_ID) == self.id

    async def _read(self, request: dict[str, int | str]) -> Reply | None:
        """Read a message of the subject from any replica; None if none has it or answers."""
        try:
            return await direct_get(self._connection, self._stream, request)
        except (NotConnectedError, NoRespondersError, UnansweredError):
            return None

    async def _pause(self, reason: str) -> None:
        self._reason = reason
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, limits.RETRY_S_MAX)

    def _in_doubt(self) -> InDoubt | None:
        if not self._is_in_doubt:
            return None
        return InDoubt(None, f"{self._reason}; what was sent may be stored")

    def _given_up(self) -> OSError:
        return self._in_doubt() or JournalLost(None, self._reason)

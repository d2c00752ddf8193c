"""One publication: sent under one id until the servers decide, or the deadline comes."""

import asyncio
import secrets
from collections.abc import Callable

from stenod_cluster import limits
from stenod_cluster.jetstream import direct_get
from stenod_cluster.journal import (
    Fenced,
    ForeignMessage,
    InDoubt,
    JournalLost,
    Kind,
    Publication,
)
from stenod_cluster.nats_connection import (
    Connection,
    NoRespondersError,
    NotConnectedError,
    Reply,
    UnansweredError,
)
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.subjects import shard_of, stream_name, subject_of
from stenod_cluster.verdicts import (
    Again,
    Refused,
    Stored,
    Verdict,
    WrongSequence,
    verdict_of,
)
from stenod_cluster.wire import KIND, MESSAGE_ID, headers_of, message_of, sequence_of


class Publishing:
    """The attempts to publish one message.

    Args:
        connection: the connection to the servers.
        options: the cluster.
        publication: what is published.
        deadline: when to give up, by the clock of the event loop.
        doubted: called when the servers lack what they had; returns why the stream is not used.

    Raises:
        OSError: the folder has no subject.
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
        self._subject = subject_of(options.cluster, options.streams, publication.folder)
        self._stream = stream_name(options.cluster, shard_of(publication.folder, options.streams))
        self._ids: set[str] = set()
        self._headers: dict[str, str] = {}
        self._unknown_since: float | None = None
        self._choose_id()
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
        wait_s = min(left_s, limits.RESEND_S)
        body = self._publication.body
        try:
            reply = await self._connection.request(self._subject, body, wait_s, self._headers)
        except NotConnectedError as error:
            self._reason = str(error)
            await self._connection.wait_connected(left_s)
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

    async def _judged(self, verdict: Verdict) -> int | OSError | None:
        match verdict:
            case Stored(sequence):
                return sequence
            case WrongSequence(last) if last > self._publication.after:
                return await self._overtaken()
            case WrongSequence(last):
                if (foreign := self._doubted()) is not None:
                    return self._in_doubt() or foreign
                # A leader that does not know yet that it is none any more.
                await self._pause(
                    f"the leader of {self._stream} knows messages up to {last} of the folder, and"
                    f" {self._publication.after} was published"
                )
            case Again(reason, may_be_stored, is_id_taken):
                self._is_in_doubt |= may_be_stored
                if is_id_taken:
                    self._give_up_id()
                await self._pause(reason)
            case Refused():
                return self._in_doubt() or verdict.error(self._publication.folder)
        return None

    async def _overtaken(self) -> int | OSError | None:
        """Decide by the message that the folder has behind the fence."""
        newest = await self._read({"last_by_subj": self._subject})
        if newest is None or sequence_of(newest.headers) <= self._publication.after:
            await self._pause("the replica that answered lags")
            return None
        if self._is_ours(newest):
            return sequence_of(newest.headers)
        if self._is_in_doubt:
            return await self._overtaken_in_doubt(newest)
        return self._fenced(newest)

    async def _overtaken_in_doubt(self, newest: Reply) -> int | OSError | None:
        """Decide whether an attempt without an answer came before the newest message."""
        first = await self._read(
            {"seq": self._publication.after + 1, "next_by_subj": self._subject}
        )
        if first is None:
            await self._pause("the replica that answered lags")
            return None
        if self._is_ours(first):
            return sequence_of(first.headers)
        found = self._fenced(newest)
        if isinstance(found, Fenced) and self._may_be_purged(first):
            return self._in_doubt()
        return found

    def _may_be_purged(self, first: Reply) -> bool:
        # Messages are purged only behind a copy of the folder, or behind its removal.
        return first.headers.get(KIND) in {Kind.SNAPSHOT, Kind.GONE}

    def _fenced(self, newest: Reply) -> OSError:
        folder = self._publication.folder
        try:
            return Fenced(folder, message_of(folder, newest.headers, newest.body))
        except ForeignMessage as error:
            return error

    def _is_ours(self, reply: Reply) -> bool:
        return reply.headers.get(MESSAGE_ID) in self._ids

    def _choose_id(self) -> None:
        message_id = secrets.token_hex(16)
        self._ids.add(message_id)
        self._headers = headers_of(self._publication, message_id)
        self._unknown_since = None

    def _give_up_id(self) -> None:
        """Take another id if the leader has said for long that it stores a message with this one.

        A leader that was replaced, and is leader again, may wait for a message of its first time
        that the next leader dropped. The fence lets one message in, whatever the ids.
        """
        now = asyncio.get_running_loop().time()
        if self._unknown_since is None:
            self._unknown_since = now
        elif now - self._unknown_since > limits.ID_TAKEN_S:
            self._choose_id()

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

"""The journal in NATS JetStream.

Each session and each name is a subject of one stream. A daemon publishes with the sequence of the
subject's last message, and the stream itself refuses a message whose publisher did not know the
last one: whatever a daemon believes to own, only one can continue a session.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from errno import EACCES, ENOSPC
from functools import partial
from typing import Any, TypeVar

from steno_protocol.replies import ClusterReplica, ClusterStream
from stenod_cluster import limits
from stenod_cluster.facts import ClusterFacts, ServerFacts, Syncing
from stenod_cluster.jetstream import (
    PassingError,
    Rejected,
    api,
    at_leader,
    direct_get_batch,
    subject_pages,
    until_heard,
)
from stenod_cluster.journal import (
    REMEDY,
    UNFENCED,
    ForeignMessage,
    ForeignStream,
    InDoubt,
    Journal,
    JournalLost,
    Marker,
    Message,
    Owner,
    Publication,
)
from stenod_cluster.monitors import ask_monitors
from stenod_cluster.nats_connection import Connection
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.publishing import Publishing
from stenod_cluster.stream_identity import StreamIdentity, Suspicion, other_stream
from stenod_cluster.subjects import (
    ended_subjects,
    names_subjects,
    path_of,
    sessions_subjects,
    stream_name,
    subject_of,
    topic_of,
    topic_subject,
)
from stenod_cluster.trust import Own, Trust
from stenod_cluster.verdicts import SEQUENCE_NOT_FOUND, full
from stenod_cluster.wire import SUBJECT, Reply, message_of, owner_headers

T = TypeVar("T")


class NatsJournal(Journal):
    """The messages of all sessions and names in the stream of a cluster. Implements `Journal`.

    It connects by itself and for as long as it takes, so that a daemon can start without a server;
    what is asked before fails with the reason. A stream that is missing, or not the one that
    this root used, is refused.

    It lives on the event loop that runs when it is made, which has to be that of asyncio.

    Args:
        options: the cluster and its servers.
        name: the name of this client on the servers, such as that of the host.
        trust: the streams that this root knows.

    Raises:
        OSError: the credentials or certificates that the options name cannot be used.
    """

    def __init__(self, options: ReplicationOptions, name: str, trust: Trust) -> None:
        self._options = options
        self._stream = stream_name(options.cluster)
        # Bytes that a stream with a limit has left, as of the last look.
        self._room: int | None = None
        self._suspected_at: float | None = None
        self._look_again = asyncio.Event()
        self._refusal: OSError | None = None
        self._setup_trouble = ""
        self._connection = Connection(options, name, self._prepare)
        self._identity = StreamIdentity(self._connection, options, trust)
        self._connection.begin()

    def wait_ready(self, wait_s: float) -> None:
        """Wait until the streams of the cluster can be used.

        Raises:
            JournalLost: no server was reached, or they have no leader, within `wait_s` seconds.
            OSError: a stream has other settings, the servers refuse this daemon or to create the
                stream, or take no message of the largest size.
        """
        self._connection.call(self._wait_ready(wait_s))
        self._connection.check_payload()

    # --- Journal ----------------------------------------------------------------------------------

    def publish(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """Publish a message to each of several folders, all at the same time; see `Journal`."""
        if self._connection.is_closed:
            return [JournalLost(None, "the connection to the cluster is closed")] * len(
                publications
            )
        try:
            return self._connection.call(self.publish_on_loop(publications))
        except JournalLost as error:
            # It was closed meanwhile, and what had been sent may be stored.
            return [InDoubt(None, str(error.strerror)) for _ in publications]

    def marker(self) -> Marker:
        """Returns what tells the stream from others; see `Journal`."""
        if not self._identity.identity:
            self.wait_ready(self._options.publish_s)
        return Marker(self._identity.identity, self._identity.began)

    @property
    def is_joining(self) -> bool:
        """Whether hosts may not have joined the stream again; see `Engine`."""
        return self._identity.is_joining

    def note_serving(self) -> None:
        """Remember that this root's daemon serves; see `Engine`."""
        self._connection.call(self._identity.note_serving())

    def confirm(self) -> None:
        """Check that a majority of the servers can hear each other; see `Journal`."""
        self._connection.call(self._confirm())

    def last_of(
        self, subjects: Sequence[str], *, at_leader: bool = False
    ) -> list[Message | ForeignMessage | None]:
        """Returns the last message of each of several subjects; see `Journal`."""
        return self._connection.call(self._last_of(subjects, at_leader=at_leader))

    def read(self, subject: str, after: int, last: int) -> Iterator[Message]:
        """Returns a subject's messages from behind `after` up to `last`; see `Journal`."""
        at, place = after, self._place(subject)
        while at < last:
            for message in self._connection.call(self._batch_of(place, subject, at, last)):
                at = message.sequence
                yield message

    def names(self, above: str | None = None, *, oldest: bool = False) -> list[str]:
        """Returns the names with messages; see `Journal`."""
        subjects = names_subjects(self._options.cluster, above)
        if oldest:
            found = self._connection.call(self._at_leader({"next_by_subj": subjects}))
            return [] if found is None else [path_of(found.headers[SUBJECT])]
        return list(self._connection.call(self._counts(subjects)))

    def counts(self) -> dict[str, int]:
        """Returns the number of messages of each session; see `Journal`."""
        return self._connection.call(self._counts(sessions_subjects(self._options.cluster)))

    def purge(self, subject: str, before: int, after: int = 0) -> None:
        """Remove a subject's messages with a sequence below `before`; see `Journal`."""
        if not after:
            self._connection.call(self._purge(subject, before))
            return
        between = [each.sequence for each in self.read(subject, after, before)]
        for sequence in reversed(between[:-1]):
            self._connection.call(self._remove(sequence))

    def announce(self, owner: Owner, topic: str, body: bytes) -> None:
        """Tell all daemons something, in a plain message that may be lost; never waits."""
        subject = topic_subject(self._options.cluster, topic)
        headers = owner_headers(owner)
        self._connection.post(lambda: self._connection.publish(subject, body, headers))

    def listen(self, hear: Callable[[str, bytes], None]) -> None:
        """Call `hear` with topic and body of each announcement; see `Journal`."""
        self._connection.hear(
            topic_subject(self._options.cluster, "*"),
            lambda subject, body: hear(topic_of(subject), body),
        )

    def close(self) -> None:
        """Close the connection; waiting callers get `JournalLost` or `InDoubt`."""
        self._connection.close()

    # --- facts ------------------------------------------------------------------------------------

    def state(self) -> ClusterFacts:
        """Returns facts about the servers. It waits two seconds at most for those that are down."""
        servers = ask_monitors(self._options.monitors)
        streams: tuple[ClusterStream, ...] = ()
        wanted = 0
        with suppress(JournalLost):
            stream, wanted = self._connection.call(self._stream_facts(servers))
            streams = (stream,)
        connected = self._connection.server or ""
        trouble = "" if connected and self._connection.is_trusted else self._trouble()
        return ClusterFacts(connected, trouble, streams, wanted, servers)

    def _trouble(self) -> str:
        if self._connection.server is None:
            return self._connection.trouble
        if self._refusal is not None:
            return str(self._refusal.strerror)
        return self._setup_trouble or self._connection.trouble

    async def _stream_facts(self, servers: Iterable[ServerFacts]) -> tuple[ClusterStream, int]:
        """Returns facts about the stream, and how many replicas it is to have; 0 if unknown."""
        syncing = {server.name: server.syncing for server in servers if server.name}
        try:
            ended = len((await self._subjects(ended_subjects(self._options.cluster)))[1])
            info, sessions = await self._subjects(sessions_subjects(self._options.cluster))
        except OSError as error:
            return ClusterStream(name=self._stream, trouble=str(error.strerror)), 0
        stream = ClusterStream(
            name=self._stream,
            replicas=_replicas(info.get("cluster"), syncing),
            # The messages of some that ended are there for their forks.
            sessions=len(sessions) - ended,
            messages=sum(sessions.values()),
            bytes=info["state"]["bytes"],
            bytes_max=info["config"].get("max_bytes", -1),
        )
        return stream, info["config"]["num_replicas"]

    async def _subjects(self, subjects: str) -> tuple[dict[str, Any], dict[str, int]]:
        """Returns facts about the stream, and the number of messages of each of some subjects."""
        await self._wait_prepared(limits.MONITOR_S)
        facts, found = dict[str, Any](), dict[str, int]()
        ask = partial(api, self._connection, "STREAM.INFO", self._stream, wait_s=limits.MONITOR_S)
        async for info, page in subject_pages(ask, subjects):
            facts = info
            found.update(page)
        return facts, found

    # --- on the event loop ------------------------------------------------------------------------

    async def publish_on_loop(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """As `publish`; see `Journal`."""
        deadline = asyncio.get_running_loop().time() + self._options.publish_s
        if len(publications) == 1:
            return [await self._publish(publications[0], deadline)]
        return list(await asyncio.gather(*(self._publish(each, deadline) for each in publications)))

    async def _publish(self, publication: Publication, deadline: float) -> int | OSError:
        try:
            if not self._connection.is_trusted:
                await self._wait_prepared(deadline - asyncio.get_running_loop().time())
            if publication.is_growth:
                self._check_room(publication)
            before = self._identity.stored
            publishing = Publishing(
                self._connection, self._options, publication, deadline, self._doubted
            )
            found = await publishing.outcome()
            if isinstance(found, int):
                await self._note_stored(publication, Own(found, publishing.id), before)
            return found
        except OSError as error:
            return error

    async def _note_stored(self, publication: Publication, own: Own, before: int) -> None:
        """Remember a sequence, if it is one of the stream that this daemon looked at.

        The first message of a subject has no fence against another stream, a note has none at all,
        and the fences of an old copy let in what follows a message that it has.

        Args:
            publication: what was stored.
            own: its last message.
            before: the highest sequence that was known when it was sent.

        Raises:
            ForeignStream: it is in another stream, or in an old copy.
            InDoubt: nobody says which stream it is in.
        """
        sequence, count = own.sequence, len(publication.batch)
        try:
            is_old = sequence - count < before or self._identity.is_old_copy
            with self._connection.judging():
                if is_old or all(each.after in {0, UNFENCED} for each in publication.batch):
                    await self._identity.check_same(sequence, count)
                if is_old:
                    await self._identity.refuse_old_copy(sequence, count, before)
        except ForeignStream as error:
            self._refuse(error)
            self._look_again.set()
            raise
        except OSError as error:
            raise InDoubt(None, str(error)) from None
        self._identity.note_own(own)
        if self._room is not None:
            self._room -= sum(len(each.body) + limits.MESSAGE_BYTES for each in publication.batch)

    def _note_room(self, info: dict[str, Any]) -> None:
        """Note how many bytes records may still take."""
        bytes_max: int = info["config"].get("max_bytes", -1)
        reserve = min(limits.RESERVE_BYTES_MAX, bytes_max // limits.RESERVES_MIN)
        self._room = None if bytes_max < 0 else bytes_max - reserve - info["state"]["bytes"]

    def _check_room(self, publication: Publication) -> None:
        """Raise OSError if a record would take the room that deletions need."""
        room = self._room
        if room is not None and len(publication.body) > room:
            raise OSError(ENOSPC, full(f"{max(room, 0)} bytes are left for records", self._stream))

    def _doubted(self) -> OSError | None:
        """Look at the streams soon; returns why they are not used, as far as is known."""
        self._look_again.set()
        return self._refusal

    async def _confirm(self) -> None:
        await self._wait_prepared(limits.MONITOR_S)
        try:
            info = await api(self._connection, "STREAM.INFO", self._stream, {}, limits.MONITOR_S)
        except Rejected as error:
            raise JournalLost(None, error.strerror) from None
        self._note_room(info)
        if info["created"] != (self._identity.created or info["created"]):
            self._look_again.set()
            raise other_stream(self._stream)
        cluster: dict[str, Any] = info.get("cluster") or {}
        others: list[dict[str, Any]] = cluster.get("replicas") or []
        heard = sum(
            not peer.get("offline") and peer.get("active", 0) < limits.PEER_SILENT_S * 1e9
            for peer in others
        )
        # Without a leader a follower answers, and counts itself among the others.
        if others and (not cluster.get("leader") or 2 * (1 + heard) <= 1 + len(others)):
            raise JournalLost(
                None, f"the servers of {self._stream} are no majority that hears each other"
            )

    async def _last_of(
        self, subjects: Sequence[str], *, at_leader: bool
    ) -> list[Message | ForeignMessage | None]:
        found: list[Message | ForeignMessage | None] = []
        for start in range(0, len(subjects), limits.READ_TOGETHER_MAX):
            part = subjects[start : start + limits.READ_TOGETHER_MAX]
            there = {} if at_leader else await self._last_together(map(self._place, part))
            found += await asyncio.gather(*(self._last_or_foreign(each, there) for each in part))
        return found

    async def _last_together(self, places: Iterable[str]) -> dict[str, Reply]:
        """Returns the last messages that a replica has, as many as one answer takes."""
        request = {
            "multi_last": list(places),
            "batch": limits.READ_TOGETHER_MAX,
            "max_bytes": limits.READ_BATCH_BYTES,
        }

        async def read(_: float) -> dict[str, Reply]:
            replies = await direct_get_batch(self._connection, self._stream, request)
            return {reply.headers[SUBJECT]: reply for reply in replies}

        return await self._until_heard(read, self._options.publish_s)

    async def _last_or_foreign(
        self, subject: str, there: Mapping[str, Reply]
    ) -> Message | ForeignMessage | None:
        place = self._place(subject)
        # A replica that lags says that there is none, too.
        found = there.get(place) or await self._at_leader({"last_by_subj": place})
        try:
            return None if found is None else message_of(subject, found)
        except ForeignMessage as error:
            return error

    async def _at_leader(self, request: dict[str, str]) -> Reply | None:
        wait_s = self._options.publish_s
        await self._wait_prepared(wait_s)
        return await at_leader(self._connection, self._stream, request, wait_s)

    async def _batch_of(self, place: str, subject: str, after: int, last: int) -> list[Message]:
        """Returns the next messages, one at least."""
        request = {
            "seq": after + 1,
            "next_by_subj": place,
            "batch": limits.READ_BATCH_MESSAGES,
            "max_bytes": limits.READ_BATCH_BYTES,
        }

        async def read(_: float) -> list[Message]:
            replies = await direct_get_batch(self._connection, self._stream, request)
            wanted = [reply for reply in replies if reply.sequence <= last]
            if not wanted:
                raise PassingError(f"the replica that answered lacks message {last}")
            return [message_of(subject, reply) for reply in wanted]

        return await self._until_heard(read, limits.READ_S)

    async def _until_heard(self, read: Callable[[float], Awaitable[T]], wait_s: float) -> T:
        """Read until a replica answers, or raise JournalLost after `wait_s` seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        await self._wait_prepared(wait_s)
        nobody = "none of the servers that store the folder answers"
        return await until_heard(self._connection, read, deadline - clock(), nobody)

    async def _counts(self, subjects: str) -> dict[str, int]:
        """Returns the number of messages of each session or name with such a subject."""
        found: dict[str, int] = {}
        # More may be stored while it answers.
        stored = self._identity.stored
        async for info, page in subject_pages(partial(self._ask, "STREAM.INFO"), subjects):
            last: int = info["state"]["last_seq"]
            if last < stored:
                # It leads no more, and does not know it yet.
                raise JournalLost(None, f"the leader of {self._stream} lacks what was stored")
            stored = self._identity.stored = max(self._identity.stored, last)
            found.update({path_of(each): count for each, count in page.items()})
        return found

    async def _purge(self, subject: str, before: int) -> None:
        await self._ask("STREAM.PURGE", {"filter": self._place(subject), "seq": before})
        with suppress(JournalLost):
            await self._confirm()

    async def _remove(self, sequence: int) -> None:
        try:
            await self._ask("STREAM.MSG.DELETE", {"seq": sequence, "no_erase": True})
        except Rejected as error:
            # An earlier request, whose answer was lost, removed it.
            if error.code != SEQUENCE_NOT_FOUND:
                raise

    async def _ask(self, name: str, request: object) -> dict[str, Any]:
        wait_s = self._options.publish_s
        await self._wait_prepared(wait_s)
        return await api(self._connection, name, self._stream, request, wait_s)

    def _place(self, subject: str) -> str:
        return subject_of(self._options.cluster, subject)

    # --- the stream ------------------------------------------------------------------------------

    async def _wait_ready(self, wait_s: float) -> None:
        waiting = asyncio.ensure_future(self._wait_prepared(wait_s))
        refused_polls = 0
        while not waiting.done():
            await asyncio.wait([waiting], timeout=limits.REFUSED_POLL_S)
            refused_polls = refused_polls + 1 if self._connection.is_refused else 0
            if refused_polls > limits.REFUSED_POLLS_MAX:
                waiting.cancel()
                raise OSError(EACCES, self._connection.trouble)
        waiting.result()

    async def _wait_prepared(self, wait_s: float) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        while not self._connection.is_trusted:
            if self._refusal is not None:
                raise _again(self._refusal)
            if clock() >= deadline or self._connection.is_closed:
                raise JournalLost(None, self._trouble())
            await self._connection.wait_connected(deadline - clock())
            await asyncio.sleep(limits.SETUP_POLL_S)

    async def _prepare(self) -> None:
        """Look at the stream again and again; cancelled with the connection."""
        # Once it is closed, nothing here waits any more, and the loop would have no other turn.
        while not self._connection.is_closed:
            wait_s = await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._look_again.wait()
            # What doubts the stream asks again and again meanwhile.
            await asyncio.sleep(limits.SETUP_POLL_S)
            self._look_again.clear()

    async def _look(self) -> float:
        """Look at the stream, and go to its leader; returns the seconds until the next look."""
        try:
            info = await self._identity.check()
            self._note_room(info)
            await self._identity.end_request()
        except Suspicion as error:
            self._suspect(str(error))
        except JournalLost as error:
            if isinstance(error, ForeignStream):
                self._refuse(error)
            self._setup_trouble = str(error.strerror)
        except OSError as error:
            # The operator may correct it while the daemon runs.
            self._refuse(error)
        else:
            self._refusal = self._suspected_at = None
            self._setup_trouble = ""
            self._connection.trust()
            cluster: dict[str, Any] = info.get("cluster") or {}
            if leader := cluster.get("leader"):
                # From any other server each message goes to this one first.
                await self._connection.move_to(leader)
            return limits.LEADER_CHECK_S
        return limits.SETUP_RETRY_S

    def _refuse(self, error: OSError) -> None:
        self._refusal = error
        self._connection.distrust()

    def _suspect(self, why: str) -> None:
        """Stop publishing at once, and refuse the stream if nothing changes for a while."""
        now = asyncio.get_running_loop().time()
        self._connection.distrust()
        self._setup_trouble = why
        if self._suspected_at is None:
            self._suspected_at = now
        elif now - self._suspected_at > limits.SUSPECT_S:
            self._refuse(ForeignStream(None, f"{why}: {REMEDY}"))


def _again(error: OSError) -> OSError:
    """A new error for each thread that raises it."""
    if isinstance(error, ForeignStream):
        return ForeignStream(None, str(error.strerror))
    return OSError(error.errno, error.strerror)


def _replicas(
    cluster: dict[str, Any] | None, syncing: dict[str, Syncing]
) -> tuple[ClusterReplica, ...]:
    if cluster is None:
        # A single server that is no cluster.
        cluster = {"leader": next(iter(syncing), "")}
    peers: list[dict[str, Any]] = list(cluster.get("replicas") or ())
    if leader := cluster.get("leader"):
        peers.insert(0, {"name": leader, "current": True, "leader": True})
    return tuple(
        ClusterReplica(
            name=str(peer["name"]),
            leader="leader" in peer,
            current=bool(peer.get("current")),
            offline=bool(peer.get("offline")),
            lag=int(peer.get("lag", 0)),
            syncing=syncing.get(str(peer["name"]), Syncing.UNKNOWN).value,
        )
        for peer in peers
    )

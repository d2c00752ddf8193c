"""The journal in NATS JetStream.

Each folder is a subject, in one of a few streams. A daemon publishes with the sequence of the
subject's last message, and the stream itself refuses a message whose publisher did not know the
last one: whatever a daemon believes to own, only one can continue a folder.
"""

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from errno import EACCES, EINVAL, ENOENT, ENOSPC
from typing import Any, NamedTuple, TypeVar

from stenod_cluster import limits
from stenod_cluster.facts import (
    ClusterFacts,
    ReplicaFacts,
    ServerFacts,
    StreamFacts,
    Syncing,
)
from stenod_cluster.jetstream import Rejected, api, direct_get, direct_get_batch
from stenod_cluster.journal import (
    REMEDY,
    ForeignMessage,
    ForeignStream,
    InDoubt,
    JournalLost,
    Kind,
    Message,
    Owner,
    Publication,
)
from stenod_cluster.monitors import ask_monitors
from stenod_cluster.nats_connection import (
    Connection,
    NoRespondersError,
    NotConnectedError,
    UnansweredError,
)
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.publishing import Publishing
from stenod_cluster.streams import differences, stream_config
from stenod_cluster.subjects import (
    folder_of,
    is_folder,
    marker_subject,
    shard_of,
    stream_name,
    subject_of,
    subjects_without_folder,
    taken_subject,
    topic_of,
    topic_subject,
)
from stenod_cluster.trust import Known, Request, Trust
from stenod_cluster.verdicts import (
    NO_MESSAGE_FOUND,
    STREAM_NOT_FOUND,
    Again,
    Refused,
    Stored,
    WrongSequence,
    failure_of,
    full,
    verdict_of,
)
from stenod_cluster.wire import EXPECTED, KIND, message_of, owner_headers, sequence_of

T = TypeVar("T")

_CONFIG_DIFFERS = 10058


class NatsJournal:
    """The messages of all folders in the streams of a cluster. Implements `Journal`.

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
        self._trust = trust
        # Of each stream: when it was created, its identity, and the highest sequence that is known.
        self._created: dict[str, str] = {}
        self._identities: dict[str, str] = {}
        self._stored: dict[str, int] = {}
        # Bytes that each stream with a limit has left, as of the last look.
        self._room: dict[str, int] = {}
        # The last note for this host that was read in each stream.
        self._noted: dict[str, int] = {}
        self._suspected_at: float | None = None
        self._look_again = asyncio.Event()
        self._refusal: OSError | None = None
        self._is_prepared = False
        self._setup_trouble = ""
        self._connection = Connection(options, name, self._prepare)
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
            return self._connection.call(self._publish_all(publications))
        except JournalLost as error:
            # It was closed meanwhile, and what had been sent may be stored.
            return [InDoubt(None, str(error.strerror)) for _ in publications]

    async def publish_on_loop(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """The same on the event loop; see `Journal`."""
        return await self._publish_all(publications)

    def stream_of(self, folder: str) -> str:
        """Returns the identity of the stream that has a folder; see `Journal`."""
        stream, _ = self._place(folder)
        if stream not in self._identities:
            self.wait_ready(self._options.publish_s)
        return self._identities[stream]

    def note_taken(self, folder: str, host: str, owner: Owner) -> None:
        """Leave a note for a host that loses a folder; see `Journal`."""
        self._connection.call(self._note_taken(folder, host, owner))

    def taken_from(self, host: str) -> list[Message]:
        """Returns the new notes for a host; see `Journal`."""
        return self._connection.call(self._taken_from(host))

    def confirm(self, folder: str) -> None:
        """Check that a majority of the servers can hear each other; see `Journal`."""
        self._connection.call(self._confirm(folder))

    def last(self, folder: str) -> Message | None:
        """Returns a folder's last message, perhaps an older one; see `Journal`."""
        return self._connection.call(self._last(folder))

    def last_of(self, folders: Sequence[str]) -> list[Message | ForeignMessage | None]:
        """Returns the last message of each of several folders; see `Journal`."""
        return self._connection.call(self._last_of(folders))

    def read(self, folder: str, after: int, last: int) -> Iterator[Message]:
        """Returns a folder's messages from behind `after` up to `last`; see `Journal`."""
        at = after
        while at < last:
            for message in self._connection.call(self._read_batch(folder, at, last)):
                at = message.sequence
                yield message

    def folders(self, above: str | None = None) -> dict[str, int]:
        """Returns the folders with messages, with the number of their messages; see `Journal`."""
        return self._connection.call(self._folders(above))

    def purge(self, folder: str, before: int) -> None:
        """Remove a folder's messages with a sequence below `before`."""
        self._connection.call(self._purge(folder, before))

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
        streams: tuple[StreamFacts, ...] = ()
        with suppress(JournalLost):
            streams = self._connection.call(self._stream_facts(servers))
        connected = self._connection.server or ""
        return ClusterFacts(
            connected=connected,
            trouble="" if connected and self._is_prepared else self._trouble(),
            streams=streams,
            servers=servers,
        )

    def _trouble(self) -> str:
        if self._connection.server is None:
            return self._connection.trouble
        if self._refusal is not None:
            return str(self._refusal.strerror)
        return self._setup_trouble or self._connection.trouble

    async def _stream_facts(self, servers: Sequence[ServerFacts]) -> tuple[StreamFacts, ...]:
        syncing = {server.name: server.syncing for server in servers if server.name}
        shards = range(self._options.streams)
        return tuple(await asyncio.gather(*(self._facts_of(shard, syncing) for shard in shards)))

    async def _facts_of(self, shard: int, syncing: dict[str, Syncing]) -> StreamFacts:
        name = stream_name(self._options.cluster, shard)
        try:
            request = {"subjects_filter": subjects_without_folder(self._options.cluster, shard)}
            info = await api(self._connection, "STREAM.INFO", name, request, limits.MONITOR_S)
        except JournalLost as error:
            return StreamFacts(name, trouble=str(error.strerror))
        except Rejected as error:
            return StreamFacts(name, trouble=str(error.error.get("description")))
        state, config = info["state"], info["config"]
        ours: dict[str, int] = state.get("subjects") or {}
        return StreamFacts(
            name=name,
            replicas=_replicas(info.get("cluster"), syncing),
            wanted=config["num_replicas"],
            folders=state.get("num_subjects", 0) - len(ours),
            messages=state["messages"] - sum(ours.values()),
            size_bytes=state["bytes"],
            size_bytes_max=config.get("max_bytes", -1),
        )

    # --- on the event loop ------------------------------------------------------------------------

    async def _publish_all(self, publications: Sequence[Publication]) -> list[int | OSError]:
        deadline = asyncio.get_running_loop().time() + self._options.publish_s
        if len(publications) == 1:
            return [await self._publish(publications[0], deadline)]
        return list(await asyncio.gather(*(self._publish(each, deadline) for each in publications)))

    async def _publish(self, publication: Publication, deadline: float) -> int | OSError:
        try:
            if not self._is_prepared:
                await self._wait_prepared(deadline - asyncio.get_running_loop().time())
            if publication.is_growth:
                self._check_room(publication)
            found = await Publishing(
                self._connection, self._options, publication, deadline, self._doubted
            ).outcome()
            if isinstance(found, int):
                await self._note_stored(publication, found)
            return found
        except OSError as error:
            return error

    async def _note_stored(self, publication: Publication, sequence: int) -> None:
        """Remember a sequence; the first message of a folder has no fence against another stream.

        Raises:
            ForeignStream: it is in a stream that was made since this daemon looked.
            InDoubt: nobody says which stream it is in.
        """
        stream, _ = self._place(publication.folder)
        if publication.after == 0:
            try:
                found = await api(self._connection, "STREAM.INFO", stream, {}, limits.MONITOR_S)
                if found["created"] != self._created[stream]:
                    self._look_again.set()
                    request = {"seq": sequence}
                    await api(
                        self._connection, "STREAM.MSG.DELETE", stream, request, limits.MONITOR_S
                    )
                    raise _other_stream(stream)
            except ForeignStream:
                raise
            except (JournalLost, Rejected) as error:
                raise InDoubt(None, str(error)) from None
        self._stored[stream] = max(self._stored[stream], sequence)
        if stream in self._room:
            self._room[stream] -= len(publication.body) + limits.MESSAGE_BYTES

    def _note_room(self, stream: str, info: dict[str, Any]) -> None:
        """Note how many bytes records may still take."""
        bytes_max: int = info["config"].get("max_bytes", -1)
        if bytes_max < 0:
            self._room.pop(stream, None)
            return
        reserve = min(limits.RESERVE_BYTES_MAX, bytes_max // limits.RESERVES_MIN)
        self._room[stream] = bytes_max - reserve - info["state"]["bytes"]

    def _check_room(self, publication: Publication) -> None:
        """Raise OSError if a record would take the room that deletions need."""
        stream, _ = self._place(publication.folder)
        room = self._room.get(stream)
        if room is not None and len(publication.body) > room:
            raise OSError(ENOSPC, full(f"{room} bytes are left for records", stream))

    def _doubted(self) -> OSError | None:
        """Look at the streams soon; returns why they are not used, as far as is known."""
        self._look_again.set()
        return self._refusal

    async def _note_taken(self, folder: str, host: str, owner: Owner) -> None:
        cluster, streams = self._options.cluster, self._options.streams
        shard = shard_of(folder, streams)
        stream, subject = stream_name(cluster, shard), taken_subject(cluster, shard, host)
        headers = {KIND: Kind.OWN.value, **owner_headers(owner)}
        body = folder.encode(errors="surrogateescape")

        async def send() -> None:
            reply = await self._connection.request(subject, body, limits.RESEND_S, headers)
            match verdict_of(reply.body, stream):
                case Stored():
                    return
                case Refused() as refused:
                    raise refused.error(folder)
                case Again(reason):
                    raise UnansweredError(reason)
                case WrongSequence():
                    raise UnansweredError(f"{stream} refuses a message that has no fence")

        await self._until_heard(send, self._options.publish_s)

    async def _taken_from(self, host: str) -> list[Message]:
        if not self._is_prepared:
            await self._wait_prepared(limits.MONITOR_S)
        shards = range(self._options.streams)
        found = await asyncio.gather(*(self._taken_in(shard, host) for shard in shards))
        return [message for messages in found for message in messages]

    async def _taken_in(self, shard: int, host: str) -> list[Message]:
        cluster = self._options.cluster
        stream, subject = stream_name(cluster, shard), taken_subject(cluster, shard, host)
        after = self._noted.get(stream, 0)
        last = await self._last_at_leader(stream, subject)
        found: list[Message] = []
        while (at := found[-1].sequence if found else after) < last:
            found += await self._batch_of(stream, subject, host, at, last)
        await self._confirm_stream(stream)
        if found:
            with suppress(JournalLost, Rejected):
                request = {"filter": subject, "keep": 1}
                await api(self._connection, "STREAM.PURGE", stream, request, limits.MONITOR_S)
        self._noted[stream] = max(after, last)
        return found

    async def _last_at_leader(self, stream: str, subject: str) -> int:
        """Returns the sequence of a subject's last message at the leader, 0 if it has none."""
        request = {"last_by_subj": subject}
        try:
            found = await api(self._connection, "STREAM.MSG.GET", stream, request, limits.MONITOR_S)
        except Rejected as error:
            if error.code == NO_MESSAGE_FOUND:
                return 0
            raise _refusal(error, stream) from None
        return int(found["message"]["seq"])

    async def _confirm(self, folder: str) -> None:
        stream, _ = self._place(folder)
        await self._confirm_stream(stream)

    async def _confirm_stream(self, stream: str) -> None:
        try:
            info = await api(self._connection, "STREAM.INFO", stream, {}, limits.MONITOR_S)
        except Rejected as error:
            raise JournalLost(None, str(error.error.get("description"))) from None
        self._note_room(stream, info)
        if info["created"] != self._created.get(stream, info["created"]):
            self._look_again.set()
            raise _other_stream(stream)
        cluster: dict[str, Any] = info.get("cluster") or {}
        others: list[dict[str, Any]] = cluster.get("replicas") or []
        heard = sum(
            not peer.get("offline") and peer.get("active", 0) < limits.PEER_SILENT_S * 1e9
            for peer in others
        )
        # Without a leader a follower answers, and counts itself among the others.
        if others and (not cluster.get("leader") or 2 * (1 + heard) <= 1 + len(others)):
            raise JournalLost(
                None, f"the servers of {stream} are no majority that hears each other"
            )

    async def _last(self, folder: str) -> Message | None:
        stream, subject = self._place(folder)

        async def read() -> Message | None:
            reply = await direct_get(self._connection, stream, {"last_by_subj": subject})
            if reply is not None:
                return message_of(folder, reply.headers, reply.body)
            if await self._leader_has(stream, subject):
                raise UnansweredError(f"the replica that answered lacks {folder!r}")
            return None

        return await self._until_heard(read, self._options.publish_s)

    async def _leader_has(self, stream: str, subject: str) -> bool:
        """Whether the leader has a message of a subject: a replica that lags says there is none."""
        return await self._last_at_leader(stream, subject) > 0

    async def _last_of(self, folders: Sequence[str]) -> list[Message | ForeignMessage | None]:
        found: list[Message | ForeignMessage | None] = []
        for start in range(0, len(folders), limits.READ_TOGETHER_MAX):
            part = folders[start : start + limits.READ_TOGETHER_MAX]
            found += await asyncio.gather(*(self._last_or_foreign(folder) for folder in part))
        return found

    async def _last_or_foreign(self, folder: str) -> Message | ForeignMessage | None:
        try:
            return await self._last(folder)
        except ForeignMessage as error:
            return error

    async def _read_batch(self, folder: str, after: int, last: int) -> list[Message]:
        """Returns the next messages, one at least."""
        stream, subject = self._place(folder)
        return await self._batch_of(stream, subject, folder, after, last)

    async def _batch_of(
        self, stream: str, subject: str, folder: str, after: int, last: int
    ) -> list[Message]:
        request = {
            "seq": after + 1,
            "next_by_subj": subject,
            "batch": limits.READ_BATCH_MESSAGES,
            "max_bytes": limits.READ_BATCH_BYTES,
        }

        async def read() -> list[Message]:
            replies = await direct_get_batch(self._connection, stream, request)
            wanted = [reply for reply in replies if sequence_of(reply.headers) <= last]
            if not wanted:
                raise UnansweredError(f"the replica that answered lacks message {last}")
            return [message_of(folder, reply.headers, reply.body) for reply in wanted]

        return await self._until_heard(read, limits.READ_S)

    async def _until_heard(self, read: Callable[[], Awaitable[T]], wait_s: float) -> T:
        """Read until a replica answers, or raise JournalLost after `wait_s` seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        if not self._is_prepared:
            await self._wait_prepared(wait_s)
        reason = self._connection.trouble
        while (left_s := deadline - clock()) > 0 and not self._connection.is_closed:
            try:
                return await read()
            except NotConnectedError as error:
                reason = str(error)
                await self._connection.wait_connected(left_s)
            except UnansweredError as error:
                reason = str(error)
                await self._connection.check()
            except NoRespondersError:
                reason = "none of the servers that store the folder answers"
            await asyncio.sleep(min(limits.RETRY_S_MAX, left_s))
        raise JournalLost(None, reason)

    async def _folders(self, above: str | None) -> dict[str, int]:
        if above is not None:
            stream, subject = self._place(above)
            return await self._folders_of(stream, f"{subject}.>")
        found: dict[str, int] = {}
        for shard in range(self._options.streams):
            found.update(await self._folders_of(stream_name(self._options.cluster, shard), ">"))
        return found

    async def _folders_of(self, stream: str, subjects: str) -> dict[str, int]:
        found: dict[str, int] = {}
        offset, total = 0, 1
        while offset < total:
            request = {"subjects_filter": subjects, "offset": offset}
            info = await self._ask("STREAM.INFO", stream, request)
            page: dict[str, int] = info["state"].get("subjects") or {}
            found.update(
                {folder_of(each): count for each, count in page.items() if is_folder(each)}
            )
            total = info.get("total", 0)
            offset += len(page)
            if not page:
                break
        return found

    async def _purge(self, folder: str, before: int) -> None:
        stream, subject = self._place(folder)
        await self._ask("STREAM.PURGE", stream, {"filter": subject, "seq": before})
        with suppress(JournalLost):
            await self._confirm_stream(stream)

    async def _ask(self, name: str, stream: str, request: object) -> dict[str, Any]:
        await self._wait_prepared(self._options.publish_s)
        try:
            return await api(self._connection, name, stream, request, self._options.publish_s)
        except Rejected as error:
            raise _refusal(error, stream) from None

    def _place(self, folder: str) -> tuple[str, str]:
        cluster, streams = self._options.cluster, self._options.streams
        subject = subject_of(cluster, streams, folder)
        return stream_name(cluster, shard_of(folder, streams)), subject

    # --- the streams ------------------------------------------------------------------------------

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
        while not self._is_prepared:
            if self._refusal is not None:
                raise _again(self._refusal)
            if clock() >= deadline or self._connection.is_closed:
                raise JournalLost(None, self._trouble())
            await self._connection.wait_connected(deadline - clock())
            await asyncio.sleep(limits.SETUP_POLL_S)

    async def _prepare(self) -> None:
        """Look at the streams, and stay with their leader; cancelled with the connection."""
        # Once it is closed, nothing here waits any more, and the loop would have no other turn.
        while not self._connection.is_closed:
            wait_s = limits.SETUP_RETRY_S
            try:
                leaders = [
                    await self._prepare_stream(shard) for shard in range(self._options.streams)
                ]
                if self._trust.request is not Request.NONE:
                    await asyncio.to_thread(self._trust.end_request)
            except _Suspicion as error:
                self._suspect(error.why)
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
                self._is_prepared = True
                if len(leaders) == 1 and leaders[0]:
                    # From any other server each message goes to this one first.
                    await self._connection.move_to(leaders[0])
                wait_s = limits.LEADER_CHECK_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._look_again.wait()
            # What doubts the stream asks again and again meanwhile.
            await asyncio.sleep(limits.SETUP_POLL_S)
            self._look_again.clear()

    def _refuse(self, error: OSError) -> None:
        self._refusal = error
        self._is_prepared = False

    def _suspect(self, why: str) -> None:
        """Stop publishing at once, and refuse the stream if nothing changes for a while."""
        now = asyncio.get_running_loop().time()
        self._is_prepared = False
        self._setup_trouble = why
        if self._suspected_at is None:
            self._suspected_at = now
        elif now - self._suspected_at > limits.SUSPECT_S:
            self._refuse(ForeignStream(None, f"{why}: {REMEDY}"))

    async def _prepare_stream(self, shard: int) -> str:
        """Returns the name of the server that leads the stream, empty if there is none.

        Raises:
            _Suspicion: the stream lacks what this root knows.
            ForeignStream: it is another one than this root used.
            JournalLost: nobody answered.
            OSError: it is not there, or has other settings.
        """
        name = stream_name(self._options.cluster, shard)
        stored = self._stored.get(name, 0)
        try:
            found = await self._stream_info(name, shard)
        except Rejected as error:
            raise _refusal(error, name) from None
        different = differences(self._options, shard, found["config"])
        if different:
            raise OSError(
                EINVAL,
                f"stream {name} has settings that steno cannot work with: {'; '.join(different)}."
                f" Change it with `nats stream edit {name}`, or choose another"
                " replication.cluster",
            )
        self._note_room(name, found)
        await self._check_known(name, shard, found["created"], found["state"]["last_seq"], stored)
        cluster: dict[str, Any] = found.get("cluster") or {}
        return str(cluster.get("leader", ""))

    async def _stream_info(self, name: str, shard: int) -> dict[str, Any]:
        """Returns what the servers say of a stream, which is created if the operator said so."""
        wait_s = limits.RESEND_S
        try:
            return await api(self._connection, "STREAM.INFO", name, {}, wait_s)
        except Rejected as error:
            if error.code != STREAM_NOT_FOUND:
                raise
        request, known = self._trust.request, self._trust.known(name)
        if known is not None and request is not Request.AGAIN:
            raise _Suspicion(f"the servers have lost stream {name}")
        if request is Request.NONE:
            raise OSError(
                ENOENT,
                f"the servers have no stream {name}: on one host, once, run"
                " `steno cluster join --create`",
            )
        config = stream_config(self._options, shard)
        try:
            return await api(self._connection, "STREAM.CREATE", name, config, wait_s)
        except Rejected as error:
            if error.code != _CONFIG_DIFFERS:
                raise
        # Another daemon or an operator created it meanwhile.
        return await api(self._connection, "STREAM.INFO", name, {}, wait_s)

    async def _check_known(
        self, name: str, shard: int, created: str, last: int, stored: int
    ) -> None:
        """Compare a stream with what this root knows of it, and remember it.

        Args:
            name: its name.
            shard: its number.
            created: when it was created.
            last: its last sequence.
            stored: the highest sequence that this daemon knew before it asked.

        Raises:
            _Suspicion: it lacks what this root knows.
            ForeignStream: it is another one than this root used.
        """
        known, is_again = self._trust.known(name), self._trust.request is Request.AGAIN
        marker = await self._marker(name, shard)
        if known is not None and not is_again:
            self._compare(name, known, created, marker, last, stored)
        elif marker is None or (
            known is not None and known.identity == f"{created} {marker.body}" and last < known.last
        ):
            # A new marker tells the stream after a loss from the one before, on all hosts.
            marker = await self._new_marker(name, shard, marker)
            last = max(last, marker.sequence)
        assert marker is not None
        known = Known(f"{created} {marker.body}", last)
        self._created[name], self._identities[name] = created, known.identity
        self._stored[name] = last if is_again else max(self._stored.get(name, 0), last)
        await asyncio.to_thread(self._trust.accept, name, known)

    def _compare(
        self,
        name: str,
        known: Known,
        created: str,
        marker: "_Marker | None",
        last: int,
        stored: int,
    ) -> None:
        """Raise if a stream is not the one that this root knows, or lacks messages."""
        if known.identity.partition(" ")[0] != created:
            raise _other_stream(name)
        if marker is None:
            raise _Suspicion(f"stream {name} has lost its first message")
        if known.identity != f"{created} {marker.body}":
            raise ForeignStream(
                None, f"another host joined stream {name} again after a loss: {REMEDY}"
            )
        if last < max(stored, known.last):
            raise _Suspicion(
                f"stream {name} has messages up to {last}, and its servers acknowledged"
                f" {max(stored, known.last)}"
            )

    async def _marker(self, name: str, shard: int) -> "_Marker | None":
        """Returns the marker as the stream's leader has it; None if there is none."""
        request = {"last_by_subj": marker_subject(self._options.cluster, shard)}
        try:
            found = await api(self._connection, "STREAM.MSG.GET", name, request, limits.MONITOR_S)
        except Rejected as error:
            if error.code == NO_MESSAGE_FOUND:
                return None
            raise _refusal(error, name) from None
        message = found["message"]
        return _Marker(int(message["seq"]), base64.b64decode(message.get("data", "")).decode())

    async def _new_marker(self, name: str, shard: int, before: "_Marker | None") -> "_Marker":
        """Publish a marker behind the last one; returns the one that the stream has then."""
        subject = marker_subject(self._options.cluster, shard)
        headers = {EXPECTED: str(before.sequence if before else 0)}
        body = secrets.token_hex(16).encode()
        with suppress(NotConnectedError, NoRespondersError, UnansweredError):
            await self._connection.request(subject, body, limits.RESEND_S, headers)
        # Two hosts may do it at the same time: the stream has the marker of one of them.
        found = await self._marker(name, shard)
        if found is None or found == before:
            raise JournalLost(None, f"stream {name} does not take its marker")
        return found


class _Marker(NamedTuple):
    """The message that tells a stream from a copy of it."""

    sequence: int
    body: str


class _Suspicion(Exception):
    """A stream lacks what this root knows, which may pass."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _other_stream(name: str) -> ForeignStream:
    return ForeignStream(
        None, f"stream {name} was made again since this root used it, and is another one: {REMEDY}"
    )


def _again(error: OSError) -> OSError:
    """A new error for each thread that raises it."""
    if isinstance(error, ForeignStream):
        return ForeignStream(None, str(error.strerror))
    return OSError(error.errno, error.strerror)


def _refusal(error: Rejected, stream: str) -> OSError:
    match failure_of(error.error, stream):
        case Refused() as refused:
            return refused.error()
        case passing:
            return OSError(EINVAL, passing.reason)


def _replicas(
    cluster: dict[str, Any] | None, syncing: dict[str, Syncing]
) -> tuple[ReplicaFacts, ...]:
    if cluster is None:
        # A single server that is no cluster.
        names = list(syncing)
        return tuple(
            ReplicaFacts(name, is_leader=True, syncing=syncing[name]) for name in names[:1]
        )
    leader = str(cluster.get("leader", ""))
    found = [
        ReplicaFacts(
            name=str(peer["name"]),
            is_current=bool(peer.get("current")),
            is_offline=bool(peer.get("offline")),
            lag=int(peer.get("lag", 0)),
            syncing=syncing.get(str(peer["name"]), Syncing.UNKNOWN),
        )
        for peer in cluster.get("replicas") or ()
    ]
    if leader:
        state = syncing.get(leader, Syncing.UNKNOWN)
        found.insert(0, ReplicaFacts(leader, is_leader=True, syncing=state))
    return tuple(found)

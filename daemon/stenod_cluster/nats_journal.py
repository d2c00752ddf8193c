"""The journal in NATS JetStream.

Each folder is a subject, in one of a few streams. A daemon publishes with the sequence of the
subject's last message, and the stream itself refuses a message whose publisher did not know the
last one: whatever a daemon believes to own, only one can continue a folder.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from errno import EINVAL
from typing import Any, TypeVar

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
    ForeignMessage,
    InDoubt,
    JournalLost,
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
    shard_of,
    stream_name,
    subject_of,
    topic_of,
    topic_subject,
)
from stenod_cluster.verdicts import NO_MESSAGE_FOUND, STREAM_NOT_FOUND, Refused, failure_of
from stenod_cluster.wire import message_of, owner_headers, sequence_of

T = TypeVar("T")

_CONFIG_DIFFERS = 10058


class NatsJournal:
    """The messages of all folders in the streams of a cluster. Implements `Journal`.

    It connects by itself and for as long as it takes, so that a daemon can start without a server;
    what is asked before fails with the reason. Streams that are missing are created.

    It lives on the event loop that runs when it is made, which has to be that of asyncio.

    Args:
        options: the cluster and its servers.
        name: the name of this client on the servers, such as that of the host.

    Raises:
        OSError: the credentials or certificates that the options name cannot be used.
    """

    def __init__(self, options: ReplicationOptions, name: str) -> None:
        self._options = options
        self._refusal: OSError | None = None
        self._is_prepared = False
        self._setup_trouble = ""
        self._connection = Connection(options, name, self._prepare)
        self._connection.begin()

    def wait_ready(self, wait_s: float) -> None:
        """Wait until the streams of the cluster can be used.

        Raises:
            JournalLost: no server was reached, or they have no leader, within `wait_s` seconds.
            OSError: a stream has other settings, or the servers refuse to create it.
        """
        self._connection.call(self._wait_prepared(wait_s))

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
            info = await api(self._connection, "STREAM.INFO", name, {}, limits.MONITOR_S)
        except JournalLost as error:
            return StreamFacts(name, trouble=str(error.strerror))
        except Rejected as error:
            return StreamFacts(name, trouble=str(error.error.get("description")))
        state, config = info["state"], info["config"]
        return StreamFacts(
            name=name,
            replicas=_replicas(info.get("cluster"), syncing),
            wanted=config["num_replicas"],
            folders=state.get("num_subjects", 0),
            messages=state["messages"],
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
            return await Publishing(
                self._connection, self._options, publication, deadline
            ).outcome()
        except OSError as error:
            return error

    async def _confirm(self, folder: str) -> None:
        stream, _ = self._place(folder)
        try:
            info = await api(self._connection, "STREAM.INFO", stream, {}, limits.MONITOR_S)
        except Rejected as error:
            raise JournalLost(None, str(error.error.get("description"))) from None
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
        request = {"last_by_subj": subject}
        try:
            await api(self._connection, "STREAM.MSG.GET", stream, request, limits.MONITOR_S)
        except Rejected as error:
            if error.code == NO_MESSAGE_FOUND:
                return False
            raise _refusal(error, stream) from None
        return True

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
            found.update({folder_of(subject): count for subject, count in page.items()})
            total = info.get("total", 0)
            offset += len(page)
            if not page:
                break
        return found

    async def _purge(self, folder: str, before: int) -> None:
        stream, subject = self._place(folder)
        await self._ask("STREAM.PURGE", stream, {"filter": subject, "seq": before})

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

    async def _wait_prepared(self, wait_s: float) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        while not self._is_prepared:
            if self._refusal is not None:
                raise OSError(self._refusal.errno, self._refusal.strerror)
            if clock() >= deadline or self._connection.is_closed:
                raise JournalLost(None, self._trouble())
            await self._connection.wait_connected(deadline - clock())
            await asyncio.sleep(limits.SETUP_POLL_S)

    async def _prepare(self) -> None:
        """Find or create the streams, and stay with their leader; cancelled with the connection."""
        # Once it is closed, nothing here waits any more, and the loop would have no other turn.
        while not self._connection.is_closed:
            try:
                leaders = [
                    await self._prepare_stream(shard) for shard in range(self._options.streams)
                ]
            except JournalLost as error:
                self._setup_trouble = str(error.strerror)
            except OSError as error:
                self._refusal = error
                # The operator may correct it while the daemon runs.
                self._is_prepared = False
                await asyncio.sleep(limits.SETUP_RETRY_S)
            else:
                self._refusal = None
                self._setup_trouble = ""
                self._is_prepared = True
                if len(leaders) == 1 and leaders[0]:
                    # From any other server each message goes to this one first.
                    await self._connection.move_to(leaders[0])
                await asyncio.sleep(limits.LEADER_CHECK_S)

    async def _prepare_stream(self, shard: int) -> str:
        """Returns the name of the server that leads the stream, empty if there is none."""
        name = stream_name(self._options.cluster, shard)
        config = stream_config(self._options, shard)
        try:
            found = await self._stream_or_new(name, config)
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
        cluster: dict[str, Any] = found.get("cluster") or {}
        return str(cluster.get("leader", ""))

    async def _stream_or_new(self, name: str, config: dict[str, Any]) -> dict[str, Any]:
        wait_s = limits.RESEND_S
        try:
            return await api(self._connection, "STREAM.INFO", name, {}, wait_s)
        except Rejected as error:
            if error.code != STREAM_NOT_FOUND:
                raise
        try:
            return await api(self._connection, "STREAM.CREATE", name, config, wait_s)
        except Rejected as error:
            if error.code != _CONFIG_DIFFERS:
                raise
        # Another daemon or an operator created it meanwhile.
        return await api(self._connection, "STREAM.INFO", name, {}, wait_s)


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

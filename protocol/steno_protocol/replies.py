"""Replies of the daemon, tagged by the field `kind`.

PROTOCOL.md describes all fields (section 11); those of what methods of the library return are
described here, too, for the reader of the library.
"""

from typing import Literal

import msgspec

from steno_protocol.errors import (
    ErrorCode,
    Held,
    Incompatible,
    Outcome,
    StenoError,
    error_from_reply,
)
from steno_protocol.timeline_entries import TimelineEntry


class RepairedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The repair of the end of one file, when the daemon opened it."""

    session: str
    file: str
    offset: int
    bytes: int = 0
    kept_in: str = ""
    why: str = ""


class Reply(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=str.lower
):
    """Any reply.

    Attributes:
        stale: the daemon could not ask its cluster whether another daemon has changed the session
            since; False outside a cluster.
        repaired: the repairs of the session's files that no reply has named before.
    """

    stale: bool = False
    repaired: tuple[RepairedFile, ...] = ()


class Welcome(Reply, frozen=True, kw_only=True):
    """The reply to `hello`: the daemon's identity and limits.

    Attributes:
        version: the version of steno.
        protocol: the version of the protocol.
        pid: the daemon's process id.
        root: its root.
        started_at: Unix time of its start, in seconds.
        clock_ms: its monotonic clock, which deadlines refer to.
        limits: the limits of a request by name.
    """

    version: str
    protocol: int
    pid: int
    root: str
    started_at: float
    clock_ms: int
    limits: dict[str, int]


class StatusReport(Reply, frozen=True, kw_only=True, tag="status"):
    """The reply to `status`.

    Attributes:
        version: the version of steno.
        protocol: the version of the protocol.
        pid: the daemon's process id.
        root: its root.
        endpoint: its address on this machine.
        remote_endpoint: its address for other machines; None without one.
        uptime_s: seconds since its start.
        mounts: the folders of the mounts by name.
        sessions_open: the number of sessions with open files.
        clients: the number of connected clients.
        queued: the number of commands in all queues.
        appended_records: the number of records appended since the start.
        syncs: the number of syncs since the start.
        sync_s: seconds that these syncs took together.
        slowest_sync_s: seconds of the slowest one.
        dropped: the number of messages dropped because clients did not receive them.
        ignored: the number of invalid messages.
        draining: the daemon is finishing its queue before it ends.
        slow_sync_at: Unix time of the last slow sync; None if there was none.
    """

    version: str
    protocol: int
    pid: int
    root: str
    endpoint: str
    remote_endpoint: str | None = None
    uptime_s: float
    mounts: dict[str, str]
    sessions_open: int
    clients: int
    queued: int
    appended_records: int
    syncs: int
    sync_s: float
    slowest_sync_s: float
    dropped: int
    ignored: int = 0
    draining: bool = False
    slow_sync_at: float | None = None


class HistogramReport(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram."""

    bounds: list[float]
    counts: list[int]
    total: float


class OpenSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counters of one open session, which start at 0 whenever its files are opened."""

    session: str
    appended_records: int = 0
    appended_bytes: int = 0
    queued: int = 0
    writers: int = 0
    idle_s: float = 0.0
    by: str | None = None


class StatsReport(Reply, frozen=True, kw_only=True, tag="stats"):
    """The reply to `stats`: the daemon's counters since its start, and its present load."""

    uptime_s: float
    appended_records: int
    appended_bytes: int
    groups: HistogramReport
    sync_s: HistogramReport
    slow_syncs: int
    rewrites: dict[str, int]
    errors: dict[str, int]
    failed_at: dict[str, float] = {}
    dropped: int
    lagged: int
    ignored: int
    turned_away: int = 0
    queued: int
    queued_most: int
    queued_bytes: int
    sessions_open: int
    clients: int
    subscribers: int
    open_files: int
    resident_bytes: int
    sessions: tuple[OpenSession, ...] = ()


class OptionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One option of the configuration in force."""

    name: str
    value: bool | int | float | str | tuple[str, ...]
    source: str
    live: bool = True


class ConfigurationReport(Reply, frozen=True, kw_only=True, tag="configuration"):
    """The reply to `configuration`."""

    options: list[OptionEntry]


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session of a list.

    Attributes:
        session: its id.
        bytes: the size of its context.
        modified_at: Unix time of the last change of its context or of a stream.
        generations: the number of its past generations.
        title: its title, empty for none.
        labels: its labels.
        archived: whether it is archived.
        forked_from: the id of the session that it was forked from.
        work_dir: kimi-cli's work directory of the session; empty if unknown.
        last_in_work_dir: kimi-cli recorded it as the last session used there.
        live: a client follows it, or changed it within the last `LIVE_S` seconds.
        records: the number of its records; None if it was not asked for or is not known quickly.
        owner: the address of the daemon of the cluster that owns it; None if this one does. The
            other fields are then as this daemon last saw them.
    """

    session: str
    bytes: int
    modified_at: float
    generations: int
    title: str = ""
    labels: tuple[str, ...] = ()
    archived: bool = False
    forked_from: str | None = None
    work_dir: str = ""
    last_in_work_dir: bool = False
    live: bool = False
    records: int | None = None
    owner: str | None = None


class Sessions(Reply, frozen=True, kw_only=True):
    """The reply to `list`."""

    sessions: list[SessionEntry]
    more: bool = False
    without_context: tuple[str, ...] = ()
    flat: tuple[SessionEntry, ...] = ()


class SessionStat(Reply, frozen=True, kw_only=True, tag="stat"):
    """The reply to `stat` and `open`: a session's numbers at its head.

    Attributes:
        session: its id.
        head: the end of its context, as text.
        bytes: the size of its context.
        generation: the number of the present generation.
        token_count: the last token count, 0 before the first.
        token_count_with_pending: the token count plus an estimate for later messages.
        n_checkpoints: the id of the next checkpoint.
        has_system_prompt: whether it has a system prompt.
        created: this `open` created the session.
        stamp: its lines get `_id` and `_by`.
        incarnation: another one after the session was deleted and created again.
        folder: the path of its folder.
        open: the daemon has its files open.
        title: its title, empty for none.
        labels: its labels.
        archived: whether it is archived.
        forked_from: the id of the session that it was forked from.
    """

    session: str
    head: str
    bytes: int
    generation: int
    token_count: int
    token_count_with_pending: int
    n_checkpoints: int
    has_system_prompt: bool
    created: bool = False
    stamp: bool = True
    incarnation: str = ""
    folder: str = ""
    open: bool = False
    title: str = ""
    labels: tuple[str, ...] = ()
    archived: bool = False
    forked_from: str | None = None


class Ack(Reply, frozen=True, kw_only=True):
    """The reply to a mutation."""

    first: str
    last: str
    head: str
    durability: Literal["synced", "written", "replicated"] = "synced"
    duplicate: bool = False
    checkpoint_id: int | None = None
    rotated: str | None = None
    overtaken: bool = False
    checkpoint_at: str | None = None
    incarnation: str | None = None


class Compaction(Reply, frozen=True, kw_only=True):
    """The reply to `compact_begin`."""

    at: str
    cut: str
    messages: int = 0
    why: str | None = None
    checkpoint_id: int = 0
    lease_ms: int = 0
    incarnation: str = ""


class Mail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A D-Mail."""

    id: str
    checkpoint_id: int
    message: str
    cursor: str
    by: str | None = None
    at: float = 0.0


class MailReport(Reply, frozen=True, kw_only=True, tag="mail"):
    """The reply to `pending_dmail`: the pending one, or None."""

    mail: Mail | None = None


class Deleted(Reply, frozen=True, kw_only=True):
    """The reply to `delete`."""

    trash: str
    expires_at: float


class StreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a session."""

    stream: str
    head: str
    records: int
    bytes: int
    modified_at: float


class StreamList(Reply, frozen=True, kw_only=True, tag="streams"):
    """The reply to `streams`, ordered by name."""

    streams: list[StreamEntry]


class TrashEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One deleted session.

    Attributes:
        session: its id, of a long one the first 128 characters.
        trash: the path of its folder in the trash.
        bytes: the size of its context.
        deleted_at: Unix time of its deletion, in seconds.
        expires_at: Unix time after which its files may be removed.
        title: its title, empty for none.
    """

    session: str
    trash: str
    bytes: int
    deleted_at: float
    expires_at: float
    title: str = ""


class TrashReport(Reply, frozen=True, kw_only=True, tag="trash"):
    """The reply to `trash`, the latest deletion first; `more` means that the limit cut the list."""

    entries: list[TrashEntry]
    more: bool = False


class ClusterHost(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon of a cluster.

    Attributes:
        host: the identity of its root.
        endpoint: where clients reach it.
        heard_s: seconds since it was last heard; 0 for the daemon that replies.
        alive: it was heard recently enough, so that nobody succeeds it.
    """

    host: str
    endpoint: str
    heard_s: float
    alive: bool


class ClusterReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A server that stores a stream of the journal.

    Attributes:
        name: its name.
        leader: it takes the messages.
        current: it has all that the leader has.
        offline: the leader does not hear it.
        lag: messages that it lacks.
        syncing: `always` if it syncs before it answers, `lazy` if later, `unknown` if nobody could
            ask it.
    """

    name: str
    leader: bool = False
    current: bool = True
    offline: bool = False
    lag: int = 0
    syncing: str = "unknown"


class ClusterStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of the journal.

    Attributes:
        name: its name.
        replicas: the servers that store it, the leader first.
        sessions: sessions with messages in it.
        messages: its messages.
        bytes: bytes of its messages.
        bytes_max: bytes that it may have; -1 for as many as the servers have.
        trouble: why nobody answered for it, empty if somebody did.
    """

    name: str
    replicas: tuple[ClusterReplica, ...] = ()
    sessions: int = 0
    messages: int = 0
    bytes: int = 0
    bytes_max: int = -1
    trouble: str = ""


class ClusterSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a cluster.

    Attributes:
        session: its id.
        host: the identity of its owner's root; empty if its last message is another program's.
        endpoint: where clients reach its owner, or reached it; empty as `host`.
        changed_at: Unix time in seconds of its last message; 0 as `host` is empty.
        messages: its messages in the journal.
        trouble: why this daemon cannot serve it, or what an operator has to do about records that
            differ from those of the cluster; empty if all is well.
    """

    session: str
    host: str
    endpoint: str
    changed_at: float
    messages: int
    trouble: str = ""


class ClusterReport(Reply, frozen=True, kw_only=True, tag="cluster"):
    """The reply to `cluster`.

    Attributes:
        cluster: its name; empty if the daemon is in none.
        host: the identity of this daemon's root.
        endpoint: where clients of other machines reach this daemon.
        hosts: the daemons, this one first.
        server: the server of the journal that it is connected to, empty if it is to none.
        trouble: why it is not connected, or what failed last.
        broken_promises: why an ack does not survive the loss of a server, each with what to do;
            empty if it does.
        streams: the streams of the journal.
        owned: sessions that this daemon owns.
        takeovers: sessions that it took over from other daemons since it started.
        last_takeover: the last of these.
        last_takeover_at: Unix time in seconds of that.
        last_takeover_s: seconds that it took.
        fenced: commits that the journal refused since it started, because another daemon owned the
            session.
        in_doubt: commits without an answer in time since it started.
        sessions: the sessions that were asked for, in order of their ids.
        more: the limit cut the list.
    """

    cluster: str = ""
    host: str = ""
    endpoint: str = ""
    hosts: tuple[ClusterHost, ...] = ()
    server: str = ""
    trouble: str = ""
    broken_promises: tuple[str, ...] = ()
    streams: tuple[ClusterStream, ...] = ()
    owned: int = 0
    takeovers: int = 0
    last_takeover: str | None = None
    last_takeover_at: float | None = None
    last_takeover_s: float | None = None
    fenced: int = 0
    in_doubt: int = 0
    sessions: tuple[ClusterSession, ...] = ()
    more: bool = False


class Moved(Reply, frozen=True, kw_only=True):
    """The reply to `rename` and `undelete`.

    Attributes:
        session: the id of the session now.
        folder: the path of its folder.
    """

    session: str
    folder: str


class CheckedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A checked file.

    Attributes:
        file: its name in the session's folder.
        bytes: its size.
        lines: the number of its lines.
        records: the number of records among them.
        crc: its CRC-32.
    """

    file: str
    bytes: int
    lines: int
    records: int
    crc: int


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finding of a check.

    Attributes:
        file: the file.
        kind: the kind of finding, see PROTOCOL.md.
        what: its description.
        damage: data is lost or unreadable for some readers; otherwise the finding is a note.
        offset: the offset of its first byte.
        bytes: its size.
        line: number of its first line, counted from 1 as editors do; 0 for a whole file.
        records: whole records inside it.
        remedy: its remedy: `cut`, `split` and `end` by a repair, `opening` when the session is next
            opened for writing, `replace` by `describe` with `replace_damaged`.
    """

    file: str
    kind: str
    what: str
    damage: bool = True
    offset: int = 0
    bytes: int = 0
    line: int = 0
    records: int = 0
    remedy: str = "none"


class Verification(Reply, frozen=True, kw_only=True):
    """The reply to `verify`.

    Attributes:
        session: the session; None for a file or folder that no daemon owns.
        generation: its present generation.
        files: the checked files.
        findings: the findings, the first `FINDINGS_LISTED_MAX` of them.
        damage: the number of findings that are damage, listed or not.
        notes: the number of the others.
    """

    session: str | None
    generation: int
    files: list[CheckedFile]
    findings: list[CheckFinding]
    damage: int
    notes: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The file that contains the lines, for a reader on the daemon's machine."""

    path: str
    identity: str
    size: int


class Lines(Reply, frozen=True, kw_only=True):
    """The reply to `read`, with a block of whole lines."""

    first: str
    next: str
    head: str | None = None
    offset: int
    skipped: int = 0
    source: Source | None = None
    present: bool = False


class TimelineReport(Reply, frozen=True, kw_only=True, tag="timeline"):
    """The reply to `timeline`, oldest first."""

    entries: list[TimelineEntry]


class Subscribed(Reply, frozen=True, kw_only=True):
    """The reply to `subscribe`: events with the same request id follow."""

    head: str
    incarnation: str
    checkpoint_floor: int = 0


class ClientEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One connected client.

    Attributes:
        name: the name that it claims, None before its hello.
        key: the name of its key; None for a client on the daemon's machine.
        pid: its process id.
        connected_s: seconds since it connected.
        requests: the number of its requests.
        dropped: the number of messages to it that were dropped.
        subscriptions: the ids of the sessions that it follows.
        connection: the number of its connection, which no other one of the daemon has.
    """

    name: str | None = None
    key: str | None = None
    pid: int | None = None
    connected_s: float = 0.0
    requests: int = 0
    dropped: int = 0
    subscriptions: list[str] = []
    connection: int = 0


class ClientsReport(Reply, frozen=True, kw_only=True, tag="clients"):
    """The reply to `clients`.

    Attributes:
        clients: the connected clients; only followers of the session if one was named.
        queued: queued commands of that session.
        last_sync_at: Unix time of its last sync, None if there was none since it was opened.
        last_error: its last error.
    """

    clients: list[ClientEntry]
    queued: int = 0
    last_sync_at: float | None = None
    last_error: str | None = None


class GarbageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One removed file, or with `dry_run` one to be removed."""

    session: str
    file: str
    bytes: int
    rule: str = ""
    trashed: bool = False
    compressed: bool = False


class GcReport(Reply, frozen=True, kw_only=True, tag="gc"):
    """The reply to `gc`."""

    entries: list[GarbageEntry]
    files: int
    bytes: int
    sessions: int = 0
    compressed: int = 0
    failed: list[str] = []
    dry_run: bool = False


class Done(Reply, frozen=True, kw_only=True):
    """The reply of success without contents."""


class Joined(Reply, frozen=True, kw_only=True):
    """The reply to `join`.

    Attributes:
        left: sessions that need more, such as one whose id the cluster has: any command that reads
            one of them brings it into the cluster, or is refused with the reason.
    """

    left: list[str]


class ErrorReply(Reply, frozen=True, kw_only=True, tag="error"):
    """The reply to a request that was refused or failed."""

    code: ErrorCode
    message: str
    outcome: Outcome = Outcome.NOT_APPLIED
    session: str | None = None
    head: str | None = None
    endpoint: str | None = None
    protocol: int | None = None

    def exception(self, key: str | None = None) -> StenoError:
        """Return the exception that the daemon raised; `key` is the key of the failed command."""
        return error_from_reply(
            self.code,
            self.message,
            self.outcome,
            session=self.session,
            head=self.head,
            key=key,
            endpoint=self.endpoint,
        )

    @classmethod
    def of(cls, error: StenoError, session: str | None = None) -> "ErrorReply":
        """Return the reply for `error`."""
        return cls(
            code=error.code or ErrorCode.INTERNAL,
            message=error.message,
            outcome=error.outcome,
            session=error.session if error.session is not None else session,
            head=error.head,
            endpoint=error.endpoint if isinstance(error, Held) else None,
            protocol=error.protocol if isinstance(error, Incompatible) else None,
        )


AnyReply = (
    Welcome | StatusReport | Sessions | SessionStat | Ack | Lines | TimelineReport | Subscribed
    | StatsReport | ConfigurationReport | GcReport
    | ClientsReport | Done | ErrorReply | Compaction | MailReport | Deleted | Verification
    | StreamList
    | TrashReport | Moved | ClusterReport | Joined
)  # fmt: skip

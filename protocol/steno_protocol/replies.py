"""Replies of the daemon: one frozen struct per kind, tagged by the field `kind`."""

from typing import Literal

import msgspec

from steno_protocol.errors import ErrorCode, Outcome, StenoError, error_from_reply
from steno_protocol.timeline_entries import TimelineEntry


class Reply(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=str.lower
):
    """Any reply."""


class Welcome(Reply, frozen=True, kw_only=True):
    """The reply to `hello`: the daemon's identity and limits.

    Attributes:
    """

    version: str
    protocol: int
    pid: int
    root: str
    started_at: float
    clock_ms: int
    limits: dict[str, int]


class StatusReport(Reply, frozen=True, kw_only=True, tag="status"):
    """The answer to `status`."""

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
    """How often values fell into which bucket.

    Attributes:
        bounds: the upper end of each bucket, which belongs to it.
        counts: how many fell into each; one more than bounds, for what is above the last.
        total: the sum of all values.
    """

    bounds: list[float]
    counts: list[int]
    total: float


class StatsReport(Reply, frozen=True, kw_only=True, tag="stats"):
    """The answer to `stats`: what the daemon did since it started, and what it holds now.

    Attributes:
        appended_records: lines that were stored and acknowledged.
        groups: commands of each group commit.
        sync_s: how long each sync took.
        rewrites: by kind.
        errors: by code.
        turned_away: connections that were ended because no file handle was left for them.
        queued_most: commands that wait for the busiest writer.
    """

    uptime_s: float
    appended_records: int
    appended_bytes: int
    groups: HistogramReport
    sync_s: HistogramReport
    slow_syncs: int
    rewrites: dict[str, int]
    errors: dict[str, int]
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


class OptionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One option of the configuration in force.

    Attributes:
        source: `default`, `environment VARIABLE`, or the path of the file.
        live: a new value is taken over while the daemon runs.
    """

    name: str
    value: int | float | str
    source: str
    live: bool = True


class ConfigurationReport(Reply, frozen=True, kw_only=True, tag="configuration"):
    """The answer to `configuration`."""

    options: list[OptionEntry]


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session of a list; title, labels and whether it is archived as `describe` set them.

    Attributes:
        work_dir: the work directory that kimi-cli had the session for; empty where not known.
        last_in_work_dir: kimi-cli noted it as the last one that was used there.
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


class Sessions(Reply, frozen=True, kw_only=True):
    """The answer to `list`; `more` when the limit cut it.

    Attributes:
        without_context: ids of what has older generations and no present one, up to the last of
            `sessions` when there are more.
        flat: sessions that are one file `<uuid>.jsonl` in kimi-cli's old format, up to the same id;
            no command but `list` knows them.
    """

    sessions: list[SessionEntry]
    more: bool = False
    without_context: tuple[str, ...] = ()
    flat: tuple[SessionEntry, ...] = ()


class SessionStat(Reply, frozen=True, kw_only=True, tag="stat"):
    """The answer to `stat` and `open`: a session's numbers at its head."""

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
    """The answer to a mutation.

    Attributes:
        first: cursor of the command's first record; the new head for a rewrite.
        last: cursor of its last record; the new head for a rewrite.
        head: the session's head right after the command.
        durability: what was reached.
        duplicate: the command had been applied before; this is its first answer.
        checkpoint_id: the id of the checkpoint that was set, or that a D-Mail goes back to.
        rotated: for a rewrite, the path of the file that holds what was left behind.
        overtaken: a foreign program's lines came between `expect` and the command's own.
    """

    first: str
    last: str
    head: str
    durability: Literal["synced", "written"] = "synced"
    duplicate: bool = False
    checkpoint_id: int | None = None
    rotated: str | None = None
    overtaken: bool = False


class Compaction(Reply, frozen=True, kw_only=True):
    """The answer to `compact_begin`.

    Attributes:
        messages: how many messages the summary is to replace; 0 is nothing to do, and no lease.
        why: why there is nothing to do.
        at: where the session ends now.
        cut: where the lines to summarise end; they begin with the generation.
        checkpoint_id: the id that the compaction's own checkpoint will get.
        lease_ms: remaining time of the lease; `compact_begin` renews it.
        incarnation: which making of the session `at` and `cut` are positions of.
    """

    at: str
    cut: str
    messages: int = 0
    why: str | None = None
    checkpoint_id: int = 0
    lease_ms: int = 0
    incarnation: str = ""


class Mail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A D-Mail.

    Attributes:
        id: the key of the command that sent it.
        checkpoint_id: the checkpoint that it goes back to.
        cursor: where that checkpoint's line lies; ids are reused, cursors are not.
        at: when it was sent, Unix time in seconds.
    """

    id: str
    checkpoint_id: int
    message: str
    cursor: str
    by: str | None = None
    at: float = 0.0


class MailReport(Reply, frozen=True, kw_only=True, tag="mail"):
    """The answer to `pending_dmail`: the one that waits, or None."""

    mail: Mail | None = None


class Deleted(Reply, frozen=True, kw_only=True):
    """The answer to `delete`.

    Attributes:
        trash: the folder that the session's files lie in now.
        expires_at: Unix time in seconds from which on they may be removed.
    """

    trash: str
    expires_at: float


class CheckedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was looked into: its bytes, lines, records among them, and its CRC-32."""

    file: str
    bytes: int
    lines: int
    records: int
    crc: int


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a check found.

    Attributes:
        file: in which file.
        kind: what kind of thing it is, see PROTOCOL.md.
        what: a sentence about it.
        damage: data is lost or not readable for every reader; otherwise the finding is a note.
        offset: where it begins.
        bytes: how far it reaches.
        line: number of its first line, counted from 1 as editors do; 0 for a whole file.
        records: whole records that lie in it.
        remedy: what is done about it: `cut`, `split` and `end` by a repair, `opening` when the
            session is next opened for writing, `replace` by `describe` with `replace_damaged`.
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
    """The answer to `verify`.

    Attributes:
        session: which session; None for a file or folder that no daemon owns.
        generation: its present generation.
        files: what was looked into.
        findings: what was found, the first of it when it is very much.
        damage: how many findings are damage, listed or not.
        notes: how many are not.
    """

    session: str | None
    generation: int
    files: list[CheckedFile]
    findings: list[CheckFinding]
    damage: int
    notes: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The file that lines lie in, for a reader on the daemon's machine.

    Attributes:
        path: where it lay when the reply was made; a rewrite gives it another name.
        identity: identifies the file, see `paths.file_identity`.
        size: how many of its bytes may be read: whole lines, durable, never changed again.
    """

    path: str
    identity: str
    size: int


class Lines(Reply, frozen=True, kw_only=True):
    """The answer to `read`; one frame follows, a block of whole lines.

    Attributes:
        first: position of the block's first line.
        next: position after its last line: where to go on.
        head: the end of that generation, if it is known: of a past generation, or of a session
            that is not open, only when the block reaches it.
        offset: byte offset of `next`, a hint for the next read.
        skipped: lines longer than the reader can be given, passed over at `first`.
        source: the file, when more of it may be read and the reader may do so by itself.
    """

    first: str
    next: str
    head: str | None = None
    offset: int
    skipped: int = 0
    source: Source | None = None


class TimelineReport(Reply, frozen=True, kw_only=True, tag="timeline"):
    """The answer to `timeline`, oldest first."""

    entries: list[TimelineEntry]


class Subscribed(Reply, frozen=True, kw_only=True):
    """The answer to `subscribe`: events with the same request id follow.

    Attributes:
        checkpoint_floor: ids below it were assigned before this generation's lines.
    """

    head: str
    incarnation: str
    checkpoint_floor: int = 0


class ClientEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One connected client."""

    name: str | None = None
    pid: int | None = None
    connected_s: float = 0.0
    requests: int = 0
    dropped: int = 0
    subscriptions: list[str] = []


class ClientsReport(Reply, frozen=True, kw_only=True, tag="clients"):
    """The answer to `clients`.

    Attributes:
        clients: the connected clients; only followers of the session if one was named.
        queued: commands that wait for that session's writers.
        last_sync_at: Unix time of its last sync, None if there was none since it was opened.
        last_error: what went wrong there last.
    """

    clients: list[ClientEntry]
    queued: int = 0
    last_sync_at: float | None = None
    last_error: str | None = None


class GarbageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file that went, or would.

    Attributes:
        session: its session; empty for the trash.
        file: its name in the session's folder; in the trash the path of a folder.
        bytes: what that frees; 0 while a fork has the same file.
    """

    session: str
    file: str
    bytes: int


class GcReport(Reply, frozen=True, kw_only=True, tag="gc"):
    """The answer to `gc`.

    Attributes:
        entries: what went, the first thousand.
        files: how many it was.
        bytes: what it freed.
        failed: sessions, and folders of the trash, that were left as they are, and why.
        dry_run: nothing went; this is what would.
    """

    entries: list[GarbageEntry]
    files: int
    bytes: int
    failed: list[str] = []
    dry_run: bool = False


class Done(Reply, frozen=True, kw_only=True):
    """The reply without further contents."""


class ErrorReply(Reply, frozen=True, kw_only=True, tag="error"):
    """The answer to a request that was refused or failed."""

    code: ErrorCode
    message: str
    outcome: Outcome = Outcome.NOT_APPLIED
    session: str | None = None
    head: str | None = None

    def exception(self, key: str | None = None) -> StenoError:
        """The exception that the daemon raised; `key` is that of the command that met it."""
        return error_from_reply(
            self.code, self.message, self.outcome, session=self.session, head=self.head, key=key
        )

    @classmethod
    def of(cls, error: StenoError, session: str | None = None) -> "ErrorReply":
        """The reply for `error`."""
        return cls(
            code=error.code or ErrorCode.INTERNAL,
            message=error.message,
            outcome=error.outcome,
            session=error.session if error.session is not None else session,
            head=error.head,
        )


AnyReply = (
    Welcome | StatusReport | Sessions | SessionStat | Ack | Lines | TimelineReport | Subscribed
    | StatsReport | ConfigurationReport | GcReport
    | ClientsReport | Done | ErrorReply | Compaction | MailReport | Deleted | Verification
)  # fmt: skip

"""How files are opened, and what an open file is."""

import msgspec

from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import RepairedFile
from stenod.core.machine import FileMachine
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.jsonl import JsonlLog


class OpenOptions(msgspec.Struct, frozen=True):
    """The options of one opening.

    Attributes:
        create: create the session if there is none.
        stamp: True if a new session's lines get an `_id`.
        by: the client that opens the session.
        claim: the name that it claims, if it is on another machine.
        key: the idempotency key of its command.
        proven: the durable bytes of the file when a sync of it failed in this process; None if no
            sync failed.
        changed_while_open: another program changed the files while they were open in this process.
        to_follow: a missing stream or wire file is not created: its first record creates it.
    """

    create: bool = False
    stamp: bool = True
    by: str | None = None
    claim: str | None = None
    key: str | None = None
    proven: int | None = None
    changed_while_open: bool = False
    to_follow: bool = False


class NoFileYet(NotFound):
    """The file of a stream or of events does not exist, and its follower does not create it.

    Attributes:
        first: the position of the file's first record.
        incarnation: the session's incarnation.
    """

    def __init__(self, opening: "Opening", first: Position, incarnation: str) -> None:
        super().__init__("the file has no record yet", session=opening.session)
        self.first = first
        self.incarnation = incarnation


class Opening(OpenOptions, frozen=True, kw_only=True):
    """One opening of a session.

    Attributes:
        session: the session's id, for messages.
        path: the path of its folder, for messages and replies.
        now: Unix time in seconds.
        incarnation: the incarnation of a new session.
        shared: other programs write in this folder too, so a recent half line may be theirs.
        failed_syncs: the files with a failed sync in this process, by any handle.
    """

    session: str
    path: str
    now: float
    incarnation: str
    shared: bool = False
    failed_syncs: FailedSyncs = msgspec.field(default_factory=FailedSyncs)


class Opened(msgspec.Struct, frozen=True):
    """A session's file that is open for its writer.

    Attributes:
        log: the open files.
        machine: the replayed state.
        incarnation: the session's incarnation.
        created: this opening created the session.
        made_by_key: the idempotency key of the command that created the session, if it had one.
        repaired: the repairs of the file's end that this opening made.
    """

    log: JsonlLog
    machine: FileMachine
    incarnation: str
    created: bool
    made_by_key: str | None = None
    repaired: tuple[RepairedFile, ...] = ()

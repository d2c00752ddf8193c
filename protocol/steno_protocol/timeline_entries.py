"""Entries of a timeline: kinds and their details.

    {"kind":"reverted","generation":3,"kept":120,"at":1764000000.5,"by":"planner","key":"0199...",
     "details":{"checkpoint_id":2,"from":2,"lines":120,"old_lines":241,"old":[81022,1822301],
                "new":[40511,9918217]}}

An unknown kind comes from a later version: readers show its name and draw no conclusion from it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a timeline.

    Attributes:
        kind: one of the kinds below.
        generation: the generation that it led to.
        kept: the number of first lines of the previous generation that this one begins with.
        at: Unix time in seconds.
        by: the client that sent the command.
        claim: the name that a client on another machine claimed; `by` is that of its key.
        why: the client's reason.
        key: the command's idempotency key.
        details: the details of this kind, which PROTOCOL.md defines.
        inferred: another program made the change; it is inferred from the files.
    """

    kind: str
    generation: int
    kept: int = 0
    at: float = 0.0
    by: str | None = None
    claim: str | None = None
    why: str | None = None
    key: str | None = None
    details: dict[str, Any] = {}
    inferred: bool = False


CREATED: Final = "created"
"""The session was created."""

ADOPTED: Final = "adopted"
"""The daemon first opened a session that another program had created."""

FORKED: Final = "forked"
"""The session was forked from another one, with its earlier rewrites.

Its `checkpoint_id` is the checkpoint before which it was forked, and the next id to assign where
ids are assigned again. Its `origins` are the incarnations that share its first lines, each with the
position up to which they do, the source first.
"""

REVERTED: Final = "reverted"
"""The session was cut before a checkpoint."""

CLEARED: Final = "cleared"
"""The session was emptied; earlier checkpoints are out of reach."""

PROMPTED: Final = "prompted"
"""A system prompt was put before the existing lines."""

RESTORED: Final = "restored"
"""A past generation became the present one again."""

COMPACTED: Final = "compacted"
"""A summary replaced the lines that it summarises."""

DELIVERED: Final = "delivered"
"""The session was cut before the checkpoint of a D-Mail, and a checkpoint and the mail appended.

The checkpoint's id is `new_checkpoint_id`; without it, that of the mail's checkpoint.
"""

MENDED: Final = "mended"
"""A repair left out damaged lines."""

ROTATED: Final = "rotated"
"""Another program rewrote the file; the timeline has no line for it, so readers infer it."""

VOIDED: Final = "voided"
"""The rewrite to this generation did not take place; replies omit both entries."""

COMPACTING: Final = "compacting"
"""A compaction was begun, and the id of its own checkpoint is reserved."""

COUNTED: Final = "counted"
"""An opening found the next checkpoint id, which no rewrite of this generation recorded."""

SENT: Final = "sent"
"""A D-Mail was sent; the key is its id."""

FORK: Final = "fork"
"""The session was forked; the entry is in the source's timeline."""

RENAMED: Final = "renamed"
"""The session got another id; earlier entries and its forks name it by the old one."""

REPAIRED: Final = "repaired"
"""An opening repaired the tail of a file."""

COLLECTED: Final = "collected"
"""`gc` removed past generations."""

FOREIGN: Final = "foreign"
"""Another program appended to the file, edited it or replaced it."""

REWRITES: Final[Mapping[str, str]] = {
    REVERTED: "revert_to",
    CLEARED: "clear",
    PROMPTED: "write_system_prompt",
    RESTORED: "restore_generation",
    COMPACTED: "compact_commit",
    DELIVERED: "deliver_dmail",
    MENDED: "repair",
}
"""The kinds of rewrites by the daemon, each with its command."""

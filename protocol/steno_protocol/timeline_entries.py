"""Entries of a session's timeline: their kinds and the details of each kind.

    {"kind":"reverted","generation":3,"kept":120,"at":1764000000.5,"by":"planner","key":"0199...",
     "details":{"checkpoint_id":2,"from":2,"lines":120,"old_lines":241,"old":[81022,1822301],
                "new":[40511,9918217]}}

A kind that is not here is of a later version: readers show it by its name and conclude nothing.
"""

from collections.abc import Mapping, Set
from typing import Any, Final

import msgspec


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a timeline.

    Attributes:
        kind: one of those below.
        generation: the generation that it led to.
        kept: lines of the generation before that live on in this one.
        at: Unix time in seconds.
        by: the client that asked for it.
        why: the reason that it gave.
        key: the command's idempotency key.
        details: facts of this kind only, see `FACTS`.
        inferred: steno did not make the change; it is inferred from the files.
    """

    kind: str
    generation: int
    kept: int = 0
    at: float = 0.0
    by: str | None = None
    why: str | None = None
    key: str | None = None
    details: dict[str, Any] = {}
    inferred: bool = False


CREATED: Final = "created"
"""The session was made."""

ADOPTED: Final = "adopted"
"""The daemon opened a session that another program had made."""

FORKED: Final = "forked"
"""The session was forked from another one, with its earlier rewrites.

Its `checkpoint_id` is that of the checkpoint before which it was made, and the next one's.
"""

REVERTED: Final = "reverted"
"""It was cut before a checkpoint; ids from that one on are given out again."""

CLEARED: Final = "cleared"
"""It was emptied; ids begin anew, and no checkpoint from before is found any more."""

PROMPTED: Final = "prompted"
"""A system prompt was put before the lines that there were."""

RESTORED: Final = "restored"
"""A generation that had been left behind was brought back."""

COMPACTED: Final = "compacted"
"""A summary was put in place of what it summarises."""

DELIVERED: Final = "delivered"
"""It went back to the checkpoint of a D-Mail, which was put behind it."""

MENDED: Final = "mended"
"""A repair left out what is no record."""

ROTATED: Final = "rotated"
"""Another program rewrote the file; the timeline has no line for it, so readers infer it."""

VOIDED: Final = "voided"
"""The rewrite to this generation did not take place; replies omit both entries."""

COMPACTING: Final = "compacting"
"""A compaction was begun, and the id of its own checkpoint is not given to others."""

SENT: Final = "sent"
"""A D-Mail was sent; the key is its id."""

FORK: Final = "fork"
"""A fork was made of the session."""

REPAIRED: Final = "repaired"
"""The end of a file was put right at an opening."""

COLLECTED: Final = "collected"
"""Generations that rewrites had left behind were given up."""

FOREIGN: Final = "foreign"
"""Another program changed the file: it added lines, edited it, or put another one in its place."""

REWRITES: Final[Mapping[str, str]] = {
    REVERTED: "revert_to",
    CLEARED: "clear",
    PROMPTED: "write_system_prompt",
    RESTORED: "restore_generation",
    COMPACTED: "compact_commit",
    DELIVERED: "deliver_dmail",
    MENDED: "repair",
}
"""The kinds of steno's own rewrites, each with its command."""


class Facts(msgspec.Struct, frozen=True):
    """Names of what the `details` of a kind hold.

    Attributes:
        always: what each entry of the kind has.
        perhaps: its optional details.
    """

    always: Set[str] = frozenset()
    perhaps: Set[str] = frozenset()


_FILES: Final = frozenset({"lines", "old_lines", "old", "new"})
"""Lines of the file that a rewrite made and of the one that it left behind, and of both the length
in bytes and the CRC-32 of the end."""

_EXPIRED: Final = frozenset({"expired_mail"})
"""The D-Mail whose checkpoint a rewrite removed."""

FACTS: Final[Mapping[str, Facts]] = {
    CREATED: Facts({"incarnation", "stamp"}, {"key"}),
    ADOPTED: Facts({"incarnation", "stamp"}),
    FORKED: Facts(
        {"incarnation", "stamp", "from", "at", "wire_at", "bytes", "title"}, {"checkpoint_id"}
    ),
    REVERTED: Facts({"checkpoint_id", "from", *_FILES}, _EXPIRED),
    CLEARED: Facts(_FILES, _EXPIRED),
    PROMPTED: Facts({"contents", *_FILES}),
    RESTORED: Facts({"from", *_FILES}, _EXPIRED),
    COMPACTED: Facts({"from", "checkpoint_id", "summarised", *_FILES}),
    DELIVERED: Facts({"mail", "from", "checkpoint_id", *_FILES}),
    MENDED: Facts({"places", "left_out", *_FILES}),
    ROTATED: Facts(),
    VOIDED: Facts(),
    COMPACTING: Facts({"checkpoint_id", "at"}),
    SENT: Facts({"checkpoint_id", "cursor", "message", "head"}, {"replaces"}),
    FORK: Facts({"to", "at"}),
    REPAIRED: Facts({"file", "offset", "bytes", "kept_in"}),
    COLLECTED: Facts({"generations"}),
    FOREIGN: Facts({"before", "after", "kept"}),
}
"""Every kind with its `details`; `PROTOCOL.md` defines them."""

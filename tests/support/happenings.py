"""The details of timeline entries, compared with a table of their kinds."""

from collections.abc import Iterable, Mapping, Set
from typing import Final

import msgspec

from steno_protocol.timeline_entries import (
    ADOPTED,
    CLEARED,
    COLLECTED,
    COMPACTED,
    COMPACTING,
    COUNTED,
    CREATED,
    DELIVERED,
    FOREIGN,
    FORK,
    FORKED,
    MENDED,
    PROMPTED,
    RENAMED,
    REPAIRED,
    RESTORED,
    REVERTED,
    ROTATED,
    SENT,
    VOIDED,
    TimelineEntry,
)


class Facts(msgspec.Struct, frozen=True):
    """The names of the `details` of a kind.

    Attributes:
        always: the details of every entry.
        perhaps: the optional details.
    """

    always: Set[str] = frozenset()
    perhaps: Set[str] = frozenset()


_FILES: Final = frozenset({"lines", "old_lines", "old", "new"})
"""The lines of a rewrite's new and old file, and the fingerprint of each: its length in bytes and
the CRC-32 of its end."""

_EXPIRED: Final = frozenset({"expired_mail"})
"""The D-Mail whose checkpoint a rewrite removed."""

_NEXT: Final = frozenset({"next_id"})
"""The id of the next checkpoint, where no id is assigned twice."""

_SET: Final = frozenset({"checkpoint_line"})
"""The line of the checkpoint that the rewrite set."""

FACTS: Final[Mapping[str, Facts]] = {
    CREATED: Facts({"incarnation", "stamp"}, {"key"}),
    ADOPTED: Facts({"incarnation", "stamp"}),
    FORKED: Facts(
        {"incarnation", "stamp", "from", "at", "wire_at", "bytes", "title", "origins"},
        {"checkpoint_id", *_NEXT},
    ),
    REVERTED: Facts({"checkpoint_id", "from", *_FILES}, _EXPIRED | _NEXT | {"position"}),
    CLEARED: Facts(_FILES, _EXPIRED | _NEXT),
    PROMPTED: Facts({"contents", *_FILES}, _NEXT),
    RESTORED: Facts({"from", *_FILES}, _EXPIRED | _NEXT),
    COMPACTED: Facts({"from", "checkpoint_id", "summarised", *_SET, *_FILES}, _NEXT),
    DELIVERED: Facts(
        {"mail", "from", "checkpoint_id", *_SET, *_FILES}, {"new_checkpoint_id", *_NEXT}
    ),
    MENDED: Facts({"places", "left_out", *_FILES}, _NEXT),
    ROTATED: Facts(),
    VOIDED: Facts(),
    COMPACTING: Facts({"checkpoint_id", "at"}),
    COUNTED: Facts(_NEXT),
    SENT: Facts({"checkpoint_id", "cursor", "message", "head"}, {"replaces"}),
    FORK: Facts({"to", "at"}),
    RENAMED: Facts({"from", "to"}),
    REPAIRED: Facts({"file", "offset", "bytes", "kept_in"}),
    COLLECTED: Facts({"generations"}, {"rules"}),
    FOREIGN: Facts({"before", "after", "kept"}),
}
"""Every kind with its `details`; `PROTOCOL.md` defines them."""


def check_facts(entries: Iterable[TimelineEntry]) -> None:
    """Check that each entry has a known kind and the facts of that kind."""
    for entry in entries:
        facts = FACTS[entry.kind]
        known = facts.always | facts.perhaps
        assert facts.always <= entry.details.keys() <= known, f"other facts: {entry}"

"""The parts of the client, for who builds an adapter, a viewer or a command on it.

The encoding of requests and messages, handles of checkpoints, appends that stay in order, and
summaries. Whoever reads and writes sessions needs none of it. Each name is imported when it is
first used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from steno._lazy import imported_on_use

if TYPE_CHECKING:
    from steno._async.in_thread import in_thread
    from steno._async.streams import RecordStream
    from steno._sansio.messages import EXACT, Message, encode_exactly, encode_messages, original
    from steno._sansio.reading import LineReader, check_reached
    from steno._sansio.requests import (
        HANDLE_PATTERN,
        CheckpointLike,
        ack_of,
        encode_records,
        mutation,
        new_key,
        opening,
        target_of,
    )
    from steno._sansio.summaries import (
        COMPACTION_SYSTEM_PROMPT,
        INTRODUCTION,
        THOUGHTS,
        Summarize,
    )
    from steno._sansio.view import should_compact
    from steno._sansio.wire_events import encode_events
    from steno._sync.link import BlockingLink
    from steno._sync.ordered_appends import OrderedAppends, Settled

__all__ = [
    "COMPACTION_SYSTEM_PROMPT", "EXACT", "HANDLE_PATTERN", "INTRODUCTION", "THOUGHTS",
    "BlockingLink", "CheckpointLike", "LineReader", "Message", "OrderedAppends", "RecordStream",
    "Settled", "Summarize", "ack_of", "check_reached", "encode_events", "encode_exactly",
    "encode_messages", "encode_records", "in_thread", "mutation", "new_key", "opening", "original",
    "should_compact", "target_of",
]  # fmt: skip

_HOMES: Final = {
    "steno._async.in_thread": "in_thread",
    "steno._async.streams": "RecordStream",
    "steno._sansio.messages": "EXACT Message encode_exactly encode_messages original",
    "steno._sansio.reading": "LineReader check_reached",
    "steno._sansio.requests": (
        "CheckpointLike HANDLE_PATTERN ack_of encode_records mutation new_key opening target_of"
    ),
    "steno._sansio.summaries": "COMPACTION_SYSTEM_PROMPT INTRODUCTION Summarize THOUGHTS",
    "steno._sansio.view": "should_compact",
    "steno._sansio.wire_events": "encode_events",
    "steno._sync.link": "BlockingLink",
    "steno._sync.ordered_appends": "OrderedAppends Settled",
}

__getattr__: Callable[[str], Any] = imported_on_use(globals(), _HOMES)

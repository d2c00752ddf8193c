"""The client of stenod: many agent processes, one writer of their session files.

async with steno.connect() as client:            asyncio and trio
with steno.connect_sync() as client:             the same verbs, blocking

Importing this package imports nothing else: each name below is imported when it is first used, so
that a one-shot command never pays for an event loop.

_async        the async client: client, session, subscription and their link
_sync         the blocking client: the same verbs, generated from _async, and its own link
_sansio       requests, replies, events and their state: no socket, clock or file
_connect      a connection: the daemon found or started, and greeted; files beside it
_lazy         names that are imported when they are first used
values        the values that callers get: acks, records, turns, mails, events
parts         the client's parts, for who builds an adapter, a viewer or a command on it
local         a root on this machine without its daemon: lock, private files, a daemon's start
llm           models that summarise, and their bounds
adapters      classes in the place of other programs' classes
testing       the contract of a storage of messages, as tests

What stands beside the library uses the names above without an underscore: `steno_present`,
`steno_redact`, `steno_search`, `steno_backup`, `steno_agents`, `steno_follow`, `steno_web`,
`steno_view`, `steno_mcp` and `steno_cli`. The library imports none of them; it loads masks by name
if a root asks for them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from steno._lazy import imported_on_use

if TYPE_CHECKING:
    from steno._async.client import Client, connect
    from steno._async.record_list import RecordList
    from steno._async.session import Session
    from steno._async.stream import Stream
    from steno._async.subscription import Subscription
    from steno._sansio.summaries import Summary
    from steno._sync.client import BlockingClient, connect_sync
    from steno._sync.record_list import BlockingRecordList
    from steno._sync.session import BlockingSession
    from steno._sync.stream import BlockingStream
    from steno._sync.subscription import BlockingSubscription
    from steno.values import (
        Ack,
        Checkpoint,
        Compacted,
        Deleted,
        DmailEvent,
        ListState,
        Live,
        Mail,
        Record,
        RecordsEvent,
        Reset,
        SentMail,
        StreamInfo,
        StreamRecord,
        Turn,
        WireRecord,
    )
    from steno_protocol import __version__
    from steno_protocol.errors import (
        BadRequest,
        Busy,
        Conflict,
        Corrupt,
        Exists,
        Expired,
        Held,
        Incompatible,
        Internal,
        NotFound,
        Outcome,
        OutcomeUnknown,
        Refused,
        ShuttingDown,
        StenoError,
        StorageFailed,
        TooLarge,
        Unauthorized,
        Unreachable,
    )
    from steno_protocol.positions import Position

__all__ = [
    "Ack", "BadRequest", "BlockingClient", "BlockingRecordList", "BlockingSession",
    "BlockingStream", "BlockingSubscription", "Busy", "Checkpoint", "Client", "Compacted",
    "Conflict", "Corrupt", "Deleted", "DmailEvent", "Exists", "Expired", "Held", "Incompatible",
    "Internal", "ListState", "Live", "Mail", "NotFound", "Outcome", "OutcomeUnknown", "Position",
    "Record", "RecordList", "RecordsEvent", "Refused", "Reset", "SentMail", "Session",
    "ShuttingDown", "StenoError", "StorageFailed", "Stream", "StreamInfo", "StreamRecord",
    "Subscription", "Summary", "TooLarge", "Turn", "Unauthorized", "Unreachable", "WireRecord",
    "__version__", "connect", "connect_sync",
]  # fmt: skip

_HOMES: Final = {
    "steno._sync.client": "BlockingClient connect_sync",
    "steno._sync.record_list": "BlockingRecordList",
    "steno._sync.session": "BlockingSession",
    "steno._sync.stream": "BlockingStream",
    "steno._sync.subscription": "BlockingSubscription",
    "steno._async.client": "Client connect",
    "steno._async.record_list": "RecordList",
    "steno._async.session": "Session",
    "steno._async.stream": "Stream",
    "steno._async.subscription": "Subscription",
    "steno._sansio.summaries": "Summary",
    "steno.values": (
        "Ack Checkpoint Compacted Deleted DmailEvent ListState Live Mail Record RecordsEvent Reset"
        " SentMail StreamInfo StreamRecord Turn WireRecord"
    ),
    "steno_protocol": "__version__",
    "steno_protocol.errors": (
        "BadRequest Busy Conflict Corrupt Exists Expired Held Incompatible Internal NotFound"
        " Outcome OutcomeUnknown Refused ShuttingDown StenoError StorageFailed TooLarge"
        " Unauthorized Unreachable"
    ),
    "steno_protocol.positions": "Position",
}

__getattr__: Callable[[str], Any] = imported_on_use(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

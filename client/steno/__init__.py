"""The client of stenod: many agent processes, one writer of their session files.

async with steno.connect() as client:            asyncio and trio
with steno.connect_sync() as client:             the same verbs, blocking

Importing this package imports nothing else: each name below is imported when it is first used, so
that a one-shot command never pays for an event loop.

_async        the async client: client, session, subscription and their link
_sync         the blocking client: the same verbs, generated from _async, and its own link
_sansio       requests, replies, events and their state: no socket, clock or file
_connect      a connection: the daemon found or started, and greeted; files beside it
_redaction    the masks of a client that masks what it writes, and of the commands
_safe_text    text that cannot control a terminal
values        the values that callers get: acks, records, turns, mails, events
llm           models that summarise; llm_limits are its bounds
adapters      classes in the place of other programs' classes
testing       the contract of a storage of messages, as tests
cli           the command; _command is its process
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from steno._async.client import Client, connect
    from steno._async.session import Session
    from steno._async.stream import Stream
    from steno._async.subscription import Subscription
    from steno._sansio.summaries import Summary
    from steno._sync.client import BlockingClient, connect_sync
    from steno._sync.session import BlockingSession
    from steno._sync.stream import BlockingStream
    from steno._sync.subscription import BlockingSubscription
    from steno.values import (
        Ack,
        Checkpoint,
        Compacted,
        Deleted,
        DmailEvent,
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
    "Ack",
    "BadRequest",
    "BlockingClient",
    "BlockingSession",
    "BlockingStream",
    "BlockingSubscription",
    "Busy",
    "Checkpoint",
    "Client",
    "Compacted",
    "Conflict",
    "Corrupt",
    "Deleted",
    "DmailEvent",
    "Exists",
    "Expired",
    "Held",
    "Incompatible",
    "Internal",
    "Live",
    "Mail",
    "NotFound",
    "Outcome",
    "OutcomeUnknown",
    "Position",
    "Record",
    "RecordsEvent",
    "Refused",
    "Reset",
    "SentMail",
    "Session",
    "ShuttingDown",
    "StenoError",
    "StorageFailed",
    "Stream",
    "StreamInfo",
    "StreamRecord",
    "Subscription",
    "Summary",
    "TooLarge",
    "Turn",
    "Unauthorized",
    "Unreachable",
    "WireRecord",
    "__version__",
    "connect",
    "connect_sync",
]

_HOMES: Final = {
    "steno._sync.client": ("BlockingClient", "connect_sync"),
    "steno._sync.session": ("BlockingSession",),
    "steno._sync.stream": ("BlockingStream",),
    "steno._sync.subscription": ("BlockingSubscription",),
    "steno._async.client": ("Client", "connect"),
    "steno._async.session": ("Session",),
    "steno._async.stream": ("Stream",),
    "steno._async.subscription": ("Subscription",),
    "steno._sansio.summaries": ("Summary",),
    "steno.values": (
        "Ack",
        "Checkpoint",
        "Compacted",
        "Deleted",
        "DmailEvent",
        "Live",
        "Mail",
        "Record",
        "RecordsEvent",
        "Reset",
        "SentMail",
        "StreamInfo",
        "StreamRecord",
        "Turn",
        "WireRecord",
    ),
    "steno_protocol": ("__version__",),
    "steno_protocol.positions": ("Position",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'steno' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF.get(name, "steno_protocol.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The client of stenod: many agent processes, one writer of their session files.

async with steno.connect() as client:            asyncio and trio
with steno.connect_sync() as client:             the same verbs, blocking

Importing this package imports nothing else: each name below is fetched when it is first used, so
that a one-shot command never pays for an event loop.

Async     client, session, subscription       what users hold
          _link, _linked, _readable           one connection, and what every verb stands on
          _compaction_verbs, _dmail_verbs, _fork_verbs, _repair_verbs, _wire_verbs
Blocking  blocking, _blocking_session, _blocking_subscription, _blocking_streams
          _blocking_link, _blocking_linked, _turnstile    the same, shared by threads
          _blocking_compaction, _blocking_dmail, _blocking_forks, _blocking_repair, _blocking_wire
Both      _verbs, _compacting, _forking, _repairing, _wire    what to send, what replies mean
          _exchange, _pending, _lookups       what is under way: sent again, answered once
          _following, _follower, _mirror, _view    events, and the history that they make
          _reading, _messages, _headers, _given, _keys    lines, records, headers, arguments
          values, compaction, _told           what callers get, and what a model is shown
Daemon    _target, _connecting, _probe        which one, and whether it is there
          _spawn, _start_lock, _holder        starting it, and never two
          _connection, _endpoints             one connection, and which kind leads where
          _local_connection                   ZeroMQ's protocol on a local socket
          _remote_connection                  libzmq, which is met nowhere else
System    _source, _regular, _folders, _key_files, _in_thread, _fork, _uncopied
Beside    _command, cli                       the command
          adapters                            in the place of other programs' classes
          llm, _model_limits                  models that summarise
          testing                             what a storage of messages has to keep, as tests
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from steno.blocking import BlockingClient, BlockingSession, BlockingSubscription, connect_sync
    from steno.client import Client, connect
    from steno.compaction import Summary
    from steno.session import Session
    from steno.subscription import Subscription
    from steno.values import (
        Ack,
        Compacted,
        Deleted,
        DmailEvent,
        Live,
        Mail,
        Record,
        RecordsEvent,
        Reset,
        SentMail,
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
    "BlockingSubscription",
    "Busy",
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
    "steno.blocking": ("BlockingClient", "BlockingSession", "BlockingSubscription", "connect_sync"),
    "steno.client": ("Client", "connect"),
    "steno.session": ("Session",),
    "steno.subscription": ("Subscription",),
    "steno.compaction": ("Summary",),
    "steno.values": (
        "Ack",
        "Compacted",
        "Deleted",
        "DmailEvent",
        "Live",
        "Mail",
        "Record",
        "RecordsEvent",
        "Reset",
        "SentMail",
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

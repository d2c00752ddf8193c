"""The clause about syncs before acks, observed by strace.

strace attaches to the process of the store and to its servers, and logs their calls in one order.
An ack counts as durable if a file of the store was written since the ack before it, and synced
after its last write. Writes through a mapped file are not seen; `msync` is, and counts as a sync.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from steno.testing.stores import limits
from steno.testing.stores.tracing import finished_calls, traced
from steno.testing.stores.trial import Case
from steno.testing.stores.verdicts import Broken, NotOffered

_CALLS: Final = "openat,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,msync"
_WRITES: Final = {"write", "writev", "pwrite64", "pwritev", "pwritev2"}
_SYNCS: Final = {"fsync", "fdatasync"}
_HANDLE: Final = re.compile(r"\d+<(?P<path>[^>]*)>")
_RESULT: Final = re.compile(r"= (?P<result>-?\d+)(?:<(?P<path>[^>]*)>)?[^=]*$")
_ACK: Final = '"{\\"ok\\"'


def synced_before_ack(case: Case) -> str:
    """The calls of the store's processes between an append and its ack."""
    writer = case.open()
    case.append(writer, case.ledger.entry("writer"))
    log = case.folder.with_suffix(".strace")
    with traced([writer.pid, *case.servers()], ["-y", "-e", f"trace={_CALLS}"], log):
        for _ in range(limits.APPENDS_MAX // 5):
            case.append(writer, case.ledger.entry("writer"))
    acks = acks_synced(log.read_text(errors="replace").splitlines(), case.folder, writer.pid)
    log.unlink()
    seen = f"{sum(acks)} of {len(acks)} acks followed a sync"
    if "durable" not in case.offers:
        raise NotOffered(f"no `durable`; {seen}")
    if not all(acks):
        raise Broken("acks came before a sync", count=acks.count(False), of=len(acks))
    return seen


def acks_synced(lines: Iterable[str], folder: Path, pid: int) -> list[bool]:
    """For each ack of a process in a log of strace: whether what it acknowledged was synced.

    Args:
        lines: the log, with paths of handles.
        folder: the folder of the store.
        pid: the process that gives the acks.
    """
    acks: list[bool] = []
    unsynced: dict[str, bool] = {}
    always: set[str] = set()
    for task, call, rest in finished_calls(lines):
        result = _RESULT.search(rest)
        if result is None or int(result["result"]) < 0:
            continue
        handle = _HANDLE.match(rest)
        path = handle["path"] if handle is not None else ""
        is_ours = path.startswith(f"{folder}/")
        if call == "openat" and ("O_DSYNC" in rest or "O_SYNC" in rest):
            always.add(result["path"] or "")
        elif call in _WRITES and is_ours:
            unsynced[path] = path not in always
        elif call in _SYNCS and path in unsynced:
            unsynced[path] = False
        elif call == "msync":
            unsynced["a mapped file"] = False
        elif call == "write" and task == pid and _ACK in rest:
            acks.append(not all(unsynced.values()))
            unsynced.clear()
    return acks

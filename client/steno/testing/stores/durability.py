"""The clause about syncs before acks, observed by strace.

strace attaches to the process of the store and to its servers, and logs their calls in one order.
An ack counts as durable if a file of the store was written since the ack before it, and synced
after its last write. Writes through a mapped file are not seen; `msync` is, and counts as a sync.
"""

import re
import shutil
import subprocess
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from steno.testing.stores import limits
from steno.testing.stores.trial import Case
from steno.testing.stores.verdicts import Broken, NotObserved, NotOffered

_CALLS: Final = "openat,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,msync"
_WRITES: Final = {"write", "writev", "pwrite64", "pwritev", "pwritev2"}
_SYNCS: Final = {"fsync", "fdatasync"}
_BEGIN: Final = re.compile(r"(?P<task>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_RESUMED: Final = re.compile(r"(?P<task>\d+) +<\.\.\. (?P<call>\w+) resumed>(?P<rest>.*)")
_HANDLE: Final = re.compile(r"\d+<(?P<path>[^>]*)>")
_RESULT: Final = re.compile(r"= (?P<result>-?\d+)(?:<(?P<path>[^>]*)>)?[^=]*$")
_ACK: Final = '"{\\"ok\\"'


def synced_before_ack(case: Case) -> str:
    """The calls of the store's processes between an append and its ack."""
    if shutil.which("strace") is None:
        raise NotObserved("there is no strace on the PATH")
    writer = case.open()
    case.append(writer, case.ledger.entry("writer"))
    log = case.folder.with_suffix(".strace")
    with _traced([writer.pid, *case.servers()], log):
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


@contextmanager
def _traced(pids: Sequence[int], log: Path) -> Generator[None]:
    targets = [word for pid in pids for word in ("-p", str(pid))]
    command = ["strace", "-f", "-y", "-s", "16", "-e", f"trace={_CALLS}", "-o", str(log), *targets]
    tracer = subprocess.Popen(  # noqa: S603 (pids and a path of ours)
        command, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    assert tracer.stderr is not None
    messages: list[str] = []
    is_attached = threading.Event()
    reader = threading.Thread(
        target=_read, args=(tracer.stderr, len(pids), messages, is_attached), daemon=True
    )
    reader.start()
    try:
        is_attached.wait(limits.ATTACH_S_MAX)
        if sum("attached" in message for message in messages) < len(pids):
            raise NotObserved(messages[0].strip() if messages else "strace did not attach")
        yield
    finally:
        tracer.terminate()
        tracer.wait(limits.STOP_S_MAX)
        reader.join(limits.STOP_S_MAX)


def _read(pipe: IO[str], count: int, messages: list[str], is_attached: threading.Event) -> None:
    with pipe:
        for line in pipe:
            messages.append(line)
            if sum("attached" in message for message in messages) >= count:
                is_attached.set()
    is_attached.set()


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
    for task, call, rest in _finished_calls(lines):
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


def _finished_calls(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Each call when it returns: its task, name, and arguments with the result."""
    begun: dict[str, str] = {}
    for line in lines:
        if (found := _RESUMED.match(line)) is not None:
            yield int(found["task"]), found["call"], begun.pop(found["task"], "") + found["rest"]
        elif (found := _BEGIN.match(line)) is not None:
            arguments, separator, _ = found["rest"].partition(" <unfinished ...>")
            if separator:
                begun[found["task"]] = arguments
            else:
                yield int(found["task"]), found["call"], arguments

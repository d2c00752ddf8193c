"""strace on the processes of a store: their calls, and kills at one of them."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from steno.testing.stores import limits
from steno.testing.stores.verdicts import NotObserved

CHANGES: Final = (
    "openat,write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,fsync,fdatasync,msync,truncate,"
    "ftruncate,fallocate,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat"
)
"""Calls that change a file or send data: a process is killed at one of these."""

_BEGIN: Final = re.compile(r"(?P<task>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_RESUMED: Final = re.compile(r"(?P<task>\d+) +<\.\.\. (?P<call>\w+) resumed>(?P<rest>.*)")


@contextmanager
def traced(pids: Sequence[int], options: Sequence[str], log: Path | None = None) -> Generator[None]:
    """Let strace follow processes and their threads; it is attached when the block begins.

    Args:
        pids: the processes.
        options: what it logs or injects.
        log: the file of its log, complete when the block has ended; None for no log.

    Raises:
        NotObserved: there is no strace, or it may not attach.
    """
    if shutil.which("strace") is None:
        raise NotObserved("there is no strace on the PATH")
    targets = [word for pid in pids for word in ("-p", str(pid))]
    command = ["strace", "-f", "-s", "16", *options, "-o", str(log or os.devnull), *targets]
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
        if log is not None:
            tracer.terminate()
            with suppress(subprocess.TimeoutExpired):
                tracer.wait(limits.STOP_S_MAX)
        # After SIGTERM it may wait for ever for a thread of a process that it has just killed.
        tracer.kill()
        tracer.wait(limits.STOP_S_MAX)
        reader.join(limits.STOP_S_MAX)


def _read(pipe: IO[str], count: int, messages: list[str], is_attached: threading.Event) -> None:
    with pipe:
        for line in pipe:
            messages.append(line)
            if sum("attached" in message for message in messages) >= count:
                is_attached.set()
    is_attached.set()


def kill_at(number: int) -> list[str]:
    """Options that kill a process at the n-th change that one of its threads begins."""
    return ["-e", f"trace={CHANGES}", "-e", f"inject={CHANGES}:signal=KILL:when={number}"]


def changes_of(lines: Iterable[str]) -> int:
    """The most changes that one thread made, in a log of `CHANGES`."""
    tasks = [task for task, _, _ in finished_calls(lines)]
    return max((tasks.count(task) for task in set(tasks)), default=0)


def finished_calls(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
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

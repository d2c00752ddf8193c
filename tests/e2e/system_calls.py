"""Faults at system calls of a running daemon, injected by strace."""

import re
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

STRACE: Final = shutil.which("strace")

CALLS: Final = (
    "openat", "write", "pwrite64", "fchown", "fdatasync", "fsync", "ftruncate", "linkat",
    "renameat", "renameat2", "unlinkat", "mkdirat", "copy_file_range",
)  # fmt: skip
"""The calls that change files, by the names that strace knows."""

END_S: Final = 30.0
"""Time in which strace ends by itself and completes its report."""

_CALL: Final = re.compile(r"(?:\[pid +\d+\] |\d+ +)?(\w+)\(")


class Traced:
    """Counts the file calls of a daemon, or makes one of them fail, during the block.

    Args:
        pid: of the daemon.
        folder: only calls about this folder and what is in it.
        report: where strace may write.
        inject: `call:what:when`, as strace has it.
    """

    def __init__(self, pid: int, folder: Path, report: Path, inject: str | None = None) -> None:
        self._report = report
        names = ("context.jsonl", "context.jsonl.new", "timeline.jsonl", "wire.jsonl")
        paths = [folder, folder.parent, *(folder / name for name in names)]
        wanted = [inject.split(":")[0]] if inject else list(CALLS)
        self._command = ["strace", "-f", "-p", str(pid), "-o", str(report), "-e"]
        self._command.append(f"trace={','.join(wanted)}")
        for path in paths:
            self._command += ["-P", str(path)]
        if inject:
            self._command += ["-e", f"inject={inject}"]

    def __enter__(self) -> Self:
        self._strace = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self._strace.stderr is not None
        # It says so once for every thread; the main one is the first.
        first = self._strace.stderr.readline()
        assert "attached" in first, first
        return self

    def __exit__(self, *_: object) -> None:
        self._strace.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._strace.wait(END_S)
        # It may wait for ever for a thread of a process that it has just killed.
        self._strace.kill()
        self._strace.communicate()

    def counts(self) -> Counter[str]:
        """The number of calls by name."""
        lines = self._report.read_text().splitlines()
        return Counter(match[1] for line in lines if (match := _CALL.match(line)))

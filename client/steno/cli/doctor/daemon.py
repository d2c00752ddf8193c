"""The doctor's check of the daemon: the lock, the socket, and recent failures."""

import os
import stat
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from steno._connect.lock_holder import is_free, note_of, silence_of
from steno._sync.client import BlockingClient, connect_sync
from steno.cli.configuration import read_file, unread
from steno.cli.doctor.findings import Finding, ok, problem, warning
from steno.cli.render.wording import count, duration, moment
from steno_protocol import __version__, limits, paths
from steno_protocol.commands import Configuration, Stats
from steno_protocol.errors import (
    BadRequest,
    ErrorCode,
    Incompatible,
    OutcomeUnknown,
    StenoError,
    Unreachable,
)
from steno_protocol.paths import LockNote
from steno_protocol.replies import ConfigurationReport, OptionEntry, StatsReport, StatusReport

_LISTENING: Final = 0x10000
"""The flag of a listening socket in the kernel's table."""

_FAILURES: Final = {
    ErrorCode.STORAGE_FAILED: "the disk",
    ErrorCode.CORRUPT: "damaged files",
    ErrorCode.INTERNAL: "a fault of steno",
}
"""Errors that the operator of the daemon has to know, with their cause."""


def examine_daemon(options: Namespace, root: Path) -> Iterator[Finding]:
    """The lock, the socket, and the daemon that should be behind them."""
    if not root.is_dir():
        return
    note = note_of(root)
    socket = _socket(root, note)
    if is_free(root):
        yield ok("lock", "no daemon holds the root: one is started when it is needed")
        yield from _unused_socket(socket)
        return
    held = f"held by pid {note.pid}" if note else "held, and its holder is just starting"
    yield ok("lock", held)
    yield from _folder_of(socket)
    yield from _answering(options, root, note)


def _answering(options: Namespace, root: Path, note: LockNote | None) -> Iterator[Finding]:
    timeout_s = options.timeout or limits.PROBE_TIMEOUT_S
    try:
        with connect_sync(root, spawn=False, timeout=timeout_s) as client:
            report = client.status()
            entries = _entries(client)
            stats = _stats(client)
    except Incompatible as error:
        yield problem("daemon", error.message, "steno restart")
        return
    except (Unreachable, OutcomeUnknown) as error:
        yield _silent(error.message, note, root)
        return
    yield _version(report)
    yield from _state(report)
    if stats is not None:
        yield from _failures(stats)
    with suppress(BadRequest):
        for line in unread(entries, read_file(root, {})):
            yield warning("daemon", line, f"kill -HUP {report.pid}, or `steno restart`")


def _entries(client: BlockingClient) -> list[OptionEntry]:
    """What the daemon goes by; an old one may not know the question."""
    with suppress(StenoError):
        return client.request(Configuration(), ConfigurationReport)[0].options
    return []


def _stats(client: BlockingClient) -> StatsReport | None:
    """What the daemon did since it was started; an old one may not know the question."""
    with suppress(StenoError):
        return client.request(Stats(), StatsReport)[0]
    return None


def _failures(stats: StatsReport) -> Iterator[Finding]:
    """What clients were refused through no fault of theirs since the daemon was started."""
    for code, whose in _FAILURES.items():
        if failed := stats.errors.get(code):
            yield warning(
                "daemon",
                f"{count(failed, 'command')} failed by {whose} since it was started ({code})",
                "`steno logs` says when, in which sessions and why",
            )
    if stats.turned_away:
        yield warning(
            "daemon",
            f"{count(stats.turned_away, 'connection')} ended at once since it was started: no file"
            " handle was left",
            "allow it more (ulimit -n), and `steno restart`",
        )


def _version(report: StatusReport) -> Finding:
    text = f"stenod {report.version}, pid {report.pid}, up for {duration(report.uptime_s)}"
    if report.version != __version__:
        return warning("daemon", f"{text}; this command is {__version__}", "steno restart")
    return ok("daemon", text)


def _state(report: StatusReport) -> Iterator[Finding]:
    if report.draining:
        yield warning("daemon", f"it is ending, {count(report.queued, 'command')} to go", "wait")
    if report.slow_sync_at is not None:
        yield warning(
            "daemon",
            f"a sync was slow at {moment(report.slow_sync_at)}, the slowest took"
            f" {report.slowest_sync_s:.2f} s",
            "see what else writes to this disk; `steno logs` names each slow sync",
        )


def _silent(why: str, note: LockNote | None, root: Path) -> Finding:
    """The finding of a daemon that holds the root and does not answer."""
    if note is None:
        remedy = f"see {root / paths.LOG}; if it hangs, kill its process"
        return problem("daemon", f"it does not answer: {why}", remedy)
    silence = silence_of(note)
    return problem("daemon", silence.text, silence.remedy)


def _unused_socket(socket: Path) -> Iterator[Finding]:
    try:
        found = socket.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        yield problem(
            "socket",
            f"{socket} is no socket of yours, so no daemon can listen there",
            "move it away, or choose another --socket",
        )
    elif _is_listened_at(socket):
        yield ok("socket", f"{socket} is kept open by systemd or the like, which starts a daemon")
    else:
        yield ok("socket", f"{socket} was left behind by a daemon that was killed: harmless")


def _is_listened_at(socket: Path) -> bool:
    """Whether a process listens there; connecting would start a daemon, so the kernel is asked."""
    table = Path("/proc/net/unix")
    with suppress(OSError), table.open(encoding="utf-8", errors="replace") as file:
        rows = (line.split(maxsplit=7) for line in file)
        return any(
            int(row[3], 16) & _LISTENING and row[7].rstrip("\n") == str(socket)
            for row in rows
            if len(row) == 8 and row[3] != "Flags"
        )
    return False


def _folder_of(socket: Path) -> Iterator[Finding]:
    folder = socket.parent
    with suppress(FileNotFoundError):
        found = folder.stat()
        if found.st_uid != os.getuid():
            yield problem(
                "socket", f"{folder} belongs to uid {found.st_uid}", "choose another --socket"
            )
        elif found.st_mode & 0o022:
            yield warning("socket", f"others may write into {folder}", f"chmod 700 {folder}")


def _socket(root: Path, note: LockNote | None) -> Path:
    if note is not None:
        return Path(note.endpoint.removeprefix("ipc://"))
    return Path(paths.socket_path(str(root), None, os.environ, os.getuid()))

"""The doctor's checks of the daemon: its lock, its socket, its answers and its failures."""

import os
import stat
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

from steno import BlockingClient, connect_sync
from steno.local import Futile, check_allowed, is_free, note_of, silence_of
from steno_cli.command_limits import FAILED_LATELY_S
from steno_cli.configuration import read_file, remedy_for_unread, unread_options
from steno_cli.doctor import Finding, ok, problem, steno, warning
from steno_present.wording import count, duration, moment
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
from steno_protocol.replies import ConfigurationReport, StatsReport, StatusReport

_LISTENING: Final = 0x10000
"""The flag of a listening socket in /proc/net/unix."""

_FAILURES: Final = {
    ErrorCode.STORAGE_FAILED: "the disk",
    ErrorCode.CORRUPT: "damaged files",
    ErrorCode.INTERNAL: "a fault of steno",
}
"""Errors for the operator of the daemon, with their cause."""


def check_lock(_: Namespace, root: Path) -> Iterator[Finding]:
    """Which process holds the root."""
    if not root.is_dir():
        return
    note = note_of(root)
    if is_free(root):
        yield ok("no daemon holds the root: one is started when it is needed")
    elif note is None:
        yield ok("held by a daemon that is just starting")
    else:
        yield ok(f"held by pid {note.pid}")


def check_socket(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether a daemon can listen at the socket, and other users cannot replace it."""
    if not root.is_dir():
        return
    note = note_of(root)
    if note is None:
        socket = Path(paths.socket_path(str(root), None, os.environ, os.getuid()))
    else:
        socket = Path(note.endpoint.removeprefix("ipc://"))
    with suppress(FileNotFoundError):
        yield from _check_free(socket) if is_free(root) else _check_folder(socket.parent)


def _check_free(socket: Path) -> Iterator[Finding]:
    found = socket.lstat()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        text = f"{socket} is no socket of yours, so that no daemon can listen there"
        yield problem(text, "move it away, or choose another --socket")
    elif _is_listened_at(socket):
        yield ok(f"{socket} is kept open by systemd or the like, which starts a daemon")
    else:
        yield ok(f"{socket} was left behind by a daemon that was killed: harmless")


def _is_listened_at(socket: Path) -> bool:
    """Whether a process listens there, from the kernel's table: a connection starts a daemon."""
    table = Path("/proc/net/unix")
    with suppress(OSError), table.open(encoding="utf-8", errors="replace") as file:
        rows = (line.split(maxsplit=7) for line in file)
        return any(
            int(row[3], 16) & _LISTENING and row[7].rstrip("\n") == str(socket)
            for row in rows
            if len(row) == 8 and row[3] != "Flags"
        )
    return False


def _check_folder(folder: Path) -> Iterator[Finding]:
    found = folder.stat()
    if found.st_uid != os.getuid():
        text = f"{folder} belongs to uid {found.st_uid}"
        yield problem(text, "choose another --socket")
    elif found.st_mode & 0o022:
        yield warning(f"other users can write into {folder}", f"`chmod 700 {quote(str(folder))}`")


def check_daemon(options: Namespace, root: Path) -> Iterator[Finding]:
    """Whether the daemon answers, with which version, and what failed since its start."""
    try:
        check_allowed("ipc://", connects=False)
    except Futile as error:
        yield problem(error.message, "see your sandbox's settings")
        return
    if not root.is_dir() or is_free(root):
        return
    timeout_s = options.timeout or limits.PROBE_TIMEOUT_S
    try:
        with connect_sync(root, spawn=False, timeout=timeout_s) as client:
            status = client.status()
            findings = [
                *_check_status(status, root),
                *_check_failures(client, root),
                *_check_options(client, root, status.pid),
            ]
    except Incompatible as error:
        # Only a daemon that is older than this command is mended by another one.
        is_old = error.message.endswith("`steno restart`")
        again = f"then run `{steno(root, 'doctor')}` again"
        yield problem(error.message, f"`{steno(root, 'restart')}`" if is_old else again)
    except Futile as error:
        options.is_daemon_silent = True
        yield problem(error.message, f"then run `{steno(root, 'doctor')}` again")
    except (Unreachable, OutcomeUnknown) as error:
        options.is_daemon_silent = True
        yield _silent(root, error.message)
    else:
        yield from findings


def _check_status(report: StatusReport, root: Path) -> Iterator[Finding]:
    restart = f"`{steno(root, 'restart')}`"
    text = f"stenod {report.version}, pid {report.pid}, up for {duration(report.uptime_s)}"
    if report.version == __version__:
        yield ok(text)
    else:
        yield warning(f"{text}; this command is {__version__}", restart)
    if report.draining:
        text = f"it is draining, with {count(report.queued, 'command')} in its queue"
        yield warning(text, "wait")
    if report.slow_sync_at is not None:
        text = (
            f"a sync was slow at {moment(report.slow_sync_at)}, the slowest took"
            f" {report.slowest_sync_s:.2f} s"
        )
        remedy = f"see what else writes to this disk; `{steno(root, 'logs')}` names each slow sync"
        yield warning(text, remedy)


def _check_failures(client: BlockingClient, root: Path) -> Iterator[Finding]:
    """The commands and connections refused through no fault of the clients."""
    with suppress(StenoError):  # an older daemon may lack this command
        stats, _ = client.request(Stats(), StatsReport)
        for code, cause in _FAILURES.items():
            if failed := stats.errors.get(code):
                text = f"{count(failed, 'command')} failed by {cause} since it was started ({code})"
                remedy = f"`{steno(root, 'logs')}` has the times, the sessions and the reasons"
                age_s = time.time() - stats.failed_at.get(code, 0.0)
                is_present = age_s < FAILED_LATELY_S
                yield problem(text, remedy) if is_present else warning(text, remedy)
        if stats.turned_away:
            text = (
                f"{count(stats.turned_away, 'connection')} ended at once since it was started: no"
                " file handle was left"
            )
            remedy = f"allow it more (ulimit -n), and then `{steno(root, 'restart')}`"
            yield warning(text, remedy)


def _check_options(client: BlockingClient, root: Path, pid: int) -> Iterator[Finding]:
    """The options in the file that the daemon has not read."""
    with suppress(StenoError):  # an older daemon may lack this command
        report, _ = client.request(Configuration(), ConfigurationReport)
        with suppress(BadRequest):
            for line in unread_options(report.options, read_file(root, {})):
                restart = f"`{steno(root, 'restart')}`"
                yield warning(line, remedy_for_unread(root, pid, restart))


def _silent(root: Path, why: str) -> Finding:
    """The finding about a daemon that holds the root and does not answer."""
    note = note_of(root)
    if note is None:
        remedy = f"wait until it has started; {root / paths.LOG} has the reason if it does not"
        return problem(f"it does not answer: {why}", remedy)
    silence = silence_of(root, note)
    return problem(silence.text, silence.remedy)

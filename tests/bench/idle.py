"""The memory and processor time of an idle daemon.

The kernel counts both: resident memory, and for each thread how often it went to sleep and how long
it ran. Each daemon is looked at for one interval of housekeeping, so that exactly one round of it
is among what is counted.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import steno
from bench.lines import message
from bench.measuring import Comparison
from steno_protocol import limits, paths
from steno_protocol.limits import KIB, MIB
from support.foreground import ForegroundDaemon
from support.resident import resident_bytes

OPEN: Final = (100, 1000)
"""The number of open sessions at a measurement of memory."""

CLIENTS: Final = 10

_LOOK_S: Final = 1.0
"""After so long a silence all earlier requests are finished."""


class Turns(NamedTuple):
    """The wake-ups and running time of a process so far."""

    wake_ups: int
    cpu_ms: float


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Resident memory by open sessions; wake-ups and processor time while nothing is asked."""
    rest = Comparison("a daemon at rest", ("mib", "kib_a_session", "handles"), "mib", ())
    quiet = Comparison(
        f"a daemon that is asked nothing for {limits.HOUSEKEEPING_S:g} s",
        ("wake_ups", "cpu_ms"),
        "cpu_ms",
        (),
    )
    for number in range(rounds):
        _fill(folder / f"rest-{number}", rest)
        _wait(folder / f"quiet-{number}", quiet)
        report(f"idle: round {number + 1}")
    return [rest, quiet]


def _fill(root: Path, rest: Comparison) -> None:
    root.mkdir()
    (root / paths.CONFIG).write_text(f"[life]\nsessions_open = {max(OPEN)}\n")
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        empty = resident_bytes(daemon.pid)
        rest.add("no open session", {"mib": empty / MIB, "handles": handles(daemon.pid)})
        opened = 0
        for wanted in OPEN:
            _open(client, range(opened, wanted))
            opened = wanted
            resident = resident_bytes(daemon.pid)
            figures = {
                "mib": resident / MIB,
                "kib_a_session": (resident - empty) / KIB / wanted,
                "handles": handles(daemon.pid),
            }
            rest.add(f"{wanted:,} open sessions", figures)


def _wait(root: Path, quiet: Comparison) -> None:
    """Look at three daemons at the same time."""
    with ExitStack() as stack:
        pids: dict[str, int] = {}
        for name, clients, sessions in (
            ("no client", 0, 0),
            (f"{CLIENTS} clients", CLIENTS, 0),
            (f"{CLIENTS} clients, {OPEN[0]} open sessions", CLIENTS, OPEN[0]),
        ):
            daemon = stack.enter_context(ForegroundDaemon(root / str(len(pids))))
            pids[name] = daemon.pid
            for number in range(clients):
                client = stack.enter_context(steno.connect_sync(daemon.root, spawn=False))
                _open(client, range(number, sessions, clients))
        begun = {name: _turns_once_quiet(pid) for name, pid in pids.items()}
        _let_pass(limits.HOUSEKEEPING_S)
        for name, pid in pids.items():
            before, after = begun[name], _turns(pid)
            figures = {
                "wake_ups": after.wake_ups - before.wake_ups,
                "cpu_ms": after.cpu_ms - before.cpu_ms,
            }
            quiet.add(name, figures)


def _open(client: steno.BlockingClient, numbers: Iterable[int]) -> None:
    for number in numbers:
        client.open(f"session-{number}", follow=False).append_message(message(number))


def _turns_once_quiet(pid: int) -> Turns:
    before, now = None, _turns(pid)
    while before != now:
        _let_pass(_LOOK_S)
        before, now = now, _turns(pid)
    return now


def _let_pass(seconds: float) -> None:
    """There is no fact to wait for: the measurement is of an idle process."""
    threading.Event().wait(seconds)


def _turns(pid: int) -> Turns:
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    wake_ups = sum(_sleeps(thread / "status") for thread in threads)
    ran_ns = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    return Turns(wake_ups, ran_ns / 1e6)


def handles(pid: int) -> int:
    """The open files of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _sleeps(status: Path) -> int:
    return int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])

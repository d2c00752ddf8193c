"""The delay from an acknowledgement to the page of a viewer, and the cost of pages to the writer.

The rounds alternate: no viewer (it is stopped), a bare follower without and with a pace, and a
viewer without and with pages. The daemon and the writer have the first core for themselves; the
viewer, the browser and the followers share the others at the lowest priority. So their own work
does not count as the writer's cost. `cpu_us` is the CPU time of the daemon and of the writer for
each acknowledgement. The delay to the page is that of further rounds, in which all share all cores,
because twenty pages of one browser need more than one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import steno
from bench.measuring import Comparison, percentile
from support.browser import ViewerPage, chromium, program
from support.command import Steno
from support.foreground import ForegroundDaemon
from support.pacing import wait_until
from support.resident import resident_bytes
from support.viewer import RunningViewer, viewing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES: Final = (0, 1, 20)
NOBODY: Final = "no viewer"
FOLLOWERS: Final = {"a bare follower": 0, "the same, paced": 100}
"""Followers without a viewer, with the pace of each in milliseconds."""

RECORDS_PER_S: Final = 1000
BATCH: Final = 10
SECONDS: Final = 5

# Notes when the row of each line first stands on the page; the clock is that of the machine.
_WATCH: Final = """
() => {
  window.seen = {};
  const look = () => {
    for (const each of document.querySelectorAll(".transcript article[data-line]"))
      if (each.querySelector(".message")) window.seen[each.dataset.line] ??= Date.now();
  };
  new MutationObserver(look).observe(
    document.querySelector(".transcript"), { childList: true, subtree: true });
}
"""


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """A session that gets 1 000 records a second, beside 0, 1 and 20 pages that follow it."""
    if program() is None:
        report("viewers: left out, there is no chromium on the PATH")
        return []
    title = f"{RECORDS_PER_S} records/s for {SECONDS} s in batches of {BATCH}, and their pages"
    measures = (
        "cpu_us", "daemon_us", "writer_us", "append_p50_us", "append_p99_us", "page_p50_ms",
        "page_p99_ms", "viewer_mb",
    )  # fmt: skip
    comparison = Comparison(title, measures, "cpu_us", (NOBODY,))
    root = folder / "view-root"
    cores = os.sched_getaffinity(0)
    with ForegroundDaemon(root) as daemon, viewing(Steno(root)) as viewer, chromium() as browser:
        try:
            for number in range(rounds):
                for name, values in _rows(daemon, viewer, browser, str(number)):
                    comparison.add(name, values)
                report(f"{title}: round {number + 1}")
        finally:
            os.sched_setaffinity(0, cores)
    return [comparison]


def _rows(
    daemon: ForegroundDaemon, viewer: RunningViewer, browser: "Browser", number: str
) -> Iterator[tuple[str, dict[str, float]]]:
    with _stopped(viewer):
        yield NOBODY, _follow(daemon, f"alone-{number}", None)
        for name, pace_ms in FOLLOWERS.items():
            yield name, _follow(daemon, f"followed-{number}-{pace_ms}", pace_ms)
    for pages in PAGES:
        name = f"{pages} pages" if pages != 1 else "1 page"
        yield name, _view(daemon, viewer, browser, f"viewed-{number}-{pages}", pages)
        if pages:
            session = f"shared-{number}-{pages}"
            values = _view(daemon, viewer, browser, session, pages, is_apart=False)
            yield f"{name}, all cores", values


@contextmanager
def _stopped(viewer: RunningViewer) -> Generator[None]:
    """Nothing of the viewer runs, as if there were none."""
    os.kill(viewer.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(viewer.process.pid, signal.SIGCONT)


def _follow(daemon: ForegroundDaemon, session: str, pace_ms: int | None) -> dict[str, float]:
    """One run beside a follower that decodes the events and does nothing else."""
    with steno.connect_sync(daemon.root, spawn=False) as client, ExitStack() as stack:
        opened = client.open(session, follow=False)
        if pace_ms is not None:
            lines = SECONDS * RECORDS_PER_S
            command = [sys.executable, "-m", "bench.followers", daemon.endpoint, session, "1",
                       str(lines), str(pace_ms)]  # fmt: skip
            follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.enter_context(follower)
            assert follower.stdout is not None
            assert follower.stdout.readline() == "live\n"
            # The follower ends after it has written when it saw each line.
            stack.callback(follower.stdout.readline)
        return _timed_write(daemon, opened)[0]


def _view(
    daemon: ForegroundDaemon,
    viewer: RunningViewer,
    browser: "Browser",
    session: str,
    pages: int,
    *,
    is_apart: bool = True,
) -> dict[str, float]:
    # The pages' processes start on the cores of the browser.
    _place(daemon.pid, is_apart=False)
    with steno.connect_sync(daemon.root, spawn=False) as client, ExitStack() as stack:
        opened = client.open(session, follow=False)
        opened.append_message({"role": "user", "content": "begin"})
        watching: list[ViewerPage] = []
        for _ in range(pages):
            page = ViewerPage(browser, f"{viewer.next_address()}&session={session}")
            stack.callback(page.close)
            page.wait_for_text("begin")
            page.page.evaluate(_WATCH)
            watching.append(page)
        values, acked_s = _timed_write(daemon, opened, is_apart=is_apart)
        values["viewer_mb"] = resident_bytes(viewer.process.pid) / 1e6
        delays_ms = [] if is_apart else _delays_ms(watching, acked_s)
    if delays_ms:
        values["page_p50_ms"] = percentile(delays_ms, 0.5)
        values["page_p99_ms"] = percentile(delays_ms, 0.99)
    return values


def _delays_ms(pages: Sequence[ViewerPage], acked_s: Sequence[float]) -> list[float]:
    """From the acknowledgement of each record to its row on each page, sorted."""
    for page in pages:
        page.wait_for_text(f"record {len(acked_s)}.")
    return sorted(
        at_ms - acked_s[int(line) - 1] * 1000
        for page in pages
        for line, at_ms in _seen(page).items()
        if int(line) > 0
    )


def _timed_write(
    daemon: ForegroundDaemon, session: steno.BlockingSession, *, is_apart: bool = True
) -> tuple[dict[str, float], list[float]]:
    """Write, and return the figures and when each record was acknowledged."""
    # Whatever follows has its processes by now.
    _place(daemon.pid, is_apart=is_apart)
    cpu_s = _cpu_s(daemon.pid), time.process_time()
    took_us, acked_s = _write(session)
    daemon_s, writer_s = _cpu_s(daemon.pid) - cpu_s[0], time.process_time() - cpu_s[1]
    acks = len(took_us)
    values = {
        "cpu_us": (daemon_s + writer_s) / acks * 1e6,
        "daemon_us": daemon_s / acks * 1e6,
        "writer_us": writer_s / acks * 1e6,
        "append_p50_us": percentile(took_us, 0.5),
        "append_p99_us": percentile(took_us, 0.99),
    }
    return values, acked_s


def _write(session: steno.BlockingSession) -> tuple[list[float], list[float]]:
    """Write at the given rate; the sorted durations of the appends, and when each record was."""
    took_us: list[float] = []
    acked_s: list[float] = []
    due_s = time.monotonic()
    for _ in range(SECONDS * RECORDS_PER_S // BATCH):
        wait_until(due_s)
        due_s += BATCH / RECORDS_PER_S
        first = len(acked_s) + 1
        records = [
            {"role": "user", "content": f"record {first + number}. {'x' * 200}"}
            for number in range(BATCH)
        ]
        began_s = time.monotonic()
        session.append_message(records)
        took_us.append((time.monotonic() - began_s) * 1e6)
        acked_s += [time.time()] * BATCH
    return sorted(took_us), acked_s


def _seen(page: ViewerPage) -> dict[str, float]:
    found: Any = page.page.evaluate("() => window.seen")
    return dict(found)


def _cpu_s(pid: int) -> float:
    """The CPU time of a process and the kernel's for it, to the nanosecond."""
    # As `clock_getcpuclockid` makes it, which Python does not have.
    return time.clock_gettime((~pid << 3) | 2)


def _place(daemon: int, *, is_apart: bool) -> None:
    """Give the daemon and this process the first core and their neighbours the others, or all all.

    The neighbours always get the lowest priority.
    """
    cores = set(range(os.cpu_count() or 1))
    measured, others = ({min(cores)}, cores - {min(cores)} or cores) if is_apart else (cores, cores)
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            parents[int(entry.parent.name)] = int(fields[1])
    for pid in parents:
        is_measured = pid in {os.getpid(), daemon}
        if not is_measured and not _is_descendant(pid, parents):
            continue
        for thread in _threads(pid):
            with suppress(OSError):
                os.sched_setaffinity(thread, measured if is_measured else others)
                if not is_measured:
                    os.setpriority(os.PRIO_PROCESS, thread, 19)


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    return []


def _is_descendant(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False

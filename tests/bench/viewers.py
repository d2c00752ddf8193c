"""The delay from an acknowledgement to the page of a viewer, and the cost of pages to the writer.

The rounds alternate without and with pages. The browser and the viewer run at the lowest priority,
so that on a few cores their share does not count as the writer's cost. The figure that no other
process can move is `cpu_us`: CPU time of the daemon and of the writer for each acknowledgement.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import steno
from bench.figures import Comparison, percentile
from support.browser import ViewerPage, chromium, program
from support.command import Steno
from support.foreground import ForegroundDaemon
from support.pacing import wait_until
from support.viewer import RunningViewer, viewing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES: Final = (0, 1, 20)
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
    comparison = Comparison(title, measures, "cpu_us", (_name(0),))
    root = folder / "view-root"
    with ForegroundDaemon(root) as daemon, viewing(Steno(root)) as viewer, chromium() as browser:
        for number in range(rounds):
            for pages in PAGES:
                session = f"viewed-{number}-{pages}"
                values = _round(daemon, viewer, browser, session, pages)
                comparison.add(_name(pages), values)
            report(f"{title}: round {number + 1}")
    return [comparison]


def _name(pages: int) -> str:
    return f"{pages} pages" if pages != 1 else "1 page"


def _round(
    daemon: ForegroundDaemon, viewer: RunningViewer, browser: "Browser", session: str, pages: int
) -> dict[str, float]:
    with steno.connect_sync(daemon.root, spawn=False) as client, ExitStack() as stack:
        opened = client.open(session, follow=False)
        opened.append_message({"role": "user", "content": "begin"})
        watching: list[ViewerPage] = []
        for _ in range(pages):
            page = ViewerPage(browser, f"{viewer.visit.printed}&session={session}")
            stack.callback(page.close)
            page.wait_for_text("begin")
            page.page.evaluate(_WATCH)
            watching.append(page)
        # The pages have processes of their own, which exist by now.
        _yield_to_others({os.getpid(), daemon.pid})
        cpu_s = _cpu_s(daemon.pid), time.process_time()
        took_us, acked_s = _write(opened)
        daemon_s, writer_s = _cpu_s(daemon.pid) - cpu_s[0], time.process_time() - cpu_s[1]
        for page in watching:
            page.wait_for_text(f"record {len(acked_s)}.")
        delays_ms = sorted(
            at_ms - acked_s[int(line) - 1] * 1000
            for page in watching
            for line, at_ms in _seen(page).items()
            if int(line) > 0
        )
    acks = len(took_us)
    values = {
        "cpu_us": (daemon_s + writer_s) / acks * 1e6,
        "daemon_us": daemon_s / acks * 1e6,
        "writer_us": writer_s / acks * 1e6,
        "append_p50_us": percentile(took_us, 0.5),
        "append_p99_us": percentile(took_us, 0.99),
        "viewer_mb": _resident_mb(viewer.process.pid),
    }
    if delays_ms:
        values["page_p50_ms"] = percentile(delays_ms, 0.5)
        values["page_p99_ms"] = percentile(delays_ms, 0.99)
    return values


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
    """The CPU time of a process and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _yield_to_others(kept: set[int]) -> None:
    """Give the descendants of this process but some the lowest priority, each of their threads."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            parents[int(entry.parent.name)] = int(fields[1])
    for pid in parents:
        if pid not in kept and _is_descendant(pid, parents):
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)


def _is_descendant(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000

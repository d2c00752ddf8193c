"""Screenshots of every view of `steno view`, wide and narrow, light and dark.

PYTHONPATH=tests python -m tools.viewer_screenshots FOLDER
"""

import json
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.agent_files import (
    AT,
    CODEX,
    claude_answer,
    claude_file,
    claude_node,
    codex_file,
    codex_line,
    write_lines,
)
from support.browser import NARROW, WIDE, ViewerPage, chromium, program
from support.command import Steno
from support.daemons import end_daemon_of
from support.viewer import viewing
from support.viewer_session import write_session

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VIEWS = {
    "overview": ("#/", ".run .below"),
    "transcript": ("#/s/demo/transcript/0:12", ".marked"),
    "live": ("#/s/demo/transcript", ".cut, .last"),
    "tree": ("#/s/demo/tree", ".generation"),
    "compare": ("#/s/demo/compare/0:32/1:25", ".added .message"),
    "events": ("#/s/demo/wire", ".event.trouble"),
    "search": ("#/search/q=tests+pass", ".result"),
    "now": ("#/now", ".health li"),
    "usage": ("#/usage", "table tbody tr"),
}
"""The address of each view, and an element that it has once it is complete."""


def take(folder: Path) -> list[Path]:
    """Write a session, show it, and save a picture of each view; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="steno-") as root, chromium() as browser:
        steno = Steno(Path(root, "root"), XDG_CACHE_HOME=str(Path(root, "cache")))
        try:
            write_session(steno.root, "demo")
            write_agents(Path(root, "home"))
            for place in (".claude/projects", ".codex/sessions", ".pi/agent/sessions"):
                steno("import", str(Path(root, "home", place)))
            with viewing(steno, "--write") as viewer:
                return [
                    file
                    for scheme in ("light", "dark")
                    for name, size in (("wide", WIDE), ("narrow", NARROW))
                    for file in _views(
                        browser, viewer.next_address(), folder, f"{name}-{scheme}", size, scheme
                    )
                ]
        finally:
            end_daemon_of(steno.root)


def write_agents(home: Path) -> None:
    """Write what three agents do at the moment: one has a subagent, and one a failed call."""
    failed = {"type": "tool_result", "tool_use_id": "t", "is_error": True,
              "content": "1 failed: test_the_till_opens"}  # fmt: skip
    words = "The till opens now. I look for a test that fails without the change."
    shop = claude_file(
        home,
        claude_answer("3", "2", "The test fails without the change."),
        claude_node("4", "3", "user", [failed]),
        claude_answer("5", "4", words),
    )
    asked = claude_node("9", None, "user", "Find each place that opens the till", isSidechain=True)
    found = claude_answer("10", "9", "Two places: till.py and door.py.", isSidechain=True)
    write_lines(shop.with_suffix("") / "subagents" / "agent-7.jsonl", [asked, found])
    said = [{"type": "output_text", "text": "The oven keeps 220 degrees; the bread is in it."}]
    message = {"type": "message", "role": "assistant", "content": said}
    codex_file(home, codex_line("response_item", message), cwd="/srv/bakery")
    entry: dict[str, Any] = {"type": "session", "version": 3, "id": CODEX, "cwd": "/srv/shop"}
    write_lines(
        home / ".pi/agent/sessions/--srv-shop--" / f"2026-11-21T10-00-00-000Z_{CODEX}.jsonl",
        [
            entry,
            _said("1", None, "user", "Write the words for the receipt"),
            _said("2", "1", "assistant", "The receipt thanks, names the shop, and has the sum."),
        ],
    )
    _begin_now(home)


def _said(identity: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
    if role == "assistant":
        usage = {"input": 4100, "output": 260, "cacheRead": 0, "cacheWrite": 0}
        message |= {"model": "pi-test-1", "usage": usage}
    return {"type": "message", "id": identity, "parentId": parent, "message": message}


def _begin_now(home: Path) -> None:
    """Let all records be of the last minutes."""
    now = datetime.now(UTC)
    for file in home.rglob("*.jsonl"):
        lines = file.read_text().splitlines()
        times = [now - timedelta(seconds=7 * (len(lines) - at)) for at in range(len(lines))]
        records = [
            json.loads(line.replace(AT, f"{at:%Y-%m-%dT%H:%M:%S.000Z}"))
            for line, at in zip(lines, times, strict=True)
        ]
        for record, at in zip(records, times, strict=True):
            record.setdefault("timestamp", f"{at:%Y-%m-%dT%H:%M:%S.000Z}")
        write_lines(file, records)


def _views(
    browser: "Browser", printed: str, folder: Path, name: str, size: dict[str, int], scheme: str
) -> list[Path]:
    page = ViewerPage(browser, printed, viewport=size, color_scheme=scheme)
    files: list[Path] = []
    for view, (address, selector) in VIEWS.items():
        page.show(address)
        page.page.wait_for_selector(selector)
        page.wait_for("() => !document.querySelector('.row-wait')")
        page.wait_for("() => document.querySelector('.numbers').textContent.includes('tokens')")
        file = folder / f"{view}-{name}.png"
        page.page.screenshot(path=file)
        files.append(file)
    page.close()
    return files


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.viewer_screenshots FOLDER")
    if program() is None:
        sys.exit("there is no chromium on the PATH: install the distribution's")
    for taken in take(Path(sys.argv[1])):
        print(taken)

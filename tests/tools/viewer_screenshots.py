"""Screenshots of every view of `steno view`, wide and narrow, light and dark.

PYTHONPATH=tests python -m tools.viewer_screenshots FOLDER
"""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from support.browser import NARROW, WIDE, ViewerPage, chromium, program
from support.command import Steno
from support.daemons import end_daemon_of
from support.viewer import viewing
from support.viewer_session import write_session

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VIEWS = {
    "sessions": ("#/", ".session"),
    "transcript": ("#/s/demo/transcript/0:12", ".marked"),
    "live": ("#/s/demo/transcript", ".cut, .last"),
    "tree": ("#/s/demo/tree", ".generation"),
    "compare": ("#/s/demo/compare/0:32/1:25", ".added .message"),
    "events": ("#/s/demo/wire", ".event.trouble"),
    "search": ("#/search/q=tests+pass", ".result"),
    "now": ("#/now", ".health li"),
}
"""The address of each view, and an element that it has once it is complete."""


def take(folder: Path) -> list[Path]:
    """Write a session, show it, and save a picture of each view; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="steno-") as root, chromium() as browser:
        steno = Steno(Path(root, "root"), XDG_CACHE_HOME=str(Path(root, "cache")))
        try:
            write_session(steno.root, "demo")
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

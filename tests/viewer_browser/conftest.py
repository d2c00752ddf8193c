"""Fixtures of the tests in a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.browser import ViewerPage, chromium
from support.command import Steno
from support.viewer import RunningViewer, viewing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., ViewerPage]
"""Opens the page of a viewer: the session to show first, and options of the browser's context."""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """One browser for the tests of a module.

    Not for a whole process: while it is open, playwright's event loop counts as the running one of
    the thread, and the tests that follow there could not begin one.
    """
    with chromium() as found:
        yield found


@pytest.fixture
def steno(root: Path, tmp_path: Path) -> Steno:
    """The command on a root and with a cache folder of this test's own."""
    return Steno(root, XDG_CACHE_HOME=str(tmp_path))


@pytest.fixture
def viewer(steno: Steno) -> Iterator[RunningViewer]:
    """A viewer on the root."""
    steno("start")
    with viewing(steno) as running:
        yield running


@pytest.fixture
def open_page(browser: "Browser", viewer: RunningViewer) -> Iterator[Open]:
    """Pages of one viewer; at the end no page may have met an error."""
    pages: list[ViewerPage] = []

    def open_one(session: str = "", **options: Any) -> ViewerPage:
        at = f"&session={session}" if session else ""
        page = ViewerPage(browser, viewer.next_address() + at, **options)
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        page.close()

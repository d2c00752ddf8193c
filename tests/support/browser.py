"""A headless Chromium of the distribution, driven through Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 400, "height": 800}
WAIT_MS = 30_000
"""The page shows everything long before; more is a failure."""

TALL = {"width": 1280, "height": 16_000}
"""A window in which some 250 rows are in sight at once, each step of a long transcript."""

_GATHER = """
async () => {
  // Scrolls through the whole transcript and collects each row once it has arrived.
  const scroller = document.querySelector(".transcript");
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const rows = new Map();
  const twice = [];
  // The new size of the window makes the list paint once more, and it may still follow its end.
  do {
    scroller.scrollTop = 0;
    await frame();
  } while (scroller.scrollTop > 0);
  for (;;) {
    await frame();
    const frameOf = scroller.getBoundingClientRect();
    const isInSight = (each) => {
      const { top, bottom } = each.getBoundingClientRect();
      return bottom > frameOf.top && top < frameOf.bottom;
    };
    const articles = [...scroller.querySelectorAll("article[data-line]")];
    // Rows just out of sight are made, and wait for their records until they come into sight.
    const waiting = articles.filter((each) => each.querySelector(".row-wait"));
    if (waiting.some(isInSight)) continue;
    const seen = new Set();
    for (const each of articles) {
      const line = Number(each.dataset.line);
      if (seen.has(line)) twice.push(line);
      seen.add(line);
      if (waiting.includes(each)) continue;
      const shown = each.querySelector(".message, .rule").cloneNode(true);
      for (const end of shown.querySelectorAll(".end")) end.remove();
      rows.set(line, shown.textContent);
    }
    const bottom = scroller.scrollHeight - scroller.clientHeight;
    if (scroller.scrollTop >= bottom - 1) break;
    scroller.scrollTop = Math.min(bottom, scroller.scrollTop + scroller.clientHeight * 0.9);
  }
  return { rows: [...rows].sort((one, other) => one[0] - other[0]), twice };
}
"""


def program() -> str | None:
    """The path of a Chromium; None if there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser; the test is skipped, with the reason, where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="it comes with the extra `view-test`"
    )
    found = program()
    if found is None:
        pytest.skip("there is no chromium on the PATH")
    with playwright.sync_playwright() as driver:
        # As root, Chromium has no sandbox; the tests load nothing but the viewer.
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class ViewerPage:
    """A page of the viewer, and everything that went wrong on it.

    Args:
        browser: the browser.
        printed: the address that the viewer printed.
        options: of the browser's context, such as `color_scheme`.

    Attributes:
        page: the page.
        errors: exceptions of its scripts, and messages of its console that are errors.
        requests: the addresses that it asked for.
        printed: the address that the viewer printed.
    """

    def __init__(self, browser: "Browser", printed: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": WIDE, **options})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.printed = printed
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", lambda request: self._requested(request.url))
        self.page.goto(printed)

    @classmethod
    def of_file(cls, context: "BrowserContext", file: Path, **options: Any) -> "ViewerPage":
        """A page that shows an exported file."""
        browser = context.browser
        assert browser is not None
        return cls(browser, file.as_uri(), **options)

    def show(self, address: str) -> None:
        """Go to a view, named by the fragment of its address."""
        self.page.evaluate("address => { location.hash = address }", address)

    def wait_for(self, script: str, value: object = None) -> None:
        """Wait until a function of JavaScript returns a true value."""
        self.page.wait_for_function(script, arg=value)

    def wait_for_text(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.wait_for("text => document.body.innerText.includes(text)", text)

    def transcript(self) -> list[tuple[int, str]]:
        """Line and text of every row, read by scrolling; none may be there twice at once."""
        size = self.page.viewport_size
        self.page.set_viewport_size(TALL)  # type: ignore[arg-type]  # a dict of the same keys
        try:
            found: Any = self.page.evaluate(_GATHER)
        finally:
            if size is not None:
                self.page.set_viewport_size(size)
        assert found["twice"] == []
        return [(line, text) for line, text in found["rows"]]

    def violations(self) -> list[str]:
        """What axe-core finds on the page that is serious or worse."""
        axe = pytest.importorskip(
            "axe_playwright_python", reason="it comes with the extra `view-test`"
        )
        # As the driver, which no policy of the page binds; the page itself loads no such script.
        self.page.evaluate((resources.files(axe) / "axe.min.js").read_text())
        found: dict[str, Any] = self.page.evaluate("() => axe.run()")
        return [
            f"{each['id']}: {node['html']}"
            for each in found["violations"]
            if each["impact"] in {"serious", "critical"}
            for node in each["nodes"]
        ]

    def violations_in_both_schemes(self) -> list[str]:
        """What axe-core finds on the page in the light and in the dark."""
        found: list[str] = []
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # of these
            found += [f"{scheme}: {each}" for each in self.violations()]
        return found

    def close(self) -> None:
        """Close the page; nothing may have gone wrong on it."""
        self.context.close()
        assert self.errors == []

    def _requested(self, address: str) -> None:
        # An address inside the page asks nobody.
        if not address.startswith("blob:"):
            self.requests.append(address)

    def _note(self, message: Any) -> None:
        # The browser logs requests that fail while the daemon is away; the page repeats them.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

"""Changes from the page, with `steno view --write`."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.browser import ViewerPage
from support.command import Steno
from support.viewer import viewing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OpenPage = Callable[..., ViewerPage]
NUMBERS = "**/api/session?session=talk"
"""The address of title, labels and numbers."""


@pytest.fixture
def talk(steno: Steno, browser: "Browser") -> Iterator[ViewerPage]:
    """The page of a session with one checkpoint, in a viewer that may write."""
    steno("append", "talk", "stays", "--create")
    steno("checkpoint", "talk")
    steno("append", "talk", "goes")
    with viewing(steno, "--write", "talk") as viewer:
        page = ViewerPage(browser, viewer.next_address())
        page.wait_for_text("goes")
        yield page
        page.close()


def head(steno: Steno) -> str:
    return str(steno("--json", "stat", "talk").document["head"])


def test_a_page_without_the_option_offers_no_change(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "one", "--create")
    steno("checkpoint", "talk")
    page = open_page("talk")
    page.wait_for_text("checkpoint 0")
    assert page.page.locator("text=Change").count() == 0
    assert page.page.locator(".acts").count() == 0


def test_a_revert_says_what_will_go_and_can_be_restored(steno: Steno, talk: ViewerPage) -> None:
    talk.page.click(".rule.checkpoint >> text=Revert")
    says = talk.page.inner_text("dialog")
    assert "2 lines, from 0:1 to 0:3" in says
    assert "generation 0" in says
    assert talk.violations() == []
    assert head(steno) == "0:3"
    talk.page.fill("dialog input", "wrong turn")
    talk.page.click("dialog .go")
    talk.wait_for_text("reverted to checkpoint 0")
    talk.wait_for_text("wrong turn")
    assert head(steno) == "1:1"
    talk.show("#/s/talk/tree")
    talk.page.click(".generation >> text=Restore")
    assert "its 3 lines the present ones" in talk.page.inner_text("dialog")
    talk.page.click("dialog .go")
    talk.page.wait_for_selector("text=Generation 2")
    assert head(steno) == "2:3"


def test_a_change_of_a_session_that_moved_on_is_refused(steno: Steno, talk: ViewerPage) -> None:
    talk.page.click(".rule.checkpoint >> text=Revert")
    steno("append", "talk", "meanwhile")
    talk.wait_for_text("meanwhile")
    talk.page.click("dialog .go")
    talk.page.wait_for_selector("dialog .trouble:not([hidden])")
    assert "Nothing was changed" in talk.page.inner_text("dialog .trouble")
    assert head(steno) == "0:4"
    talk.page.keyboard.press("Escape")
    talk.page.wait_for_selector("dialog", state="detached")


def test_checkpoint_title_and_fork_are_in_the_menu(steno: Steno, talk: ViewerPage) -> None:
    for entry in ("Set a checkpoint", "Title", "Labels", "Fork"):
        talk.page.click("summary:has-text('Change')")
        talk.page.click(f".menu .panel button:has-text('{entry}')")
        if entry in {"Title", "Labels"}:
            talk.page.fill("dialog input", f"new-{entry.lower()}")
        talk.page.click("dialog .go")
        talk.page.wait_for_selector("dialog", state="detached")
        if entry == "Set a checkpoint":
            # The fork takes the end that the page shows.
            talk.wait_for_text("4 lines")
        if entry == "Labels":
            talk.wait_for_text("#new-labels")
    talk.wait_for("() => location.hash === '#/s/talk-fork/transcript'")
    stat = steno("--json", "stat", "talk").document
    assert (stat["head"], stat["title"], stat["labels"]) == ("0:4", "new-title", ["new-labels"])
    assert steno("--json", "stat", "talk-fork").document["head"].endswith(":4")


def change(page: ViewerPage, entry: str, text: str) -> None:
    """Change the title or the labels, and wait until the dialog has closed."""
    page.page.click("summary:has-text('Change')")
    page.page.click(f".menu .panel button:has-text('{entry}')")
    page.page.fill("dialog input", text)
    page.page.click("dialog .go")
    page.page.wait_for_selector("dialog", state="detached")


def test_a_change_is_on_the_page_when_its_dialog_closes(talk: ViewerPage) -> None:
    for title in ("first title", "second title"):
        change(talk, "Title", title)
        assert talk.page.inner_text("h1") == title
    for label in ("first", "second"):
        change(talk, "Labels", label)
        assert f"#{label}" in talk.page.inner_text(".facts")


def test_an_older_answer_that_comes_late_takes_no_title_back(
    steno: Steno, talk: ViewerPage
) -> None:
    held: list[Any] = []
    talk.page.route(NUMBERS, lambda route: held.append((route, route.fetch())), times=1)
    with talk.page.expect_request(NUMBERS):
        assert steno("append", "talk", "more").code == 0
    change(talk, "Title", "new title")
    ((late, answer),) = held
    with talk.page.expect_response(NUMBERS):
        late.fulfill(response=answer)
    talk.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert talk.page.inner_text("h1") == "new title"


def test_a_title_of_another_client_appears_on_the_page(steno: Steno, talk: ViewerPage) -> None:
    assert steno("title", "talk", "of another client").code == 0
    talk.page.wait_for_selector("h1:has-text('of another client')")
    change(talk, "Title", "of this page")
    assert talk.page.inner_text("h1") == "of this page"

"""The search in a real browser: the way to a record, the keyboard, links, and hostile texts."""

from collections.abc import Callable
from typing import Any

from support.browser import ViewerPage
from support.command import Steno

OpenPage = Callable[..., ViewerPage]

SEARCH = "**/api/search?*"
ATTACK = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"


def results(page: ViewerPage) -> list[str]:
    return page.page.locator(".result .snippet").all_inner_texts()


def test_the_search_leads_to_the_record(steno: Steno, open_page: OpenPage) -> None:
    lines = "".join(f'{{"role":"user","content":"line {number}"}}\n' for number in range(200))
    assert steno("append", "long", "--batch", "--create", stdin=lines).code == 0
    assert steno("append", "long", f"a zebra {ATTACK} at night").code == 0
    assert steno("append", "other", "another Zebra", "--create", "--role", "assistant").code == 0
    page = open_page()
    page.page.wait_for_selector(".session")
    page.page.press("body", "/")
    page.page.wait_for_selector("#search-words:focus")
    page.page.keyboard.type("zebra")
    page.page.wait_for_selector(".result mark")
    page.wait_for("() => document.querySelectorAll('.result').length === 2")
    assert f"a zebra {ATTACK} at night" in results(page)
    assert {each.lower() for each in page.page.locator("mark").all_inner_texts()} == {"zebra"}
    # The address is that of this search, and opens it elsewhere.
    address = page.page.evaluate("() => location.hash")
    page.page.select_option(".for-role select", "assistant")
    page.wait_for("() => document.querySelectorAll('.result').length === 1")
    assert results(page) == ["another Zebra"]
    other = open_page()
    other.show(address)
    other.wait_for("() => document.querySelectorAll('.result').length === 2")
    other.page.fill(".for-session input", "long")
    other.wait_for("() => document.querySelectorAll('.result').length === 1")
    other.page.press(".for-session input", "ArrowDown")
    other.page.wait_for_selector(".result a:focus")
    other.page.keyboard.press("Enter")
    other.page.wait_for_selector(".marked .message:has-text('a zebra <img')")
    assert other.page.evaluate("() => location.hash").startswith("#/s/long/transcript/0:")
    # Back leads to the results.
    other.page.go_back()
    other.wait_for("() => document.querySelectorAll('.result').length === 1")
    for each in (page, other):
        assert each.page.evaluate("() => window.hit ?? null") is None


def test_results_that_the_reader_has_entered_meanwhile_stay(
    steno: Steno, open_page: OpenPage
) -> None:
    assert steno("append", "talk", "an okapi", "--create").code == 0
    page = open_page()
    page.show("#/search/q=okapi")
    page.page.wait_for_selector(".result mark")
    # It is told once that the index is complete: from then on nothing but a record renews it.
    page.wait_for("() => document.querySelector('.index').hidden")
    held: list[Any] = []
    page.page.route(SEARCH, lambda route: held.append(route), times=1)  # noqa: PLW0108 - a builtin is no handler
    with page.page.expect_request(SEARCH):
        assert steno("append", "talk", "another okapi").code == 0
    page.page.focus(".result a")
    with page.page.expect_response(SEARCH):
        held[0].continue_()
    page.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert page.page.evaluate("() => document.activeElement.matches('.result a')")
    assert results(page) == ["an okapi"]


def test_results_follow_what_agents_write(steno: Steno, open_page: OpenPage) -> None:
    assert steno("append", "talk", "nothing yet", "--create").code == 0
    page = open_page()
    page.show("#/search/q=okapi")
    page.wait_for_text("Nothing found.")
    assert steno("append", "talk", "the okapi sleeps").code == 0
    page.page.wait_for_selector(".result mark")
    assert results(page) == ["the okapi sleeps"]
    page.page.fill("#search-words", "++")
    page.wait_for_text("there is no word")

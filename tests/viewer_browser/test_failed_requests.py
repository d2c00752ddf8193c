"""Views whose first request fails."""

from collections.abc import Callable

import steno as steno_client
from support.browser import ViewerPage
from support.command import Steno

OpenPage = Callable[..., ViewerPage]

VIEWS = {
    "tree": ("/api/tree", ".generation"),
    "wire": ("/api/wire", ".event"),
    "transcript/0:0": ("/api/end", ".marked .message"),
    "compare/0:2/1:1": ("/api/compare", ".pair .rule"),
}
"""The address of each view, its first request, and an element that it shows at last."""


def write_two_generations(steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("talk", follow=False)
        session.append_message({"role": "user", "content": "stays"})
        session.checkpoint()
        session.revert_to(0)
        session.append_wire("TurnBegin", {"user_input": "stays"})


def test_each_view_that_began_without_the_daemon_appears_once_it_is_back(
    steno: Steno, open_page: OpenPage
) -> None:
    write_two_generations(steno)
    pages = {view: open_page("talk") for view in VIEWS}
    for page in pages.values():
        page.wait_for_text("stays")
    assert steno("stop").code == 0
    for view, page in pages.items():
        page.page.wait_for_selector("#away:not([hidden])")
        with page.page.expect_response(
            lambda response, path=VIEWS[view][0]: path in response.url and response.status == 503
        ):
            page.show(f"#/s/talk/{view}")
        assert "the same" not in page.page.inner_text(".view")
    assert steno("start").code == 0
    for view, page in pages.items():
        page.page.wait_for_selector(VIEWS[view][1])


def test_a_generation_that_does_not_exist_is_an_error_on_the_page(
    steno: Steno, open_page: OpenPage
) -> None:
    write_two_generations(steno)
    page = open_page("talk")
    page.wait_for_text("stays")
    page.show("#/s/talk/transcript/99:0")
    page.wait_for_text("there is no generation 99")
    assert "which a rewrite left behind" not in page.page.inner_text(".view")
    page.page.click("text=Back to the present")
    page.page.wait_for_selector(".transcript .message")
    page.show("#/s/talk/compare/99:0/1:1")
    page.wait_for("() => document.querySelector('.view .empty')?.textContent.includes('no gener')")
    assert "the same" not in page.page.inner_text(".view")


def test_events_replace_the_error_of_an_earlier_request(steno: Steno, open_page: OpenPage) -> None:
    write_two_generations(steno)
    page = open_page("talk")
    page.wait_for_text("stays")
    error = '{"error": {"code": "internal", "message": "the index is broken"}}'
    page.page.route("**/api/wire?*", lambda route: route.fulfill(status=500, body=error))
    page.show("#/s/talk/wire")
    page.wait_for_text("the index is broken")
    page.page.unroute("**/api/wire?*")
    with steno_client.connect_sync(steno.root, name="writer") as client:
        client.open("talk", follow=False).append_wire("TurnEnd", {})
    page.page.wait_for_selector(".event:has-text('TurnEnd')")
    assert "the index is broken" not in page.page.inner_text(".view")


def test_the_strip_appears_although_its_first_requests_failed(
    steno: Steno, open_page: OpenPage
) -> None:
    write_two_generations(steno)
    page = open_page()
    page.page.route("**/api/outline?*", lambda route: route.fulfill(status=503), times=2)
    page.show("#/s/talk/transcript")
    page.page.wait_for_selector(".strip .cutmark")

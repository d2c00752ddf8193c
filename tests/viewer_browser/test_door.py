"""How a page gets in, and what other servers of this machine get to know of it."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import steno as steno_client
from support.browser import ViewerPage
from support.command import Steno
from support.viewer import RunningViewer

OpenPage = Callable[..., ViewerPage]

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGA"
    "hKmMIQAAAABJRU5ErkJggg=="
)


@pytest.fixture
def strangers() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Another server on another port of this machine, and the headers that it gets."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>stranger</title><p>another server</p>")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", seen
        server.shutdown()
        thread.join()


def secret_of(page: ViewerPage) -> str:
    (secret,) = page.page.evaluate("() => Object.values(sessionStorage)")
    return str(secret)


def test_a_link_to_another_local_server_brings_it_no_secret(
    steno: Steno, open_page: OpenPage, strangers: tuple[str, list[dict[str, str]]]
) -> None:
    address, seen = strangers
    steno("append", "talk", f"see [this page]({address})", "--create")
    page = open_page("talk")
    page.page.wait_for_selector(".message a[target]")
    with page.context.expect_page() as opened:
        page.page.click("text=this page")
    opened.value.wait_for_selector("text=another server")
    secret, own = secret_of(page), page.page.url.partition("#")[0]
    visit = next(each for each in seen if each["sec-fetch-dest"] == "document")
    assert visit.keys().isdisjoint({"cookie", "referer", "authorization", "origin"})
    for headers in seen:
        assert "cookie" not in headers
        assert secret not in str(headers)
        assert own not in str(headers)
    assert page.context.cookies() == []
    assert page.page.evaluate("() => document.cookie") == ""


def test_a_used_address_opens_nothing_and_a_reload_stays_in(
    steno: Steno, viewer: RunningViewer, open_page: OpenPage
) -> None:
    steno("append", "talk", "secret words", "--create")
    page = open_page("talk")
    page.wait_for_text("secret words")
    assert "token" not in page.page.url
    assert page.page.evaluate("() => history.length") <= 2
    page.page.reload()
    page.wait_for_text("secret words")
    browser = page.context.browser
    assert browser is not None
    stranger = ViewerPage(browser, page.printed)
    stranger.page.wait_for_selector("[role=alert]")
    assert "shows the address that works now" in stranger.page.inner_text("#main")
    assert "talk" not in stranger.page.inner_text("body")
    assert "token" not in stranger.page.url
    # The page that was closed opens with the next address.
    stranger.page.goto(f"{viewer.next_address()}&session=talk")
    stranger.wait_for_text("secret words")
    assert "token" not in stranger.page.url
    stranger.close()


def test_an_address_pasted_into_an_open_page_opens_its_session(
    steno: Steno, viewer: RunningViewer, open_page: OpenPage
) -> None:
    for session in ("one", "two", "three"):
        steno("append", session, f"words of {session}", "--create")
    page = open_page("one")
    page.wait_for_text("words of one")
    pasted = f"{viewer.next_address()}&session=two"
    page.page.goto(pasted)
    page.wait_for_text("words of two")
    # Used up, it still leads an open page to what it names.
    page.page.goto(pasted.replace("session=two", "session=three"))
    page.wait_for_text("words of three")
    assert page.page.url.endswith("#/s/three/transcript")
    viewer.next_address()


def test_a_second_tab_gets_in_through_the_first_one(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "secret words", "--create")
    page = open_page("talk")
    page.wait_for_text("secret words")
    tab = page.context.new_page()
    tab.goto(page.page.url)
    tab.wait_for_function("() => document.body.innerText.includes('secret words')")


def test_images_and_files_are_fetched_with_the_token(steno: Steno, open_page: OpenPage) -> None:
    steno("start")
    with steno_client.connect_sync(steno.root, name="writer") as client:
        part = {"type": "image_url", "image_url": {"url": PNG}}
        client.open("seen").append_message({"role": "user", "content": [part]})
    page = open_page("seen")
    page.wait_for("() => document.querySelector('figure img')?.naturalWidth === 1")
    page.page.click("summary:has-text('Export')")
    with page.page.expect_download() as downloaded:
        page.page.click(".panel >> text=JSON")
    assert downloaded.value.suggested_filename == "seen-0-1.json"
    assert PNG in downloaded.value.path().read_text()
    # The token is in no address.
    secret = secret_of(page)
    assert [each for each in page.requests if secret in each] == []

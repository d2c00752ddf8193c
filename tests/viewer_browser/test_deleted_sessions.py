"""Pages whose session is deleted, undeleted and created anew."""

from collections.abc import Callable, Iterator

import pytest

import steno as steno_client
from steno import BlockingClient
from support.browser import ViewerPage
from support.command import Steno

OpenPage = Callable[..., ViewerPage]


@pytest.fixture
def client(steno: Steno) -> Iterator[BlockingClient]:
    with steno_client.connect_sync(steno.root, name="writer") as found:
        yield found


def write(client: BlockingClient, text: str) -> None:
    """Write a session with one record and two events."""
    session = client.open("talk", follow=False)
    session.append_message({"role": "user", "content": text})
    session.append_wire("TurnBegin", {"user_input": f"{text} input"})
    session.append_wire(f"{text}Event", {"text": f"{text} payload"})


def wait_for_notice(page: ViewerPage) -> None:
    page.page.wait_for_selector(".notice:not([hidden])")
    assert page.page.locator(".notice:visible").count() == 1


def test_a_session_that_is_created_anew_replaces_the_deleted_one(
    client: BlockingClient, open_page: OpenPage
) -> None:
    write(client, "Old")
    page, events = open_page("talk"), open_page("talk")
    page.wait_for("() => document.querySelector('.transcript').innerText.includes('Old')")
    events.show("#/s/talk/wire")
    events.wait_for_text("Old input")
    # Both have the same number of lines and events of each type.
    client.delete("talk")
    for each in (page, events):
        wait_for_notice(each)
    write(client, "New")
    page.wait_for("() => document.querySelector('.transcript').innerText.includes('New')")
    events.wait_for_text("New input")
    # Its payload has arrived, so that its row is not made anew under the click.
    events.page.wait_for_selector(".event:has-text('NewEvent') a.place")
    events.page.click(".event:has-text('NewEvent') summary")
    events.wait_for_text("New payload")
    for each in (page, events):
        assert "Old" not in each.page.inner_text(".view")
        each.page.wait_for_selector(".notice", state="hidden")


def test_the_notice_of_a_deletion_goes_when_the_session_is_back(
    client: BlockingClient, open_page: OpenPage
) -> None:
    write(client, "Old")
    page = open_page("talk")
    page.wait_for_text("Old")
    for _ in range(2):
        client.delete("talk")
        wait_for_notice(page)
        client.undelete("talk")
        page.page.wait_for_selector(".notice", state="hidden")
    client.open("talk", follow=False).append_message({"role": "user", "content": "More"})
    page.wait_for_text("More")
    assert "Old" in page.page.inner_text(".transcript")

"""The views of the page: their contents, the keyboard, long lists, and axe-core's rules."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steno as steno_client
from support.browser import NARROW, WIDE, ViewerPage
from support.command import Steno
from support.viewer_session import write_session

OpenPage = Callable[..., ViewerPage]
OPEN_S_MAX = 1.0
"""The promise for a transcript of 100 000 records; an idle machine takes a fifth of it."""

OPENINGS_S = 45.0
"""How long one opens it again until it is that quick; without the promise it never is."""


@pytest.fixture
def demo(steno: Steno) -> Steno:
    """A root with a session in which everything has happened."""
    write_session(steno.root, "demo")
    return steno


ADDRESSES = {
    "#/": ".dashboard .run",
    "#/sessions": ".session",
    "#/usage": ".usage td",
    "#/s/demo/transcript": ".message",
    "#/s/demo/transcript/0:3": ".marked",
    "#/s/demo/tree": ".generation",
    "#/s/demo/compare/0:32/1:25": ".pair .message",
    "#/s/demo/wire": ".event",
    "#/now": ".health li",
    "#/search/q=tests+pass": ".result",
}


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_no_serious_violation_in_any_view(
    demo: Steno, open_page: OpenPage, size: dict[str, int]
) -> None:
    page = open_page(viewport=size)
    found: dict[str, list[str]] = {}
    for address, selector in ADDRESSES.items():
        page.show(address)
        page.page.wait_for_selector(selector)
        page.wait_for("() => !document.querySelector('.row-wait')")
        found[address] = page.violations_in_both_schemes()
    assert {address: each for address, each in found.items() if each} == {}


def test_an_exported_file_has_no_serious_violation_and_fits(
    demo: Steno, open_page: OpenPage, tmp_path: Path
) -> None:
    context = open_page().context
    # The fork has thoughts, calls and results, and the session itself an image.
    for session in ("demo", "demo-fork"):
        file = tmp_path / f"{session}.html"
        assert demo("export", session, "--format", "html", "-o", str(file)).code == 0
        page = ViewerPage.of_file(context, file, viewport=NARROW)
        assert page.page.evaluate("() => document.documentElement.scrollWidth") <= NARROW["width"]
        assert page.violations_in_both_schemes() == []
        page.page.evaluate(
            "() => { for (const each of document.querySelectorAll('details')) each.open = true }"
        )
        assert page.violations_in_both_schemes() == []
        widths = "() => [...document.images].map((each) => each.naturalWidth)"
        assert (0 in page.page.evaluate(widths)) is False
        page.close()


def test_an_exported_file_prints_what_is_folded_on_the_screen(
    demo: Steno, open_page: OpenPage, tmp_path: Path
) -> None:
    file = tmp_path / "demo.html"
    assert demo("export", "demo-fork", "--format", "html", "-o", str(file)).code == 0
    page = ViewerPage.of_file(open_page().context, file)
    thought = page.page.locator(".fold.thought .text").first
    assert not thought.is_visible()
    page.page.emulate_media(media="print")
    thought.wait_for(state="visible")
    assert "then decide" in thought.inner_text()
    page.close()


def test_no_view_is_wider_than_a_narrow_screen(demo: Steno, open_page: OpenPage) -> None:
    page = open_page(viewport=NARROW)
    widest: dict[str, int] = {}
    for address, selector in ADDRESSES.items():
        page.show(address)
        page.page.wait_for_selector(selector)
        widths: list[int] = page.page.evaluate(
            "() => [document.documentElement.scrollWidth, innerWidth,"
            " ...[...document.querySelectorAll('.scroller')].map(each => each.scrollWidth)]"
        )
        widest[address] = max(widths)
    assert max(widest.values()) <= NARROW["width"], widest


# The pairs of neighbours in a row that overlap or stand in the wrong order.
_OVERLAPS = """
() => [...document.querySelectorAll(".event")].flatMap((event) => {
  const boxes = [".since", ".type", ".tag", ".took", ".place"]
    .map((name) => event.querySelector(name).getBoundingClientRect());
  return boxes.slice(1).filter((box, index) => box.left < boxes[index].right - 0.5
    || box.right > innerWidth).map(() => event.textContent);
})
"""


def test_long_names_of_events_stay_in_their_places_on_a_narrow_screen(
    steno: Steno, open_page: OpenPage
) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("talk")
        session.append_message({"role": "user", "content": "begin"})
        session.append_wire("TurnBegin", {"user_input": "go"})
        for name in ("Shell", "mcp__github__create_pull_request_review_comment", "F" * 100):
            session.append_wire("ToolCall", {"id": name, "function": {"name": name}})
            session.append_wire("ToolResult", {"tool_call_id": name})
        session.append_wire("E" * 60, {})
    page = open_page(viewport=NARROW)
    page.show("#/s/talk/wire")
    page.page.wait_for_selector(".event .type:has-text('EEE')")
    assert page.page.locator(".event").count() == 8
    assert page.page.evaluate(_OVERLAPS) == []


def test_a_long_word_beside_a_cut_stays_on_a_narrow_screen(
    steno: Steno, open_page: OpenPage
) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("talk")
        session.checkpoint()
        session.append_message({"role": "user", "content": "goes"})
        session.revert_to(0, why="W" * 200)
        session.append_message({"role": "user", "content": "comes"})
    page = open_page("talk", viewport=NARROW)
    page.page.wait_for_selector(".cut")
    assert "WWW" in page.page.inner_text(".cut")
    inside, outside = page.page.evaluate(
        "() => { const cut = document.querySelector('.cut');"
        " return [cut.scrollWidth, cut.clientWidth] }"
    )
    assert inside <= outside


def test_labels_leave_room_for_the_numbers_of_a_session(steno: Steno, open_page: OpenPage) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("talk")
        session.append_message({"role": "user", "content": "one"})
        session.describe(
            title="A talk", labels=[f"label-{number}-" + "x" * 20 for number in "12345678"]
        )
    page = open_page()
    page.page.wait_for_selector(".session .numbers:has-text('token')")
    for size in (WIDE, NARROW):
        page.page.set_viewport_size(size)  # type: ignore[arg-type]  # a dict of the same keys
        right, end = page.page.evaluate(
            "() => ['.numbers', ''].map((name) =>"
            " document.querySelector(`.session ${name}`).getBoundingClientRect().right)"
        )
        assert right <= end


def test_the_age_of_a_session_grows_while_nothing_changes(
    steno: Steno, open_page: OpenPage
) -> None:
    steno("append", "talk", "one", "--create")
    page = open_page()
    # Nothing else makes the row anew after its numbers.
    page.page.wait_for_selector(".session .numbers:has-text('token')")
    page.page.focus(".session")
    page.page.evaluate("() => { const now = Date.now; Date.now = () => now() + 7_200_000 }")
    page.page.wait_for_selector(".session .when:has-text('2 h ago')")
    assert page.page.evaluate("() => document.activeElement.dataset.session") == "talk"


def test_the_late_failure_of_a_page_that_was_left_is_dropped(
    demo: Steno, open_page: OpenPage
) -> None:
    page = open_page()
    page.page.wait_for_selector(".session")
    held: list[Any] = []
    page.page.route("**/api/session?session=nowhere", lambda route: held.append(route))  # noqa: PLW0108 - a builtin is no handler
    with page.page.expect_request("**/api/session?session=nowhere"):
        page.show("#/s/nowhere/transcript")
    page.show("#/s/demo/transcript")
    page.page.wait_for_selector(".message")
    with page.page.expect_response("**/api/session?session=nowhere"):
        held[0].continue_()
    page.show("#/s/demo/tree")
    page.page.wait_for_selector(".generation")
    assert page.page.locator("#main [role=alert]:visible").count() == 0


def test_a_session_that_was_not_there_is_shown_once_it_is(
    steno: Steno, open_page: OpenPage
) -> None:
    page = open_page("talk")
    page.page.wait_for_selector("#main [role=alert]")
    steno("append", "talk", "one", "--create")
    page.show("#/s/talk/tree")
    page.page.wait_for_selector(".generation")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("0:7", "There is no position 0:7: generation 0 ends at 0:1."),
        ("7:0", "7"),
        ("seven", "“seven” is no position"),
    ],
)
def test_a_position_that_does_not_exist_is_said(
    steno: Steno, open_page: OpenPage, address: str, says: str
) -> None:
    steno("append", "talk", "hello", "--create")
    page = open_page("talk")
    page.wait_for_text("hello")
    page.show(f"#/s/talk/transcript/{address}")
    page.page.wait_for_selector(".notice:not([hidden])")
    page.wait_for_text(says)


def test_a_strip_without_a_count_names_no_largest_one(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "hello", "--create")
    steno("checkpoint", "talk")
    steno("revert", "talk", "0")
    page = open_page("talk")
    page.page.wait_for_selector(".strip")
    page.wait_for_text("no token count was written yet")


def test_a_call_without_a_result_is_named_until_it_has_one(
    steno: Steno, open_page: OpenPage
) -> None:
    with steno_client.connect_sync(steno.root) as client:
        session = client.open("talk")
        call = {"id": "c1", "function": {"name": "Shell", "arguments": "{}"}}
        session.append_message({"role": "assistant", "content": "", "tool_calls": [call]})
        page = open_page("talk")
        page.wait_for_text("no result yet of Shell")
        session.append_message({"role": "tool", "tool_call_id": "c1", "content": "a.txt"})
        page.wait_for_text("a.txt")
        page.wait_for("() => !document.querySelector('.open-calls')")


def test_the_strip_leads_to_each_rewrite(demo: Steno, open_page: OpenPage) -> None:
    page = open_page("demo")
    page.page.wait_for_selector(".strip .cutmark")
    labels: list[str] = page.page.evaluate(
        "() => [...document.querySelectorAll('.strip .cutmark')]"
        ".map(each => each.getAttribute('aria-label'))"
    )
    assert [label.split(" by ")[0] for label in labels] == [
        "reverted to checkpoint 4",
        "D-Mail delivered at checkpoint 2",
        "compacted",
    ]
    page.page.focus(".strip .cutmark.reverted")
    page.page.keyboard.press("Enter")
    page.wait_for_text("Generation 1, which a rewrite left behind")
    page.page.wait_for_selector(".marked")


def test_the_keyboard_stays_at_a_rewrite_while_the_strip_is_drawn_anew(
    demo: Steno, open_page: OpenPage
) -> None:
    page = open_page("demo")
    page.page.wait_for_selector(".strip .cutmark")
    page.page.focus(".strip .cutmark.reverted")
    for _ in range(2):
        page.page.evaluate("() => { document.querySelector('.strip').dataset.old = '' }")
        assert demo("append", "demo", "more").code == 0
        page.page.wait_for_selector(".strip:not([data-old])")
        assert page.page.evaluate("() => document.activeElement.matches('.cutmark.reverted')")


def test_the_tree_opens_and_compares_past_states(demo: Steno, open_page: OpenPage) -> None:
    page = open_page("demo")
    page.show("#/s/demo/tree")
    page.page.wait_for_selector(".generation")
    assert page.page.locator(".generation h2 a").all_inner_texts() == [
        f"Generation {number}" for number in (3, 2, 1, 0)
    ]
    boxes = page.page.locator(".choose input")
    boxes.nth(2).check()
    boxes.nth(3).check()
    page.page.click("text=Compare the two")
    page.wait_for_text("21 lines the same")
    page.page.wait_for_selector(".added .message")
    page.page.wait_for_selector(".removed .message")
    page.page.click("text=Show")
    page.page.wait_for_selector(".equal")


def test_events_are_shown_by_turn_and_filtered_by_type(demo: Steno, open_page: OpenPage) -> None:
    page = open_page("demo")
    page.show("#/s/demo/wire")
    page.page.wait_for_selector(".event.trouble")
    page.page.click("button.chip:has-text('ToolResult')")
    page.wait_for("() => !document.querySelector('.event .type')?.textContent.includes('Result')")
    assert "ToolResult" not in page.page.inner_text(".canvas")
    assert page.page.locator(".turn").count() > 1
    event = page.page.locator(".event:has-text('ToolCall')").first
    # Its payload has arrived, so that its row is not made anew under the click.
    event.locator("a.place").wait_for()
    event.locator("summary").click()
    page.wait_for_text('"function"')
    event.locator("a.place").click()
    page.page.wait_for_selector(".marked")


def test_images_are_shown_and_thoughts_unfold(demo: Steno, open_page: OpenPage) -> None:
    page = open_page("demo")
    page.wait_for("() => document.querySelector('figure img')?.naturalWidth > 0")
    page.show("#/s/demo/transcript/0:3")
    page.page.wait_for_selector(".marked .fold.thought")
    assert "then decide" not in page.page.inner_text(".marked")
    page.page.click(".marked .fold.thought summary")
    page.wait_for_text("then decide")


def test_the_keyboard_goes_from_row_to_row_and_session_to_session(
    demo: Steno, open_page: OpenPage
) -> None:
    page = open_page("demo")
    page.page.wait_for_selector(".session")
    page.show("#/s/demo/transcript/0:15")
    page.page.wait_for_selector(".marked")
    page.page.focus(".transcript")
    lines: list[int] = []
    for key in ("k", "k", "k", "j"):
        page.page.keyboard.press(key)
        lines.append(int(page.page.evaluate("() => document.activeElement.dataset.line ?? -1")))
    assert lines[1] == lines[0] - 1 == lines[3]
    assert lines[2] == lines[0] - 2
    page.page.focus("#filter")
    page.page.keyboard.press("ArrowDown")
    first = page.page.evaluate("() => document.activeElement.dataset.session")
    page.page.keyboard.press("ArrowDown")
    assert page.page.evaluate("() => document.activeElement.dataset.session") not in {None, first}


def test_ten_thousand_sessions_are_filtered_as_one_types(steno: Steno, open_page: OpenPage) -> None:
    for number in range(10_000):
        folder = steno.root / "sessions" / f"run-{number:05d}"
        folder.mkdir(parents=True)
        (folder / "context.jsonl").write_bytes(b'{"role":"user","content":"x"}\n')
    page = open_page()
    page.wait_for_text("10 000 sessions")
    assert page.page.locator(".session").count() < 60
    page.page.fill("#filter", "run-07777")
    page.wait_for_text("1 of 10 000 sessions")
    assert page.page.inner_text(".session .title") == "run-07777"
    page.page.fill("#filter", "")
    page.page.evaluate("() => { document.querySelector('#sessions .scroller').scrollTop = 1e9 }")
    page.wait_for("() => document.querySelectorAll('.session').length > 5")
    assert page.page.locator(".session").count() < 60


def test_a_hundred_thousand_records_open_at_once(steno: Steno, open_page: OpenPage) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("long", follow=False)
        for first in range(0, 100_000, 1000):
            session.append_message(
                [{"role": "user", "content": f"record {first + n}"} for n in range(1000)],
                durability="written",
            )
    page = open_page()
    took_s: list[float] = []
    until = time.monotonic() + OPENINGS_S
    while not took_s or (min(took_s) >= OPEN_S_MAX and time.monotonic() < until):
        page.show("#/")
        page.page.wait_for_selector(".transcript", state="detached")
        page.page.wait_for_selector("a[data-session=long]")
        begun = time.monotonic()
        # A row of the list may be made anew under a click of the mouse.
        page.page.evaluate("() => document.querySelector('a[data-session=long]').click()")
        page.wait_for_text("record 99999")
        took_s.append(time.monotonic() - begun)
    # Other tests may run beside this one: no opening is quick while they have the processors.
    assert min(took_s) < OPEN_S_MAX
    assert page.page.locator(".transcript article").count() < 60
    page.show("#/s/long/transcript/0:50000")
    page.wait_for_text("record 50000")
    assert "record 50000" in page.page.inner_text(".marked")

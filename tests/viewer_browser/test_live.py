"""A page that follows a session while processes write it."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import steno as steno_client
from support.browser import ViewerPage
from support.command import Steno
from support.session_files import records_in

OpenPage = Callable[..., ViewerPage]


class Writer:
    """A `steno append` process that gets its next record once the last one is acknowledged."""

    def __init__(self, steno: Steno, name: str) -> None:
        self.name = name
        self._count = 0
        self._process = subprocess.Popen(
            steno.words("--json", "--name", name, "append", "talk"),
            env=steno.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def write(self) -> None:
        """Write one record, and wait for its acknowledgement."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        record = {"role": "user", "content": f"{self.name} writes {self._count}"}
        self._count += 1
        self._process.stdin.write(json.dumps(record) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline()

    def end(self) -> None:
        """Close its input, and wait for its end."""
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


@contextmanager
def writers(steno: Steno) -> Iterator[list[Writer]]:
    found = [Writer(steno, name) for name in ("planner", "worker")]
    try:
        yield found
    finally:
        for each in found:
            each.end()


def write(found: list[Writer], turns: int) -> None:
    for _ in range(turns):
        for each in found:
            each.write()


class Stream:
    """A `steno append` process that writes what it is given without waiting for any ack."""

    def __init__(self, steno: Steno, name: str) -> None:
        self.name = name
        self._count = 0
        self._process = subprocess.Popen(
            steno.words("--name", name, "append", "talk"),
            env=steno.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def feed(self, records: int) -> None:
        """Give it this many records more."""
        assert self._process.stdin is not None
        for _ in range(records):
            record = {"role": "user", "content": f"{self.name} writes {self._count}"}
            self._process.stdin.write(json.dumps(record) + "\n")
            self._count += 1
        self._process.stdin.flush()

    def end(self) -> None:
        """Close its input; every record was acknowledged."""
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


def feed(found: list[Stream], records: int) -> None:
    for each in found:
        each.feed(records)


def wait_for_lines(page: ViewerPage, least: int) -> None:
    page.wait_for(
        "least => Number(document.querySelector('.facts').textContent.replaceAll(' ', '')"
        ".match(/tokens([0-9]+)line/)?.[1] ?? 0) >= least",
        least,
    )


@contextmanager
def growing(steno: Steno, name: str) -> Iterator[None]:
    """A session to which a client writes records, counts and events without a pause."""
    is_over = threading.Event()

    def write_on() -> None:
        with steno_client.connect_sync(steno.root, name="writer") as client:
            session = client.open(name, follow=False)
            while not is_over.is_set():
                session.append_message({"role": "user", "content": "more"})
                session.update_token_count(100)
                session.append_wire("ContentPart", {"text": "more"})

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()


def compact(steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="keeper") as client:
        session = client.open("talk", follow=False)
        assert session.compact(lambda _: "the short of it", preserve=2) is not None


def shown(record: dict[str, Any]) -> str:
    """The text of a record's row, without its time and position."""
    by = record.get("_by", "")
    match record["role"]:
        case "_checkpoint":
            return f"checkpoint {record['id']}{by}"
        case "_usage":
            return f"{record['token_count']:,} tokens".replace(",", " ")
        case role:
            content = record["content"]
            texts = [content] if isinstance(content, str) else [each["text"] for each in content]
            return "".join([role, by, *texts])


def assert_page_equals_file(page: ViewerPage, steno: Steno) -> None:
    records = records_in(steno.root, "talk")
    generation = steno("--json", "stat", "talk").document["generation"]
    page.wait_for(
        "place => [...document.querySelectorAll('.facts span')].map(each => each.textContent)"
        ".join().includes(place)",
        f"{len(records):,}".replace(",", " ") + f" lines,generation {generation}",
    )
    assert page.transcript() == list(enumerate(map(shown, records)))


def test_page_equals_the_file_after_rewrites_and_a_kill(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "begin", "--create")
    steno("checkpoint", "talk")
    page = open_page("talk")
    page.wait_for_text("begin")
    with writers(steno) as found:
        write(found, 15)
        page.wait_for_text("worker writes 14")
        assert steno("revert", "talk", "0").code == 0
        page.wait_for_text("moved to generation 0")
        write(found, 5)
        page.wait_for_text("worker writes 19")
        compact(steno)
        write(found, 5)
        page.wait_for_text("worker writes 24")
        page.wait_for_text("the short of it")
        os.kill(steno("--json", "status").document["pid"], signal.SIGKILL)
        write(found, 15)
        page.wait_for_text("worker writes 39")
    assert_page_equals_file(page, steno)
    page.page.reload()
    page.wait_for_text("worker writes 39")
    assert_page_equals_file(page, steno)


def test_a_long_transcript_equals_the_file_while_two_processes_write(
    steno: Steno, open_page: OpenPage
) -> None:
    steno("append", "talk", "begin", "--create")
    steno("checkpoint", "talk")
    page = open_page("talk")
    page.wait_for_text("begin")
    streams = [Stream(steno, name) for name in ("planner", "worker")]
    feed(streams, 200)
    wait_for_lines(page, 402)
    # Each rewrite, and the kill, comes while both write.
    feed(streams, 200)
    assert steno("revert", "talk", "0").code == 0
    page.wait_for_text("moved to generation 0")
    feed(streams, 600)
    wait_for_lines(page, 1000)
    feed(streams, 200)
    compact(steno)
    feed(streams, 400)
    os.kill(steno("--json", "status").document["pid"], signal.SIGKILL)
    feed(streams, 1000)
    for each in streams:
        each.end()
    assert len(records_in(steno.root, "talk")) > 2000
    assert_page_equals_file(page, steno)


def test_page_says_that_the_daemon_is_away_and_continues(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "one", "--create")
    page = open_page("talk")
    page.wait_for_text("one")
    assert steno("stop").code == 0
    page.page.wait_for_selector("#away:not([hidden])")
    # A page that is opened meanwhile begins when the daemon is back.
    page.page.reload()
    page.wait_for_text("waiting for the daemon")
    assert steno("append", "talk", "two").code == 0
    page.wait_for_text("two")
    page.page.wait_for_selector("#away", state="hidden")
    assert_page_equals_file(page, steno)


def test_rows_that_a_revert_takes_fade_before_they_go(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "stays", "--create")
    steno("checkpoint", "talk")
    steno("append", "talk", "goes")
    page = open_page("talk")
    page.wait_for_text("goes")
    page.page.evaluate(
        "() => { new MutationObserver(() => {"
        " for (const each of document.querySelectorAll('.leaving'))"
        "  (window.left ??= new Set()).add(each.dataset.line) })"
        ".observe(document.querySelector('.transcript'), {subtree: true, attributes: true}) }"
    )
    assert steno("revert", "talk", "0", "--why", "wrong turn").code == 0
    page.wait_for("() => !document.body.innerText.includes('goes')")
    assert sorted(page.page.evaluate("() => [...window.left]")) == ["1", "2"]
    page.wait_for_text("reverted to checkpoint 0")
    page.wait_for_text("wrong turn")
    page.page.click("text=read generation 0")
    page.wait_for_text("goes")
    assert page.transcript() == [(0, _own("stays")), (1, _rule()), (2, _own("goes"))]


def test_the_generation_that_a_rewrite_left_behind_opens_while_its_lines_fade(
    steno: Steno, open_page: OpenPage
) -> None:
    steno("append", "talk", "stays", "--create")
    steno("checkpoint", "talk")
    steno("append", "talk", "goes")
    page = open_page("talk")
    page.wait_for_text("goes")
    # The link is followed as soon as it is there, before any line is gone.
    page.page.evaluate(
        "() => new MutationObserver(() => document.querySelector('.toast a')?.click())"
        ".observe(document.querySelector('.view'), {childList: true})"
    )
    assert steno("revert", "talk", "0").code == 0
    page.wait_for_text("Generation 0, which a rewrite left behind")
    page.wait_for_text("goes")


def _own(text: str) -> str:
    return f"user{_name()}{text}"


def _rule() -> str:
    return f"checkpoint 0{_name()}"


def _name() -> str:
    import pwd

    return f"{pwd.getpwuid(os.getuid()).pw_name}@cli"


def test_selected_text_and_the_focus_stay_while_a_session_grows(
    steno: Steno, open_page: OpenPage
) -> None:
    steno("append", "talk", "selected words", "--create")
    page = open_page("talk")
    page.wait_for_text("selected words")
    page.page.evaluate(
        "() => { getSelection().selectAllChildren(document.querySelector('.message .text'));"
        " document.querySelector('.message .place').focus() }"
    )
    steno("append", "talk", "two")
    page.wait_for_text("2 lines")
    assert page.page.evaluate("() => String(getSelection()).trim()") == "selected words"
    assert page.page.evaluate("() => document.activeElement.className") == "place"


def test_a_reader_above_the_end_stays_there(steno: Steno, open_page: OpenPage) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("talk")
        session.append_message([{"role": "user", "content": f"line {n}"} for n in range(200)])
        page = open_page("talk")
        page.wait_for_text("line 199")
        page.page.evaluate("() => { document.querySelector('.transcript').scrollTop = 3000 }")
        page.page.wait_for_selector(".follow:not([hidden])")
        page.wait_for("() => !document.querySelector('.row-wait')")
        top = page.page.evaluate("() => document.querySelector('.transcript').scrollTop")
        session.append_message({"role": "user", "content": "line 200"})
        page.wait_for_text("201 lines")
        assert page.page.evaluate("() => document.querySelector('.transcript').scrollTop") == top
        page.page.click(".follow")
        page.wait_for_text("line 200")
        session.append_message({"role": "user", "content": "line 201"})
        page.wait_for_text("line 201")


def test_header_and_strip_are_renewed_while_a_session_keeps_growing(
    steno: Steno, open_page: OpenPage
) -> None:
    steno("append", "talk", "begin", "--create")
    page = open_page("talk")
    page.wait_for_text("no token count was written yet")
    with growing(steno, "talk"):
        wait_for_lines(page, 20)
        page.wait_for_text("largest count: 100 tokens")


def test_events_are_renewed_while_a_session_keeps_growing(
    steno: Steno, open_page: OpenPage
) -> None:
    steno("append", "talk", "begin", "--create")
    page = open_page("talk")
    page.show("#/s/talk/wire")
    page.wait_for_text("No event yet")
    with growing(steno, "talk"):
        page.page.wait_for_selector(".chip:has-text('ContentPart')")


def test_selected_text_of_an_event_stays_while_a_session_grows(
    steno: Steno, open_page: OpenPage
) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("talk", follow=False)
        session.append_wire("TurnBegin", {"user_input": "begin"})
        session.append_wire("Note", {"text": "selected words"})
        page = open_page("talk")
        page.show("#/s/talk/wire")
        # Its payload has arrived, so that its row is not made anew under the click.
        page.page.wait_for_selector(".event:has-text('Note') a.place")
        page.page.click(".event:has-text('Note') summary")
        page.wait_for_text("selected words")
        page.page.evaluate(
            "() => getSelection().selectAllChildren(document.querySelector('.event-body pre'))"
        )
        for number in (2, 3):
            session.append_wire("Note", {"text": "more"})
            page.page.wait_for_selector(f".chip:has-text('Note {number}')")
        # The payloads of all events have arrived.
        page.wait_for("() => document.querySelectorAll('.event a.place').length === 4")
        assert "selected words" in page.page.evaluate("() => String(getSelection())")


def test_ten_windows_of_one_browser_follow_their_sessions(
    steno: Steno, open_page: OpenPage
) -> None:
    names = [f"window-{number}" for number in range(10)]
    first = open_page()
    with steno_client.connect_sync(steno.root, name="writer") as client:
        sessions = [client.open(name) for name in names]
        windows = [first.page, *(first.context.new_page() for _ in names[1:])]
        for name, session, window in zip(names, sessions, windows, strict=True):
            session.append_message({"role": "user", "content": f"{name} begins"})
            window.goto(f"{first.page.url.partition('#')[0]}#/s/{name}/transcript")
            window.wait_for_selector(f"text={name} begins")
        for name, session in zip(names, sessions, strict=True):
            session.append_message({"role": "user", "content": f"{name} goes on"})
        for name, window in zip(names, windows, strict=True):
            window.wait_for_selector(f"text={name} goes on")


def test_a_hidden_page_has_no_stream_and_catches_up_when_it_is_seen(
    steno: Steno, open_page: OpenPage
) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("talk")
        session.append_message({"role": "user", "content": "stays"})
        session.checkpoint()
        session.append_message({"role": "user", "content": "goes"})
        page = open_page("talk")
        page.wait_for_text("goes")
        with page.page.expect_event("requestfailed", _is_stream):
            set_hidden(page, is_hidden=True)
        session.revert_to(0)
        session.append_message({"role": "user", "content": "comes"})
        with page.page.expect_event("request", _is_stream):
            set_hidden(page, is_hidden=False)
        page.wait_for_text("comes")
        page.wait_for("() => !document.body.innerText.includes('goes')")
    assert_page_equals_file(page, steno)


def _is_stream(request: Any) -> bool:
    return "/api/events" in request.url


def set_hidden(page: ViewerPage, *, is_hidden: bool) -> None:
    """Hide or show the page, as its browser does when another tab is chosen."""
    page.page.evaluate(
        "isHidden => { Object.defineProperty(document, 'hidden',"
        " { value: isHidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')) }",
        is_hidden,
    )

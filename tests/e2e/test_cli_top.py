"""`steno top` on a terminal and in a pipe, beside real daemons and writers."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import steno
from e2e.terminal import TerminalProgram
from support.command import Ran, Steno
from support.daemon_in_thread import DaemonInThread
from support.daemon_log import WAIT_S
from support.foreground import ForegroundDaemon
from support.remote_access import allow, endpoint_of, listen

HIDDEN_CURSOR, SHOWN_CURSOR = "\x1b[?25l", "\x1b[?25h"
OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
HOSTILE = "\x1b]0;gotcha\x07[bold red]x[/] :smile:"


@contextmanager
def top(
    root: Path, *options: str, columns: int = 80, lines: int = 24, encoding: str = "utf-8"
) -> Iterator[TerminalProgram]:
    call = Steno(root, PYTHONIOENCODING=encoding)
    words = call.words("top", "--interval", "0.1", *options)
    with TerminalProgram(words, call.environment, columns, lines) as program:
        yield program


@contextmanager
def writer(root: Path, session: str, name: str) -> Iterator[None]:
    """A client that appends until the block ends, and has appended once when it begins."""
    has_begun, is_over = threading.Event(), threading.Event()

    def write() -> None:
        with steno.connect_sync(root, name=name, spawn=False) as client:
            opened = client.open(session)
            while not is_over.wait(0.002):
                opened.append_message({"role": "user", "content": "hi"})
                has_begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert has_begun.wait(WAIT_S)
        yield
    finally:
        is_over.set()
        thread.join()


def line_of(screen: str, begin: str) -> list[str]:
    """The words of the line that begins so."""
    return next((each.split() for each in screen.splitlines() if each.startswith(begin)), [])


def is_growing(screen: str, session: str) -> bool:
    words = line_of(screen, session)
    return len(words) > 1 and words[1] != "0"


def once_growing(call: Callable[[], Ran], session: str) -> Ran:
    """A call that saw the session grow: in a short interval a busy machine may append nothing."""
    until = time.monotonic() + WAIT_S
    while True:
        ran = call()
        assert (ran.code, ran.err) == (0, "")
        if is_growing(ran.out, session):
            return ran
        assert time.monotonic() < until, ran.out


def assert_restored(program: TerminalProgram) -> None:
    assert program.written.rindex(OWN_SCREEN) > program.written.rindex(OTHER_SCREEN)
    assert program.written.rindex(SHOWN_CURSOR) > program.written.rindex(HIDDEN_CURSOR)
    assert program.are_modes_restored


def test_the_busiest_session_comes_first_with_its_writer(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        client.open("a-quiet-one")
        with writer(root, "z-busy-one", "planner"), top(root) as program:
            screen = program.wait_for(lambda screen: is_growing(screen, "z-busy-one"))
            assert screen.index("z-busy-one") < screen.index("a-quiet-one")
            assert "planner" in line_of(screen, "z-busy-one")
            program.wait_for(lambda screen: "0" not in line_of(screen, "planner")[2:3])
            program.press("q")
            assert program.wait() == 0
            assert_restored(program)


def test_keys_change_the_order_and_the_size_of_the_terminal_is_followed(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        for number in range(30):
            client.open(f"s{number:02}", follow=False)
        with top(root, "--sort", "changed") as program:
            program.wait_for(lambda screen: "by changed" in screen)
            # An arrow key is no command.
            program.press("\x1b[A")
            program.press("s")
            screen = program.wait_for(lambda screen: "by id" in screen)
            assert len(screen.splitlines()) <= 24
            program.resize(160, 50)
            program.wait_for(lambda screen: "30 of 30 sessions" in screen)
            assert "TITLE" in program.screen
            program.resize(60, 10)
            program.wait_for(lambda screen: 0 < len(screen.splitlines()) <= 10)
            program.press("\x03")
            assert program.wait() == 130
            assert_restored(program)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(number: int, root: Path) -> None:
    with DaemonInThread(root), top(root) as program:
        program.wait_for(lambda screen: "SESSION" in screen)
        os.kill(program.pid, number)
        assert program.wait() == 130
        assert_restored(program)


def test_the_screen_is_given_back_while_the_process_is_stopped(root: Path) -> None:
    with DaemonInThread(root), top(root) as program:
        program.wait_for(lambda screen: "SESSION" in screen)
        os.kill(program.pid, signal.SIGTSTP)
        program.wait_for_text(OWN_SCREEN)
        os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WNOWAIT)
        program.wait_for_text(SHOWN_CURSOR)
        assert_restored(program)
        program.written = ""
        os.kill(program.pid, signal.SIGCONT)
        program.wait_for(lambda screen: "SESSION" in screen)
        assert OTHER_SCREEN in program.written
        program.press("q")
        assert program.wait() == 0


def test_the_death_of_the_daemon_is_shown_and_survived(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, top(root) as program:
        Steno(root)("append", "demo", "hi")
        program.wait_for(lambda screen: "demo" in screen)
        first = daemon.pid
        daemon.kill()
        screen = program.wait_for(lambda screen: "waiting for the daemon" in screen)
        assert f"pid {first}" in screen
        assert "demo" in screen
        # It starts none itself.
        assert Steno(root)("status").code == 5
        daemon.start()
        program.wait_for(lambda screen: f"pid {daemon.pid}" in screen)
        with writer(root, "demo", "planner"):
            program.wait_for(lambda screen: is_growing(screen, "demo"))
        program.press("q")
        assert program.wait() == 0


def test_a_pipe_gets_one_plain_screen_with_whole_texts(root: Path) -> None:
    name = "work/" + "x" * 100
    with DaemonInThread(root), writer(root, name, "planner"):
        with steno.connect_sync(root, spawn=False) as client:
            client.open(name, follow=False).describe(title="A title " * 12)
            client.open("other")
        top_once = partial(Steno(root, FORCE_COLOR="", COLUMNS="40"), "top", "--once")
        ran = once_growing(partial(top_once, "--interval", "0.3", "-n", "1"), "work/")
    assert "\x1b" not in ran.out
    words = line_of(ran.out, "work/")
    assert words[0] == name
    assert words[-1] == "title"
    assert "1 of 2 sessions by rate" in ran.out
    assert "other" not in ran.out


def test_json_is_a_document_after_each_interval(root: Path) -> None:
    with DaemonInThread(root), writer(root, "demo", "planner"):
        process = Steno(root).begin("top", "--json", "--interval", "0.2")
        assert process.stdout is not None
        with process, process.stdout:
            documents = [json.loads(process.stdout.readline()) for _ in range(2)]
            while documents[-1]["syncs"]["mean_s"] is None:
                # On a busy machine the writer may not append in every interval.
                documents.append(json.loads(process.stdout.readline()))
            process.terminate()
    assert documents[-1]["uptime_s"] > documents[-2]["uptime_s"]
    (session,) = documents[-1]["sessions"]
    assert (session["session"], session["by"]) == ("demo", "planner")
    assert session["records_s"] == pytest.approx(documents[-1]["records_s"])
    assert documents[-1]["syncs"]["mean_s"] > 0


def test_a_terminal_that_cannot_be_drawn_on_is_wrong_usage(root: Path) -> None:
    call = Steno(root)
    words = ["env", "TERM=dumb", *call.words("top")]
    with TerminalProgram(words, call.environment) as program:
        assert program.wait() == 2
        assert "add --once" in program.written


def test_without_rich_the_error_names_the_extra(root: Path, tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError('none', name='rich')\n")
    call = Steno(root, PYTHONPATH=str(tmp_path))
    ran = call("top", "--once")
    assert ran.code == 1
    assert "needs rich: install it with `" in ran.err
    assert "install 'stenod[terminal]'`" in ran.err
    # Other programs need no rich.
    assert call("start").code == 0
    documents = call("top", "--once", "--interval", "0.1", "--json")
    assert (documents.code, documents.err) == (0, "")


def test_a_remote_daemon_is_watched_with_a_key_that_may_read(root: Path, tmp_path: Path) -> None:
    listen(root)
    key = allow(root, "laptop", "read")
    with DaemonInThread(root) as daemon, writer(root, "demo", "planner"):
        endpoint = endpoint_of(daemon)
        nowhere = Steno(tmp_path / "none")
        remote = ("--endpoint", endpoint, "--key-file", str(key))
        ran = once_growing(partial(nowhere, *remote, "top", "--once", "--interval", "0.3"), "demo")
    assert line_of(ran.out, "CLIENT")[-1] == "KEY"
    assert "laptop" in ran.out


def test_a_hostile_title_in_the_files_controls_no_terminal(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        client.open("demo", follow=False)
        state = {"version": 1, "custom_title": HOSTILE, "title": HOSTILE}
        (root / "sessions" / "demo" / "state.json").write_text(json.dumps(state))
        with top(root, columns=160) as program:
            screen = program.wait_for(lambda screen: "gotcha" in screen)
            program.press("q")
            program.wait()
    assert "\\x1b]0;gotcha\\x07[bold red]x[/] :smile:" in screen
    assert "\x1b]0" not in program.written
    assert sys.executable not in program.written


def test_a_terminal_without_unicode_gets_escapes(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        client.open("demo", follow=False).describe(title="Gr\u00fc\u00dfe \u25cf " * 20)
        with top(root, columns=120, encoding="ascii") as program:
            screen = program.wait_for(lambda screen: "demo" in screen)
            program.press("q")
            assert program.wait() == 0
    assert "Gr\\xfc\\xdfe * Gr" in screen
    assert program.written.isascii()

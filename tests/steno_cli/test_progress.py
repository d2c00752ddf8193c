"""Progress of a long command, shown on a terminal only."""

import io
import itertools
import threading

import pytest

from steno_cli.render import progress as module
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that passes as the test wants it to."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_short_command_shows_no_progress(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        for clock[0] in (0.1, 0.4):
            progress.show("now")
    assert talk.getvalue() == ""


def test_progress_shows_the_place_the_fraction_and_the_time_left(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        for item in progress.over(["a", "b"]):
            clock[0] += 1
            progress.show(f"{item}, half")
    lines = [line for line in talk.getvalue().split("\r\x1b[K") if line]
    assert lines == ["working: 0 of 2, a, half", "working: 1 of 2, 1.00 s left, b, half"]
    assert talk.getvalue().endswith("\r\x1b[K")


def test_one_item_alone_is_not_counted(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        for _ in progress.over(["a"]):
            clock[0] = 2
            progress.show("")
            assert shown(talk) == "working: 2.00 s"


def test_bytes_of_all_items_estimate_the_time_left_better_than_their_number(
    clock: list[float],
) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        progress.expect(4_000_000)
        for item in progress.over(["a", "b"]):
            clock[0] += 2
            progress.add(1_000_000, item)
    bars = [line for line in talk.getvalue().split("\r\x1b[K") if line]
    assert bars == [
        f"working: 0 of 2, {'█' * 5}{'░' * 15} 25 %, 500 kB/s, 6.00 s left, a",
        f"working: 1 of 2, {'█' * 10}{'░' * 10} 50 %, 500 kB/s, 4.00 s left, b",
    ]
    assert progress.done_bytes == 2_000_000


@pytest.mark.parametrize("as_json", [False, True])
def test_no_progress_is_shown_to_a_program(clock: list[float], as_json: bool) -> None:
    talk = Terminal() if as_json else io.StringIO()
    with Progress(Output(io.StringIO(), talk, as_json=as_json), "working", ticks=False) as progress:
        clock[0] = 9
        progress.show("now")
    assert talk.getvalue() == ""


@pytest.mark.parametrize("is_same", [False, True])
def test_it_makes_room_for_data_on_the_same_terminal_only(
    clock: list[float], is_same: bool
) -> None:
    talk = Terminal()
    with Progress(
        Output(Terminal() if is_same else io.StringIO(), talk), "working", ticks=False
    ) as progress:
        clock[0] = 9
        progress.show("now")
        progress.make_room()
        assert talk.getvalue().endswith("\r\x1b[K" if is_same else "now")


def test_talk_takes_its_place(clock: list[float]) -> None:
    talk = Terminal()
    output = Output(io.StringIO(), talk)
    with Progress(output, "working", ticks=False) as progress:
        clock[0] = 9
        progress.show("now")
        output.say("something")
    assert talk.getvalue() == "\r\x1b[Kworking: now\r\x1b[Ksteno: something\n\r\x1b[K"


def shown(talk: Terminal) -> str:
    return talk.getvalue().split("\r\x1b[K")[-1]


def test_bytes_of_a_total_are_a_bar_with_rate_and_time_left(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        clock[0] = 4
        progress.show_bytes(1_000_000, 4_000_000, "9 lines")
        bar = "█" * 5 + "░" * 15
        assert shown(talk) == f"working: {bar} 25 %, 250 kB/s, 12 s left, 9 lines"
        clock[0] = 5
        progress.show_bytes(4_000_000, 4_000_000)
        assert shown(talk) == f"working: {'█' * 20} 100 %, 800 kB/s"


def test_an_amount_between_two_updates_is_shown_by_the_next_one(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        clock[0] = 4
        progress.show("")
        progress.show_bytes(1_000_000, None)
        assert shown(talk) == "working: 4.00 s"
        clock[0] = 5
        progress.show("")
        assert shown(talk) == "working: 1.0 MB, 200 kB/s"


def test_bytes_without_a_total_have_a_rate(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        clock[0] = 4
        progress.show_bytes(1_000_000, None)
    assert "working: 1.0 MB, 250 kB/s\r" in talk.getvalue()


def test_terminal_sequences_in_a_progress_line_are_escaped(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working", ticks=False) as progress:
        clock[0] = 9
        progress.show("a\x1b]0;title\x07")
        assert shown(talk) == "working: a\\x1b]0;title\\x07"


def test_a_waiting_operation_shows_the_time_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    has_shown = threading.Event()

    class Watched(Terminal):
        def write(self, text: str, /) -> int:
            if text.startswith("\r\x1b[Kworking: "):
                has_shown.set()
            return super().write(text)

    talk = Watched()
    monkeypatch.setattr(module.time, "monotonic", itertools.count(0.0, 1.0).__next__)
    with Progress(Output(io.StringIO(), talk), "working"):
        # The operation itself shows nothing.
        assert has_shown.wait(30)
    assert talk.getvalue().endswith("\r\x1b[K")

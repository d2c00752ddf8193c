"""Progress of a long command, shown on a terminal only."""

import io

import pytest

from steno.cli.render import progress as module
from steno.cli.render.output import Output
from steno.cli.render.progress import Progress


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
    with Progress(Output(io.StringIO(), talk), "working") as progress:
        for clock[0] in (0.1, 0.4):
            progress.show("now")
    assert talk.getvalue() == ""


def test_progress_shows_the_place_and_the_fraction(clock: list[float]) -> None:
    talk = Terminal()
    with Progress(Output(io.StringIO(), talk), "working") as progress:
        for item in progress.over(["a", "b"]):
            clock[0] += 1
            progress.show(f"{item}, half")
    lines = [line for line in talk.getvalue().split("\r\x1b[K") if line]
    assert lines == ["working: 0 of 2, a, half", "working: 1 of 2, b, half"]
    assert talk.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("as_json", [False, True])
def test_no_progress_is_shown_to_a_program(clock: list[float], as_json: bool) -> None:
    talk = Terminal() if as_json else io.StringIO()
    with Progress(Output(io.StringIO(), talk, as_json=as_json), "working") as progress:
        clock[0] = 9
        progress.show("now")
    assert talk.getvalue() == ""


@pytest.mark.parametrize("is_same", [False, True])
def test_it_makes_room_for_data_on_the_same_terminal_only(
    clock: list[float], is_same: bool
) -> None:
    talk = Terminal()
    with Progress(Output(Terminal() if is_same else io.StringIO(), talk), "working") as progress:
        clock[0] = 9
        progress.show("now")
        progress.make_room()
        assert talk.getvalue().endswith("\r\x1b[K" if is_same else "now")


def test_talk_takes_its_place(clock: list[float]) -> None:
    talk = Terminal()
    output = Output(io.StringIO(), talk)
    with Progress(output, "working") as progress:
        clock[0] = 9
        progress.show("now")
        output.say("something")
    assert talk.getvalue() == "\r\x1b[Kworking: now\r\x1b[Ksteno: something\n\r\x1b[K"

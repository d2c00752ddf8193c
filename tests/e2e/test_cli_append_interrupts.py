"""`steno append SESSION < file`, interrupted at each line of its code."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from steno._sync import ordered_appends
from steno_cli.append import stdin_lines
from steno_cli.commands import append
from steno_cli.entry import main
from steno_cli.exits import Exit
from support.daemon_in_thread import DaemonInThread
from support.session_files import records_in

TEXTS = [str(number) for number in range(5)]
Place = tuple[str, int]
"""A line of the code: its file and number."""


@contextmanager
def traced(see: Callable[[Place], None]) -> Iterator[None]:
    """Call `see` before each line of the code of a stream of appends."""
    files = {append.__file__, stdin_lines.__file__, ordered_appends.__file__}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            see((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


class Appending:
    """Calls of the command in this process, each on a session of its own."""

    def __init__(
        self, root: Path, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        self.root = root
        self._path = path
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        path.write_text("".join(json.dumps({"role": "user", "content": t}) + "\n" for t in TEXTS))

    def __call__(
        self, session: str, see: Callable[[Place], None], *arguments: str
    ) -> tuple[int, str, str]:
        """Append the lines of the file; returns the exit code, the data and the messages."""
        with self._path.open() as file, traced(see):
            self._monkeypatch.setattr(sys, "stdin", file)
            try:
                code = main(["append", session, "--root", str(self.root), *arguments])
            except KeyboardInterrupt:
                # As the process does, while the arguments are read.
                code = Exit.INTERRUPTED
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def stored(self, session: str) -> list[str]:
        """The texts in the file of a session."""
        if not (self.root / "sessions" / session / "context.jsonl").exists():
            return []
        return [record["content"] for record in records_in(self.root, session)]


@pytest.fixture
def appending(
    daemon: DaemonInThread, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Appending:
    """The command beside a daemon."""
    return Appending(root, tmp_path / "turns.jsonl", monkeypatch, capsys)


@pytest.mark.parametrize("hit", [1, 2])
def test_an_interrupt_at_any_line_names_the_first_line_that_is_not_stored(
    appending: Appending, hit: int
) -> None:
    hits = Counter[Place]()
    assert appending("whole", lambda place: hits.update([place]))[0] == Exit.DONE
    assert len(hits) > 50
    ends = Counter[str]()
    for number, place in enumerate(sorted(each for each in hits if hits[each] >= hit)):
        ends[interrupted_at(appending, f"session-{number}", place, hit)] += 1
    assert ends["some lines are stored"] > 20
    if hit == 1:
        assert ends["the first line may be stored"]
        assert ends["nothing is stored"]


def interrupted_at(appending: Appending, session: str, place: Place, hit: int) -> str:
    """Interrupt the command once, check what it said, and say how it ended."""
    left = hit

    def see(here: Place) -> None:
        nonlocal left
        if here == place:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    code, out, err = appending(session, see)
    stored = appending.stored(session)
    if left > 0:
        # When answers come decides how often some lines run.
        assert (code, stored) == (Exit.DONE, TEXTS), (place, err)
        return "no interrupt came"
    assert code == Exit.INTERRUPTED, (place, err)
    if "of stdin may be stored" in err:
        assert "steno append session-" in err, place
        assert "--from-line 1 --root" in err, place
        assert stored in ([], TEXTS[:1]), place
        return "the first line may be stored"
    said = re.search(r"interrupted: (\d+) records? before line (\d+) of stdin", err)
    if said is None:
        # Nothing was sent, or every line was.
        assert stored in ([], TEXTS), (place, err)
        assert {*out.split()} == {f"0:{line}" for line in range(len(stored))}, (place, out)
        return "all is stored" if stored else "nothing is stored"
    assert stored == TEXTS[: int(said[2]) - 1], (place, err)
    assert len(stored) == int(said[1]), (place, err)
    # Every position was printed; one twice if the interrupt came right behind it.
    assert {*out.split()} == {f"0:{line}" for line in range(len(stored))}, (place, out)
    return "some lines are stored"


def test_an_interrupted_first_line_under_a_key_is_stored_once(appending: Appending) -> None:
    was_interrupted = False

    def see(here: Place) -> None:
        nonlocal was_interrupted
        if appending.stored("demo") and not was_interrupted:
            was_interrupted = True
            raise KeyboardInterrupt

    code, _, err = appending("demo", see, "--key", "k")
    assert code == Exit.INTERRUPTED
    look = f"steno tail demo --root {appending.root}"
    assert f"line 1 of stdin may be stored; see `{look}`; to go on" in err
    assert "--from-line 1" in err
    assert "--key k <" in err
    assert appending.stored("demo") == TEXTS[:1]
    assert appending("demo", lambda _: None, "--key", "k", "--from-line", "1")[0] == Exit.DONE
    assert appending.stored("demo") == TEXTS

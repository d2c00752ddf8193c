"""`python -m tools.screenshots FOLDER [NAME ...]`: pictures of `steno` on a terminal.

The real program runs in tmux, at 80 and at 160 columns, each time on a new copy of sessions that
are written for it. A NAME chooses one picture, such as `top-80`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.command import Steno
from support.project import PROJECT
from tools.pictured_sessions import write_history, write_spending, write_turns, writing
from tools.terminal_pictures import terminal_picture

GUIDE: Final = PROJECT / "client" / "guide" / "pictures"

IN_GUIDE: Final = ("sessions-80", "show-80", "append-80", "top-80", "usage-80")
"""The pictures that pages of the guide show."""

COMMAND: Final = (
    f"PYTHONPATH=tests python -m tools.screenshots client/guide/pictures {' '.join(IN_GUIDE)}"
)

WIDTHS: Final = (80, 160)

_WAIT_S: Final = 60.0
_LOOK_S: Final = 0.1

_TURNS: Final = 120_000
"""Lines that `steno append` takes longer for than a picture of it."""


_PROMPT: Final = r"\$\Z"
"""The prompt of the shell at the end of a screen."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One command on a terminal.

    Attributes:
        name: the name of its pictures.
        typed: the command line.
        complete: found in the screen once the picture is complete.
        rows: lines of the terminal at 80 columns, and at 160.
        agents: agents that write meanwhile.
        later: different screens between a complete one and the picture.
        history: the sessions before.
    """

    name: str
    typed: str
    complete: str = _PROMPT
    rows: tuple[int, int] = (120, 120)
    agents: int = 0
    later: int = 0
    history: Callable[[Path], None] = write_history


SCENES: Final = (
    Scene("sessions", "steno sessions", agents=2),
    Scene("show", "steno show fix-login"),
    # The second screen has rates, and later ones are even.
    Scene("top", "steno top", "rates of", rows=(24, 34), agents=5, later=3),
    Scene("usage", "steno usage --by model", history=write_spending),
    Scene("append", "steno append turns < turns.jsonl", r"[45]\d %"),
)


def take(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Make all pictures, or those with these names; returns the files.

    Raises:
        RuntimeError: a screen was not complete in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        (scene, at) for scene in SCENES for at, columns in enumerate(WIDTHS)
        if not names or f"{scene.name}-{columns}" in names
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="steno-", dir="/tmp") as place:
        home = Path(place)
        for history in {scene.history for scene, _ in wanted}:
            (home / history.__name__).mkdir(mode=0o700)
            history(home / history.__name__)
        write_turns(home / "turns.jsonl", _TURNS)
        return [_take_one(scene, home, folder, at) for scene, at in wanted]


def _take_one(scene: Scene, home: Path, folder: Path, at: int) -> Path:
    columns, rows = WIDTHS[at], scene.rows[at]
    steno = Steno(home / "sessions")
    shutil.rmtree(steno.root, ignore_errors=True)
    shutil.copytree(
        home / scene.history.__name__, steno.root, ignore=shutil.ignore_patterns("*.sock")
    )
    assert steno("start").code == 0
    with ExitStack() as scenery:
        scenery.callback(steno, "stop")
        if scene.agents:
            scenery.enter_context(writing(steno.root, scene.agents))
        terminal = scenery.enter_context(_terminal(steno, columns, rows))
        terminal.type(scene.typed)
        terminal.wait_for(scene.complete)
        terminal.wait_for_changes(scene.later)
        lines = terminal.lines()
    file = folder / f"{scene.name}-{columns}.svg"
    picture = terminal_picture(
        _shown(lines, scene), columns, typed=scene.typed, name=file.stem, made_by=COMMAND
    )
    file.write_text(picture, encoding="utf-8")
    return file


def _shown(lines: list[str], scene: Scene) -> list[str]:
    """The lines of a picture: without those of the shell around the command."""
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in lines]
    first = 1 if plain and plain[0].endswith(scene.typed) else 0
    last = len(plain)
    while last > first and plain[last - 1] in {"", "$"}:
        last -= 1
    return lines[first:last]


class _Terminal:
    """A shell in tmux.

    Args:
        socket: the socket of the tmux server.
    """

    def __init__(self, socket: Path) -> None:
        self._tmux = ("tmux", "-u", "-f", "/dev/null", "-S", str(socket))

    def run(self, *words: str, **environment: str) -> str:
        """Run a command of tmux, and return what it prints."""
        ran = subprocess.run(
            [*self._tmux, *words],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout

    def type(self, line: str) -> None:
        """Type a line and Return, once the shell is ready."""
        self.wait_for(_PROMPT)
        self.run("send-keys", "-l", line)
        self.wait_for(re.escape(line))
        self.run("send-keys", "Enter")

    def lines(self) -> list[str]:
        """The lines of the screen, with their colours."""
        return self.run("capture-pane", "-p", "-e").splitlines()

    def wait_for(self, found: str) -> None:
        """Wait until a part of the screen matches.

        Raises:
            RuntimeError: it does not in time.
        """
        deadline = time.monotonic() + _WAIT_S
        while True:
            screen = self.run("capture-pane", "-p").rstrip()
            if re.search(found, screen):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found!r} is not on the screen:\n{screen}")
            time.sleep(_LOOK_S)

    def wait_for_changes(self, count: int) -> None:
        """Wait until the screen has changed so often."""
        before = self.lines()
        while count:
            time.sleep(_LOOK_S)
            if (now := self.lines()) != before:
                before = now
                count -= 1


@contextmanager
def _terminal(steno: Steno, columns: int, rows: int) -> Iterator[_Terminal]:
    home = steno.root.parent
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "tmux-256color"}
    names = {"HOME": str(home), "STENO_HOME": str(steno.root), "PS1": "$ ", "PAGER": "cat"}
    # The name of the person who looks, instead of the name of the login.
    program = shlex.join([sys.executable, "-m", "steno_cli", "--name", "ann@cli"])
    (home / "rc").write_text(f'steno() {{ {program} "$@"; }}\n')
    shell = ["env", "-i", *(f"{name}={value}" for name, value in {**kept, **names}.items())]
    terminal = _Terminal(home / "tmux.sock")
    terminal.run(
        "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(home),
        *shell, f"ENV={home / 'rc'}", "sh", "-i",
    )  # fmt: skip
    try:
        yield terminal
    finally:
        terminal.run("kill-server")


def main() -> None:
    """Make the pictures."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m tools.screenshots FOLDER [NAME ...]")
    if shutil.which("tmux") is None:
        raise SystemExit("no pictures: tmux, in which the programs run, is not installed")
    for file in take(Path(sys.argv[1]), sys.argv[2:]):
        print(file)


if __name__ == "__main__":
    main()

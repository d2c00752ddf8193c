"""Imports whose process, or whose daemon, is killed: nothing half is there, and a repeat works."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import Steno
from support.crowd import wait_until

LINE = '{"role":"user","content":"x"}\n'
DEADLINE_S = 60

_DIE_IN_IMPORT = """
import os, signal, sys
from steno_follow import taking_in
from steno_cli.entry import main
ask = taking_in._take_in
def die(client, source, key):
    if sys.argv[1] == "after":
        ask(client, source, key)
    os.kill(os.getpid(), signal.SIGKILL)
taking_in._take_in = die
main(sys.argv[2:])
"""

_DIE_IN_DAEMON = """
import os, signal, sys
from pathlib import Path
from stenod.cli import main
from stenod.store.posix import PosixDisk
move = PosixDisk.move
def die(*arguments):
    if os.environ["MOMENT"] == "after":
        move(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
PosixDisk.move = die
sys.exit(main())
"""


def prepared(root: Path) -> set[Path]:
    return set((root / "sessions" / ".imports").glob("*/session/*"))


def wait_until_swept(root: Path) -> None:
    """Wait until the daemon has removed what nobody took in."""
    folder = root / "sessions" / ".imports"
    wait_until(lambda: not any(folder.iterdir()), DEADLINE_S)


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_an_import_that_is_killed_at_its_command_can_be_repeated(
    root: Path, steno: Steno, tmp_path: Path, moment: str
) -> None:
    (tmp_path / "context.jsonl").write_text(LINE)
    arguments = ["--root", str(root), "import", str(tmp_path), "team/demo"]
    died = subprocess.run(
        [sys.executable, "-c", _DIE_IN_IMPORT, moment, *arguments], timeout=DEADLINE_S, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert bool(prepared(root)) == (moment == "before")
    assert bool(steno("sessions").out) == (moment == "after")
    steno("stop")
    steno("start")
    wait_until_swept(root)
    ran = steno("import", str(tmp_path), "team/demo")
    assert ran.code == 0
    assert ("is unchanged" in ran.err) == (moment == "after")
    context = root / "sessions" / "team" / "demo" / "context.jsonl"
    assert context.read_text() == LINE


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_an_import_whose_daemon_is_killed_at_the_move_is_done_by_the_next(
    root: Path, steno: Steno, tmp_path: Path, moment: str
) -> None:
    (tmp_path / "context.jsonl").write_text(LINE)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _DIE_IN_DAEMON, "--foreground", "--root", str(root)],
        env={**os.environ, "MOMENT": moment},
        stderr=subprocess.DEVNULL,
    ) as daemon:
        wait_until((root / "stenod.sock").exists, DEADLINE_S)
        ran = steno("import", str(tmp_path), "team/demo")
        assert daemon.wait(DEADLINE_S) == -signal.SIGKILL
    assert (ran.code, ran.out) == (0, "team/demo\n")
    assert "is unchanged" not in ran.err
    assert steno("sessions").out.startswith("team/demo ")
    assert not any((root / "sessions" / ".imports").iterdir())
    assert "is unchanged" in steno("import", str(tmp_path), "team/demo").err

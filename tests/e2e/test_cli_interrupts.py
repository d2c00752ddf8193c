"""Interrupts of a command with Ctrl-C, however early."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steno_cli.exits import Exit

INTERRUPTED_WHILE_IT_IMPORTS = """
import os, signal, sys
wanted = sys.argv.pop(1)

class Interrupted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted)
from steno_cli.process import main
main()
"""


def run(root: Path, wanted: str) -> subprocess.CompletedProcess[str]:
    code = [sys.executable, "-c", INTERRUPTED_WHILE_IT_IMPORTS, wanted]
    command = [*code, "status", "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        pytest.param("steno_cli.parser", -signal.SIGINT, id="before it reads its arguments"),
        pytest.param("shutil", Exit.INTERRUPTED, id="while it reads them"),
        pytest.param("steno_cli.commands.daemon", Exit.INTERRUPTED, id="while it begins"),
    ],
)
def test_a_command_that_is_interrupted_early_shows_no_traceback(
    root: Path, wanted: str, code: int
) -> None:
    ran = run(root, wanted)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", "")


def test_an_interrupt_that_the_caller_ignores_is_ignored(root: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ran = run(root, "steno_cli.parser")
    finally:
        signal.signal(signal.SIGINT, before)
    assert ran.returncode == Exit.UNREACHABLE
    assert ran.stderr.startswith("steno: no daemon: ")

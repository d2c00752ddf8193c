"""The check that no test leaves a daemon behind."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_daemon_that_a_test_leaves_behind_is_named_with_its_test_and_ended(root: Path) -> None:
    # A process of its own runs the check, and has no other daemons.
    program = f"""
import os, subprocess, sys
from support.left_behind import end_left_behind, mark_children

mark_children()
os.environ["PYTEST_CURRENT_TEST"] = "test_x.py::test_that_forgot (call)"
subprocess.run([sys.executable, "-m", "stenod", "--root", {str(root)!r}], check=True)
(left,) = end_left_behind(0.1)
print(left.test, {str(root)!r} in left.command, len(end_left_behind(60)))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, env=environment, timeout=100, check=True,
    )  # fmt: skip
    assert ran.stdout == "test_x.py::test_that_forgot (call) True 0\n"

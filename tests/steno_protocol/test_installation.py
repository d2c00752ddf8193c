"""The systems that steno runs on, and the command that adds an extra."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from steno_protocol.errors import BadRequest
from steno_protocol.installation import check_system, extra_command

ELSEWHERE = """
import fcntl, os, resource, select, socket, sys

for module, names in {
    os: ("eventfd", "eventfd_read", "eventfd_write", "memfd_create", "fdatasync", "pidfd_open",
         "copy_file_range", "posix_fadvise", "posix_fallocate", "splice", "O_PATH", "O_TMPFILE",
         "EFD_CLOEXEC", "EFD_NONBLOCK"),
    fcntl: ("F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"),
    resource: ("prlimit",),
    select: ("epoll",),
}.items():
    for name in names:
        vars(module).pop(name, None)
sys.platform = "freebsd14"
"""
"""Makes a process as poor in system calls as one elsewhere, and one of FreeBSD by its name."""

DAEMON = "from stenod.cli import main; sys.exit(main(['--root', sys.argv[1]]))"
COMMAND = (
    "from steno_cli.entry import main;"
    " sys.exit(main(['append', 'demo', 'hi', '--root', sys.argv[1]]))"
)
DOCTOR = "from steno_cli.entry import main; sys.exit(main(['doctor', '--root', sys.argv[1]]))"
LIBRARY = "import steno; steno.connect_sync(root=sys.argv[1])"


@pytest.mark.parametrize("program", [DAEMON, COMMAND, DOCTOR, LIBRARY])
def test_another_system_is_refused_in_one_sentence(program: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE + program, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran
    assert "this system is 'freebsd14', and only Linux and macOS are supported" in ran.stderr
    assert ("Traceback" in ran.stderr) == (program == LIBRARY)
    assert not root.exists()


def test_linux_and_macos_are_accepted_and_windows_refused_with_a_way_out() -> None:
    check_system("linux")
    check_system("darwin")
    with pytest.raises(BadRequest, match="WSL on Windows"):
        check_system("win32")


def test_an_extra_is_added_by_the_pip_of_this_environment() -> None:
    assert extra_command("view") == f"{sys.executable} -m pip install 'stenod[view]'"


def test_an_extra_is_added_by_uv_where_there_is_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "executable", "/my tools/python")
    assert extra_command("llm") == ("uv pip install --python '/my tools/python' 'stenod[llm]'")

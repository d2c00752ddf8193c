"""`python -m tools.record_demo`: the picture of a terminal that runs `steno demo`.

The demo runs on a terminal of its own, and `terminal_pictures` draws the screen that it leaves.
"""

import fcntl
import os
import pty
import struct
import sys
import tempfile
import termios
from pathlib import Path
from typing import Final

from support.project import PROJECT
from tools.terminal_pictures import terminal_picture

COMMAND: Final = "PYTHONPATH=tests python -m tools.record_demo"

PICTURE: Final = PROJECT / "client" / "guide" / "pictures" / "demo.svg"

_COLUMNS: Final = 96
_ROWS: Final = 40
_READ_BYTES: Final = 1 << 16


def record() -> bytes:
    """The bytes that `steno demo` writes to a terminal.

    Raises:
        RuntimeError: the demo failed.
    """
    steno = str(Path(sys.executable).parent / "steno")
    with tempfile.TemporaryDirectory() as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STENO_")}
        environment = {**kept, "HOME": home, "TERM": "xterm-256color", "TMPDIR": "/tmp"}
        pid, terminal = pty.fork()
        if pid == 0:
            size = struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0)
            fcntl.ioctl(sys.stdout.fileno(), termios.TIOCSWINSZ, size)
            os.execve(steno, [steno, "demo"], environment)
        written = _read_all(terminal)
        if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            raise RuntimeError(f"the demo ended with {status}:\n{written.decode()}")
    return written


def drawn(written: bytes) -> str:
    """The picture of a terminal with these bytes."""
    lines = written.decode().rstrip().split("\r\n")
    return terminal_picture(lines, _COLUMNS, typed="steno demo", name="demo", made_by=COMMAND)


def _read_all(terminal: int) -> bytes:
    written = b""
    try:
        while data := os.read(terminal, _READ_BYTES):
            written += data
    except OSError:
        # Linux reports the end of the last process of a terminal in this way.
        return written
    finally:
        os.close(terminal)
    return written


def main() -> None:
    """Record the demo and write the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(record()), encoding="utf-8")


if __name__ == "__main__":
    main()

"""`python -m support.record_demo`: the picture of a terminal that runs `steno demo`.

The demo runs on a terminal of its own, and rich draws the screen that it leaves. The picture has
the fonts of its reader, because a page of documentation fetches nothing.
"""

import fcntl
import inspect
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path
from typing import Final

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.text import Text

from support.project import PROJECT

COMMAND: Final = "PYTHONPATH=tests python -m support.record_demo"

PICTURE: Final = PROJECT / "client" / "guide" / "pictures" / "demo.svg"

_COLUMNS: Final = 96
_ROWS: Final = 40
_READ_BYTES: Final = 1 << 16
_FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"


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
    # Within a line the decoder keeps what follows the last return, as a terminal does.
    lines = written.decode().rstrip().split("\r\n")
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), ("steno demo", "bold")))
    decoder = AnsiDecoder()
    for line in lines:
        console.print(decoder.decode_line(line))
    picture = console.export_svg(title="steno demo", code_format=_format(), unique_id="demo")
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


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


def _format() -> str:
    """rich's picture without the fonts that it fetches and without its advertisement."""
    own = inspect.signature(Console.export_svg).parameters["code_format"].default
    fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", own, flags=re.DOTALL)
    named = re.sub(r"font-family: [^;]*;", f"font-family: {_FONTS};", fonts)
    return re.sub(r"<!--.*?-->\s*", f"<!-- Recorded by: {COMMAND} -->\n", named, flags=re.DOTALL)


def main() -> None:
    """Record the demo and write the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(record()), encoding="utf-8")


if __name__ == "__main__":
    main()

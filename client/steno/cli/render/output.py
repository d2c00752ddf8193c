"""What a command says: data on stdout, talk on stderr, colours only for a terminal."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TextIO

from steno_protocol.errors import OutcomeUnknown, StenoError, Unreachable

_STYLES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}

_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control and direction characters: a record must not be able to steer the reader's terminal."""

_ASCII: Final = str.maketrans(
    {
        "│": "|", "├": "|", "└": "`", "─": "-", "●": "*", "○": "o", "◌": "?", "·": "-",
        "…": "~", "✓": "+", "✗": "x", "▸": ">", "→": ">", "←": "<", "█": "#", "░": ".",
        "“": '"', "”": '"',
    }
)  # fmt: skip
"""Stand-ins for a terminal that cannot show the real ones."""


class Output:
    """The two streams of one command.

    Attributes:
        as_json: data and talk are JSON documents.
    """

    def __init__(self, data: TextIO, talk: TextIO, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._data = data
        self._talk = talk
        self._is_updated = False

    @property
    def is_terminal(self) -> bool:
        """True when a person is likely to read the data."""
        return self._data.isatty()

    @property
    def talks_to_terminal(self) -> bool:
        """True when a person is likely to read the talk as it comes."""
        return self._talk.isatty()

    @property
    def width(self) -> int | None:
        """Columns to fit the data into, None when it goes to a file or pipe."""
        return _columns() if self.is_terminal else None

    def write(self, text: str = "") -> None:
        """One line of data."""
        self._data.write(_for(self._data, text) + "\n")

    def fitted(self, text: str) -> str:
        """`text` as `write` would write it: as far as the encoding of the data can show it."""
        return _for(self._data, text)

    def raw(self, data: bytes) -> None:
        """Data as it is, byte by byte."""
        buffer = getattr(self._data, "buffer", None)
        if buffer is None:
            self._data.write(data.decode(errors="replace"))
            return
        self._data.flush()
        buffer.write(data)

    def json_line(self, line: bytes) -> None:
        """One line of JSON as it lies in a file; on a terminal nothing in it can steer that.

        JSON has its own escapes for the characters that do, so the line still means the same.
        """
        if self.is_terminal:
            line = _UNPRINTABLE.sub(
                lambda found: found[0] if found[0] == "\r" else f"\\u{ord(found[0]):04x}",
                line.decode(errors="replace"),
            ).encode()
        self.raw(line)

    def document(self, value: Mapping[str, Any]) -> None:
        """One JSON document on a line of its own."""
        self._data.write(_json(self._data, value))

    def flush(self) -> None:
        """Let the reader have what was written so far."""
        self._data.flush()

    def say(self, text: str) -> None:
        """One line of talk: words for a person, a document of its own for a program."""
        if self._is_updated:
            self.update("")
        if self.as_json:
            self._print_json({"note": text})
            return
        self._utter(_for(self._talk, f"steno: {printable(text, one_line=True)}") + "\n")

    def ask(self, question: str) -> None:
        """A question, its answer to be typed behind it."""
        self._utter(_for(self._talk, f"steno: {printable(question, one_line=True)}"))

    def update(self, text: str) -> None:
        """Talk that replaces the line before it, and that other talk replaces; for terminals."""
        self._is_updated = bool(text)
        width = _columns() - 1
        self._utter(_for(self._talk, f"\r\x1b[K{text[:width]}"))

    def error(self, error: StenoError) -> None:
        """Print the error that ended the command: one line, or one JSON object."""
        if self.as_json:
            self._print_json({"error": error_document(error)})
        else:
            self.say(str(error))

    def failure(self, message: str) -> None:
        """Print a failure that is not a StenoError."""
        if self.as_json:
            document = {**error_document(StenoError(message)), "code": "failed"}
            self._print_json({"error": document})
        else:
            self.say(message)

    def style(self, text: str, *styles: str) -> str:
        """`text` in colour when the data go to a terminal that has some."""
        if not text or not self.is_terminal or not _has_colours():
            return text
        codes = ";".join(_STYLES[style] for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def _print_json(self, document: Mapping[str, Any]) -> None:
        self._utter(_json(self._talk, document))

    def _utter(self, text: str) -> None:
        """Print a message at once; a closed stderr does not change what the command does."""
        try:
            self._talk.write(text)
            self._talk.flush()
        except OSError:
            silence(self._talk)


def silence(stream: TextIO) -> None:
    """Let a stream that failed lead nowhere: the interpreter tries it again at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def error_document(error: StenoError) -> dict[str, Any]:
    """An error with `--json`: `code` is that of the protocol, `unreachable` or `failed`."""
    return {
        "code": _code(error),
        "message": error.message,
        "outcome": str(error.outcome),
        "session": error.session,
        "head": error.head,
        "key": error.key if isinstance(error, OutcomeUnknown) else None,
    }


def _code(error: StenoError) -> str:
    if error.code is not None:
        return str(error.code)
    # No daemon answered, or something beside it failed, such as the model of a compaction.
    return "unreachable" if isinstance(error, Unreachable | OutcomeUnknown) else "failed"


def printable(text: str, *, one_line: bool = False) -> str:
    """`text` without characters that could steer a terminal; they are shown as escapes."""
    shown = _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return shown.replace("\n", " ").replace("\t", " ") if one_line else shown


def table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows in columns of equal width, two spaces apart; `right` are aligned to the right."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` characters, with a sign that more was there.

    >>> shortened("stenographer", 5)
    'sten…'
    """
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _has_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _columns() -> int:
    import shutil  # noqa: PLC0415  # most commands write to a pipe or briefly, and start sooner

    return shutil.get_terminal_size().columns


def _json(stream: TextIO, value: Mapping[str, Any]) -> str:
    import json  # noqa: PLC0415  # only with --json

    is_utf = (stream.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not is_utf, separators=(",", ":"))
    # A lone surrogate becomes its escape, which is what JSON calls it, too.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _for(stream: TextIO, text: str) -> str:
    """`text` as far as the stream's encoding can show it."""
    encoding = (stream.encoding or "utf-8").lower()
    if encoding.startswith("utf"):
        # A lone surrogate is no character, and UTF-8 cannot hold it.
        return text.encode("utf-8", "backslashreplace").decode()
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)

"""The output of a command: data on stdout, messages on stderr, colours on a terminal only."""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TextIO

from steno_cli.exits import Exit
from steno_cli.render.printed_commands import in_shell_words, with_destination
from steno_present.contract import error_document
from steno_present.safe_text import coloured, printable, printable_json
from steno_protocol.errors import StenoError

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

_ASCII: Final = str.maketrans(
    {
        "│": "|", "├": "|", "└": "`", "─": "-", "●": "*", "○": "o", "◌": "?", "·": "-",
        "…": "~", "✓": "+", "✗": "x", "▸": ">", "→": ">", "←": "<", "█": "#", "░": ".",
        "“": '"', "”": '"', "•": "*", "▌": "|",
    }
)  # fmt: skip
"""Replacements for a terminal whose encoding lacks these characters."""


class Output:
    """The two streams of one command.

    What goes to a terminal passes here, and nothing of it controls the terminal but the colours
    that the command itself sets.

    Args:
        data: the stream of results.
        messages: the stream of notes and errors.
        as_json: data and messages are JSON documents.
        destination: the words that messages add to the commands they print.

    Attributes:
        as_json: data and messages are JSON documents.
        is_terminal: the data goes to a terminal.
    """

    def __init__(
        self,
        data: TextIO,
        messages: TextIO,
        *,
        as_json: bool = False,
        destination: Sequence[str] = (),
    ) -> None:
        self.as_json = as_json
        self._destination = destination
        self._data = data
        # Asked once: it is a system call, and every record that is shown would make several.
        self.is_terminal: bool = data.isatty()
        self._messages = messages
        self._is_updated = False
        # The thread of a progress line writes, too.
        self._lock = threading.RLock()

    @property
    def has_reader(self) -> bool:
        """False once nobody can read the data: the other end of its pipe was closed."""
        # Imported here: only a command that follows a session asks.
        import select  # noqa: PLC0415

        with suppress(OSError, ValueError):
            poll = select.poll()
            poll.register(self._data.fileno(), 0)
            # Of a descriptor without a wanted event, only an error or a hang-up is reported.
            return not poll.poll(0)
        return True

    @property
    def talks_to_terminal(self) -> bool:
        """True if the messages go to a terminal."""
        return self._messages.isatty()

    @property
    def width(self) -> int | None:
        """Columns of the terminal, None if the data goes to a file or pipe."""
        return _columns() if self.is_terminal else None

    def write(self, text: str = "") -> None:
        """Write a line of data."""
        self._data.write(_for(self._data, text) + "\n")

    def lines(self, texts: Iterable[str]) -> None:
        """Write lines of data."""
        for text in texts:
            self.write(text)

    def fitted(self, text: str) -> str:
        """`text` as `write` writes it, with escapes for what the encoding of stdout lacks."""
        return _for(self._data, text)

    def encoded(self, text: str) -> bytes:
        """A line of data as `write` writes it, with escapes for what the encoding lacks."""
        encoding = self._data.encoding or "utf-8"
        return (_for(self._data, text) + "\n").encode(encoding, "backslashreplace")

    def raw(self, data: bytes) -> None:
        """Write data byte by byte; a terminal gets escapes for what could control it."""
        if self.is_terminal:
            self._data.write(_fitted(self._data, printable(data.decode(errors="replace"))))
            return
        buffer = getattr(self._data, "buffer", None)
        if buffer is None:
            self._data.write(data.decode(errors="replace"))
            return
        self._data.flush()
        buffer.write(data)

    def json_line(self, line: bytes) -> None:
        """Write a line of JSON from a file; a terminal gets JSON's own escapes."""
        self.raw(
            printable_json(line.decode(errors="replace")).encode() if self.is_terminal else line
        )

    def document(self, value: Mapping[str, Any]) -> None:
        """Write a JSON document on a line of its own."""
        self._data.write(_json(self._data, value))

    def answer(self, document: Mapping[str, Any], *lines: str, message: str = "") -> int:
        """Print the result of a command: a document, or lines of data and a message.

        Args:
            document: with --json, this alone.
            lines: the data otherwise.
            message: the message beside them; empty for none.

        Returns:
            The exit code of a command that is done.
        """
        if self.as_json:
            self.document(document)
            return Exit.DONE
        self.lines(lines)
        if message:
            self.say(message)
        return Exit.DONE

    def flush(self) -> None:
        """Flush the data written so far."""
        self._data.flush()

    def addressed(self, text: str) -> str:
        """`text` with the given destination in each command that it prints between backticks."""
        if not self._destination or "`steno " not in text:
            return text
        return with_destination(text, self._destination)

    def say(self, text: str) -> None:
        """Print a message: one line of text, or with --json one document."""
        text = self.addressed(text)
        with self._lock:
            if self._is_updated:
                self.update("")
            if self.as_json:
                self._print_json({"note": text})
                return
            self._utter(_for(self._messages, f"steno: {printable(text, one_line=True)}") + "\n")

    def ask(self, question: str) -> None:
        """Print a question; the answer is typed on the same line."""
        self._utter(_for(self._messages, f"steno: {printable(question, one_line=True)}"))

    def update(self, text: str) -> None:
        """Print a line that replaces the one before it and is replaced by the next message."""
        shown = printable(text, one_line=True)[: _columns() - 1]
        with self._lock:
            self._is_updated = bool(text)
            self._utter(f"\r\x1b[K{_for(self._messages, shown)}")

    def error(self, error: StenoError) -> None:
        """Print an error: one line, or one JSON object."""
        if self.as_json:
            self._print_error(error_document(error))
        else:
            self.say(in_shell_words(str(error)))

    def failure(self, message: str) -> None:
        """Print a failure that is not a StenoError."""
        if self.as_json:
            self._print_error({**error_document(StenoError(message)), "code": "failed"})
        else:
            self.say(message)

    def style(self, text: str, *styles: str) -> str:
        """`text` in colour if the data goes to a terminal with colours."""
        return styled(text, *styles) if self.is_terminal and has_colours() else text

    def _print_error(self, document: dict[str, Any]) -> None:
        self._print_json(
            {"error": {**document, "message": self.addressed(in_shell_words(document["message"]))}}
        )

    def _print_json(self, document: Mapping[str, Any]) -> None:
        self._utter(_json(self._messages, document))

    def _utter(self, text: str) -> None:
        """Print text at once; a closed stderr does not change the result of the command."""
        try:
            self._messages.write(text)
            self._messages.flush()
        except OSError:
            silence(self._messages)


def silence(stream: TextIO) -> None:
    """Redirect a failed stream to /dev/null: the interpreter flushes it again at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def styled(text: str, *styles: str) -> str:
    """`text` with the sequences of these styles."""
    codes = ";".join(_STYLES[style] for style in styles)
    return f"\x1b[{codes}m{text}\x1b[0m" if text else text


def has_colours() -> bool:
    """Whether the environment allows colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _columns() -> int:
    import shutil  # noqa: PLC0415  # most commands write to a pipe, and start sooner

    return shutil.get_terminal_size().columns


def _json(stream: TextIO, value: Mapping[str, Any]) -> str:
    import json  # noqa: PLC0415  # only with --json

    is_utf = (stream.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not is_utf, separators=(",", ":"))
    # A lone surrogate becomes its escape, which is valid JSON.
    text = text.encode("utf-8", "backslashreplace").decode()
    return (printable_json(text) if stream.isatty() else text) + "\n"


def _for(stream: TextIO, text: str) -> str:
    """`text` with escapes for what the encoding of the stream lacks, or what a terminal obeys."""
    return _fitted(stream, coloured(text) if stream.isatty() else text)


def _fitted(stream: TextIO, text: str) -> str:
    if text.isascii():
        return text
    encoding = (stream.encoding or "utf-8").lower()
    if encoding.startswith("utf"):
        # UTF-8 cannot encode a lone surrogate.
        return text.encode("utf-8", "backslashreplace").decode()
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)

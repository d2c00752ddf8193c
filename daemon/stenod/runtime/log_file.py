"""A log file that is bounded, and stays the one that its name leads to.

What is behind the name is looked at before each line: a log that was removed or moved away is begun
anew, so that months of events do not go to a file without a name. All names are looked up in the
folder that was there at the start: a root that was moved keeps its log, and one that was put in its
place gets none of it. The standard library's handlers either rotate or look at the name, and one
whose rename is refused writes no more.
"""

import logging
import os
from itertools import pairwise
from pathlib import Path
from typing import Final

from steno_protocol import limits

# O_NONBLOCK keeps a FIFO in its place from holding the start for ever.
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE: Final = 0o600


class LogFile(logging.Handler):
    """Writes each event as one line, in one call; what cannot be written is lost.

    Args:
        path: of the file; old ones are called `path.1` (the newest), `path.2` and so on.
        outputs: handles that are to lead there, too, such as that of stderr: what libzmq and the
            interpreter say when they end the process.

    Attributes:
        bytes_max: bytes that it may have before it is rotated.
        files_max: old ones that are kept.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, outputs: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.bytes_max = limits.LOG_BYTES_MAX
        self.files_max = limits.LOG_FILES_MAX
        self._name = path.name
        self._outputs = outputs
        self._is_torn = False
        self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._file = self._open()
        except OSError as error:
            os.close(self._folder)
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one event."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        try:
            self._follow_name()
            if os.fstat(self._file).st_size + len(line) > self.bytes_max:
                self._rotate(len(line))
            self._write(line)
        except OSError:
            # A disk that takes no log also refuses commands, so clients see its error.
            return

    def close(self) -> None:
        """Close the file; nothing may be written to it any more."""
        super().close()
        os.close(self._file)
        os.close(self._folder)

    def _write(self, line: bytes) -> None:
        # A disk that is full takes a part of a line, and the next event is to be a line again.
        data = b"\n" + line if self._is_torn else line
        self._is_torn = os.write(self._file, data) < len(data)

    def _follow_name(self) -> None:
        held = os.fstat(self._file)
        try:
            found = os.stat(self._name, dir_fd=self._folder)
        except FileNotFoundError:
            pass
        else:
            if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                return
        try:
            self._begin()
        except OSError:
            # The folder is gone, or something else has the name: better there than nowhere.
            return

    def _rotate(self, more: int) -> None:
        """Begin a new file; where the old ones cannot be renamed, the same one goes on for a while.

        It ends where all of them together would: a log does not fill the disk.
        """
        names = [self._name, *(f"{self._name}.{n}" for n in range(1, self.files_max + 1))]
        try:
            for name, older in reversed(list(pairwise(names))):
                try:
                    os.rename(name, older, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                except FileNotFoundError:
                    continue
            self._begin()
        except OSError:
            size = os.fstat(self._file).st_size
            if size + more > self.bytes_max * (self.files_max + 1):
                os.ftruncate(self._file, 0)

    def _begin(self) -> None:
        file = self._open()
        os.close(self._file)
        self._file, self._is_torn = file, False

    def _open(self) -> int:
        file = os.open(self._name, _FLAGS, _MODE, dir_fd=self._folder)
        for output in self._outputs:
            os.dup2(file, output)
        return file

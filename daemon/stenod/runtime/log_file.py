"""A bounded log file that is reopened when its name is gone.

The name is checked before each line: a log that was removed or moved away is created again, so that
events do not go to a file without a name. All names are resolved in the folder that was opened at
the start: a moved root keeps its log, and a new root at the old path gets none of it. The standard
library's handlers either rotate or check the name, and stop writing when a rename fails.

The log is a private file, so a link is not followed; only a device, such as `/dev/stderr`, is.
"""

import logging
import os
import stat
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import steno_system as system
from steno_protocol import limits
from steno_protocol.errors import Unauthorized
from steno_system.private_files import open_private

_FLAGS: Final = os.O_WRONLY | os.O_APPEND


class LogFile(logging.Handler):
    """Writes each event as one line with one call; a line that cannot be written is lost.

    Args:
        path: the path of the file; rotated files are `path.1` (the newest), `path.2` and so on.
        outputs: handles to redirect to the file, such as stderr: libzmq and the interpreter write
            there when they abort the process.

    Attributes:
        bytes_max: the size at which the file is rotated.
        files_max: the number of rotated files that are kept.

    Raises:
        Unauthorized: the path is a link, another kind of file, or another user's file.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, outputs: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.bytes_max = limits.LOG_BYTES_MAX
        self.files_max = limits.LOG_FILES_MAX
        self._path, self._name = path, path.name
        self._outputs = outputs
        self._is_torn = False
        self._folder = os.open(path.parent, system.PLACE_FLAGS)
        try:
            self._file = self._open()
        except Unauthorized:
            os.close(self._folder)
            raise
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
            # A disk that refuses the log refuses commands as well, so clients see the error.
            return

    def close(self) -> None:
        """Close the file; it must not be written to afterwards."""
        super().close()
        os.close(self._file)
        os.close(self._folder)

    def _write(self, line: bytes) -> None:
        # A full disk may take a part of a line; the next event begins a new line.
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
        except (OSError, Unauthorized):
            # The folder is gone or something else has the name: write to the old file.
            return

    def _rotate(self, more: int) -> None:
        """Begin a new file; if the old ones cannot be renamed, the present one grows further.

        It is emptied at the size of all of them together, so that a log does not fill the disk.
        """
        names = [self._name, *(f"{self._name}.{n}" for n in range(1, self.files_max + 1))]
        try:
            for name, older in reversed(list(pairwise(names))):
                try:
                    os.rename(name, older, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                except FileNotFoundError:
                    continue
            self._begin()
        except (OSError, Unauthorized):
            size = os.fstat(self._file).st_size
            if size + more > self.bytes_max * (self.files_max + 1):
                os.ftruncate(self._file, 0)

    def _begin(self) -> None:
        file = self._open()
        os.close(self._file)
        self._file, self._is_torn = file, False

    def _open(self) -> int:
        file = self._open_device()
        if file is None:
            file = self._open_file()
        for output in self._outputs:
            os.dup2(file, output)
        return file

    def _open_file(self) -> int:
        try:
            return open_private(self._path, _FLAGS, folder=self._folder)
        except FileNotFoundError:
            # A new one of this name: it is this user's, whoever may write to the folder.
            flags = _FLAGS | os.O_CREAT | os.O_EXCL
            return open_private(self._path, flags, folder=self._folder)

    def _open_device(self) -> int | None:
        """Open the log if it is a device, or a link to one; None if it is not."""
        with suppress(OSError):
            if stat.S_ISCHR(os.stat(self._name, dir_fd=self._folder).st_mode):
                flags = _FLAGS | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
                file = os.open(self._name, flags, dir_fd=self._folder)
                if stat.S_ISCHR(os.fstat(file).st_mode):
                    return file
                os.close(file)
        return None

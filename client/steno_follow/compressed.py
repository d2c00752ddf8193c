"""Transcripts that their program compressed with Zstandard."""

import io
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO, Final, cast

from steno_follow.limits import DECOMPRESSED_BYTES_MAX
from steno_protocol import compression
from steno_protocol.errors import TooLarge
from steno_protocol.limits import COPY_BYTES

SUFFIX: Final = ".zst"


class _Reader(io.RawIOBase):
    """The decompressed bytes, up to a limit; damage is an error of the file."""

    def __init__(self, file: BinaryIO, source: BinaryIO, damage: type[Exception], path: Path):
        self._file = file
        self._source = source
        self._damage = damage
        self._path = path
        self._left = DECOMPRESSED_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]  # the stub allows any buffer
        """Decompress the next bytes."""
        try:
            data = self._file.read(len(buffer))
        except (self._damage, EOFError) as error:
            raise OSError(f"{self._path} is damaged: {error}") from None
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge(
                f"{self._path} has more than {DECOMPRESSED_BYTES_MAX} bytes once it is decompressed"
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close both files."""
        if not self.closed:
            self._file.close()
            self._source.close()
        super().close()


def plain(file: BinaryIO, path: Path) -> BinaryIO:
    """A file that reads the bytes of another one, decompressed if its name says so.

    Raises:
        BadRequest: nothing that is installed can decompress it.
    """
    return _decompressed(file, path) if path.name.endswith(SUFFIX) else file


def seekable(file: BinaryIO, path: Path) -> BinaryIO:
    """The same, for a file that is read anywhere: decompressed into one without a name.

    Raises:
        BadRequest, TooLarge: it cannot be decompressed.
        OSError: it is damaged, or the other one cannot be written.
    """
    if not path.name.endswith(SUFFIX):
        return file
    whole = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # the caller closes it
    try:
        with _decompressed(file, path) as content:
            shutil.copyfileobj(content, whole, COPY_BYTES)
        whole.seek(0)
    except BaseException:
        whole.close()
        raise
    return whole


def _decompressed(file: BinaryIO, path: Path) -> BinaryIO:
    """A file that reads the decompressed bytes of another one, which it closes.

    Raises:
        BadRequest: nothing that is installed can decompress it.
    """
    try:
        stream, damage = compression.opened(file, f"reading {path}")
    except BaseException:
        file.close()
        raise
    return cast("BinaryIO", io.BufferedReader(_Reader(stream, file, damage, path)))

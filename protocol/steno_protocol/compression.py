"""Zstandard, and compressed files of sessions: zstd behind the length and checksum of the bytes.

Python has zstd since 3.14; before that, the package `zstandard` has it, the extra `stenod[zstd]`.
A compressed file begins with a skippable frame, which every program for zstd passes over, so
`zstd -d` and `zstdcat` read it, too.
"""

import errno
import importlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command

_HEAD: Final = struct.Struct("<IIQI")
_SKIPPABLE: Final = 0x184D2A5E
_LEVEL: Final = 3
_READ_BYTES: Final = 64 * 1024

HEAD_BYTES: Final = _HEAD.size
"""Bytes that `plain_size` needs."""


def check_installed() -> None:
    """Raise BadRequest, with the command that installs it, if nothing here knows zstd."""
    _compressor()


class PlainHead(NamedTuple):
    """The size and the CRC-32 of the plain bytes of a compressed file."""

    size: int
    crc: int


class Damaged(OSError):
    """A compressed file lacks bytes, or has others than it was written with."""


class Contradicted(OSError):
    """A plain file does not begin with the bytes of the compressed one; the message says so."""


class Unexpandable(OSError):
    """Nothing that is installed can expand a file; the message names the command that installs it.

    Args:
        error: the refusal.
        name: the name of the file.
    """

    def __init__(self, error: BadRequest, name: str) -> None:
        super().__init__(errno.ENOTSUP, error.message, name)


def plain_head(head: bytes) -> PlainHead | None:
    """Return what the first bytes of a file say of its plain ones; None if they are no head."""
    try:
        magic, length, size, crc = _HEAD.unpack(head[:HEAD_BYTES])
    except struct.error:
        return None
    return PlainHead(size, crc) if (magic, length) == (_SKIPPABLE, HEAD_BYTES - 8) else None


def plain_size(head: bytes) -> int | None:
    """Return the bytes that a file has once it is expanded; None if it has no whole head."""
    found = plain_head(head)
    return None if found is None else found.size


def compressed(blocks: Iterable[bytes], size: int, crc: int) -> Iterator[bytes]:
    """Yield the bytes of a compressed file.

    Args:
        blocks: the plain bytes.
        size: their number.
        crc: their CRC-32.

    Raises:
        BadRequest: nothing that is installed can compress them.
    """
    compressor = _compressor()
    yield _HEAD.pack(_SKIPPABLE, HEAD_BYTES - 8, size, crc)
    for block in blocks:
        yield compressor.compress(block)
    yield compressor.flush()


def expanded(read: Callable[[int, int], bytes], name: str) -> Iterator[bytes]:
    """Yield the plain bytes of a compressed file, checked against its head.

    Args:
        read: returns up to a number of bytes from an offset of the file.
        name: its name, for messages.

    Raises:
        BadRequest: nothing that is installed can expand it.
        Damaged: it is damaged; the bytes before the damage may have been yielded.
    """
    head, crc = plain_head(read(HEAD_BYTES, 0)), 0
    if head is None:
        raise _damaged(name)
    reader, damage = opened(_Packed(read), f"reading {name}")
    left = head.size
    while block := _next_block(reader, damage, name):
        left -= len(block)
        if left < 0:
            break
        crc = zlib.crc32(block, crc)
        yield block
    if left or crc != head.crc:
        raise _damaged(name)


class _Packed:
    """The bytes behind the head, as a file."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._offset = HEAD_BYTES

    def read(self, size: int) -> bytes:
        data = self._read(size, self._offset)
        self._offset += len(data)
        return data


def _next_block(reader: Any, damage: type[Exception], name: str) -> bytes:
    """Up to 64 KiB of plain bytes: a damaged file may expand to any number of them."""
    try:
        block: bytes = reader.read(_READ_BYTES)
    except (damage, EOFError):
        raise _damaged(name) from None
    return block


def _damaged(name: str) -> Damaged:
    return Damaged(errno.EIO, "the compressed file is damaged", name)


def _compressor() -> Any:
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        return _package("compressing files").ZstdCompressor(_LEVEL).compressobj()
    return zstd.ZstdCompressor(_LEVEL)


def opened(source: Any, what: str) -> tuple[Any, type[Exception]]:
    """Open compressed bytes for reading; returns a file and the error that it raises for damage.

    Args:
        source: has `read(size)`.
        what: what needs zstd, for messages.

    Raises:
        BadRequest: nothing that is installed can expand them.
    """
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        zstd = _package(what)
        stream = zstd.ZstdDecompressor().stream_reader(source, read_across_frames=True)
        return stream, zstd.ZstdError
    return zstd.ZstdFile(source), zstd.ZstdError


def _package(what: str) -> Any:
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise BadRequest(f"{what} needs zstd: install it with `{extra_command('zstd')}`") from None

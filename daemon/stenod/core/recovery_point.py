"""Recovery points: a durable length of a file, and its numbers.

A recovery point makes opening fast, and separates a torn tail behind it from corruption before it;
nothing else depends on it, so it may be lost, old or another program's. It is valid if the file's
generation, inode and fingerprint match, and if it is whole itself: it is never synced, so a power
cut may leave any part of it. Its first word is the CRC-32 of the rest:

    5b1c90e2 {"generation":3,"inode":812,"bytes":4194400,"crc":99182217,"lines":8120,...}
"""

import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from steno_protocol.context import ContextCounters
from stenod.core.seek_index import SeekPoint


class RecoveryPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers of the first `bytes` bytes of one generation's file.

    Attributes:
        youngest_key_ms: creation time of the newest key used up to there, 0 without keys; None if
            it was unknown.
        checksums: CRC-32 of each block of these bytes, see `steno_protocol.checksums`.
    """

    generation: int
    inode: int
    bytes: int
    crc: int
    lines: int
    token_count: int
    pending_chars: int
    n_checkpoints: int
    has_system_prompt: bool
    youngest_key_ms: int | None = None
    milestones: list[SeekPoint] = []
    checksums: list[int | None] = []

    def counters(self) -> ContextCounters:
        """Return the counters at the recovery point."""
        return ContextCounters(
            token_count=self.token_count,
            pending_chars=self.pending_chars,
            n_checkpoints=self.n_checkpoints,
            has_system_prompt=self.has_system_prompt,
        )


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(RecoveryPoint)

_CHECK_BYTES: Final = 9


def encode_recovery_point(
    *,
    generation: int,
    inode: int,
    size: int,
    crc: int,
    lines: int,
    counters: ContextCounters,
    youngest_key_ms: int | None = None,
    milestones: Iterable[SeekPoint] = (),
    checksums: Iterable[int | None] = (),
) -> bytes:
    """Encode a recovery point."""
    body = _encode(
        RecoveryPoint(
            generation=generation,
            inode=inode,
            bytes=size,
            crc=crc,
            lines=lines,
            token_count=counters.token_count,
            pending_chars=counters.pending_chars,
            n_checkpoints=counters.n_checkpoints,
            has_system_prompt=counters.has_system_prompt,
            youngest_key_ms=youngest_key_ms,
            milestones=list(milestones),
            checksums=list(checksums),
        )
    )
    return _check(body) + body


def decode_recovery_point(data: bytes) -> RecoveryPoint | None:
    """Decode a recovery point; None if the bytes are not a whole one."""
    word, body = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if word != _check(body):
        return None
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def at_inode(data: bytes, inode: int) -> bytes | None:
    """Return an encoded recovery point for a copy of its file; None if it is not a whole one.

    Args:
        data: the encoded recovery point.
        inode: the inode of the copy.
    """
    point = decode_recovery_point(data)
    if point is None:
        return None
    body = _encode(msgspec.structs.replace(point, inode=inode))
    return _check(body) + body


def _check(body: bytes) -> bytes:
    return b"%08x " % zlib.crc32(body)

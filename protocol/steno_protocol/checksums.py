"""Checksums of a file's blocks, to detect changes of synced bytes.

The checksums of unchanged blocks stay valid: an append extends the last block, and a rewrite that
keeps the first part of a file keeps their checksums. Every rewrite would have to compute a checksum
of the whole file anew.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence

from steno_protocol import limits


class BlockChecksums:
    """CRC-32 of each block of `CHECKSUM_BLOCK_BYTES` of a file, in order; the last may be shorter.

    Args:
        size: bytes that are covered.
        known: one checksum a block, None for a block without a known checksum. A list of another
            length counts as unknown.

    Attributes:
        size: bytes that are covered.
    """

    def __init__(self, size: int = 0, known: Sequence[int | None] = ()) -> None:
        self.size: int = size
        n_blocks = -(-size // limits.CHECKSUM_BLOCK_BYTES)
        # The recovery point of another version of steno may have none, or too few.
        self._known: list[int | None] = list(known) if len(known) == n_blocks else [None] * n_blocks

    @property
    def known(self) -> list[int | None]:
        """One checksum a block, None where it is not known."""
        return self._known.copy()

    def feed(self, data: bytes) -> None:
        """Cover the next bytes of the file."""
        start = 0
        while start < len(data):
            filled = self.size % limits.CHECKSUM_BLOCK_BYTES
            end = start + limits.CHECKSUM_BLOCK_BYTES - filled
            piece = data[start:end]
            if filled == 0:
                self._known.append(zlib.crc32(piece))
            elif (crc := self._known[-1]) is not None:
                self._known[-1] = zlib.crc32(piece, crc)
            self.size += len(piece)
            start = end

    def whole_blocks(self, size: int) -> "BlockChecksums":
        """Return the checksums of the whole blocks within the first `size` bytes."""
        n_blocks = min(size, self.size) // limits.CHECKSUM_BLOCK_BYTES
        return BlockChecksums(n_blocks * limits.CHECKSUM_BLOCK_BYTES, self._known[:n_blocks])

    def differences(self, data: Iterable[bytes]) -> Iterator[tuple[int, int]]:
        """Compare a file with the checksums.

        Args:
            data: the file's bytes from its start; bytes behind `size` are ignored.

        Yields:
            Offset and length of each run of blocks that differ.
        """
        found = BlockChecksums()
        for piece in data:
            found.feed(piece[: self.size - found.size])
        start = None
        for index, (known, seen) in enumerate(zip(self._known, found._known, strict=False)):
            is_other = known is not None and known != seen
            if is_other and start is None:
                start = index
            elif not is_other and start is not None:
                yield self._run(start, index)
                start = None
        if start is not None:
            yield self._run(start, len(found._known))

    def _run(self, start: int, end: int) -> tuple[int, int]:
        offset = start * limits.CHECKSUM_BLOCK_BYTES
        return offset, min(end * limits.CHECKSUM_BLOCK_BYTES, self.size) - offset

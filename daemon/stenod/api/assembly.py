"""Messages that arrive in parts, until their last part."""

from collections.abc import Hashable
from typing import Final

import msgspec

from steno_protocol import limits
from steno_protocol.errors import Busy, StenoError, TooLarge
from steno_protocol.messages import Part, join_parts


class _Assembly(msgspec.Struct):
    """The parts of one message so far.

    Attributes:
        id: the id of the message's first request.
        parts: the data, in order.
        size: the bytes of the data.
    """

    id: str
    parts: list[bytes] = msgspec.field(default_factory=list[bytes])
    size: int = 0


_LOST: Final = Busy("a part of the message is missing: send all its parts again")


class Assemblies:
    """The unfinished messages of all peers, at most one of each, with a bound on their bytes."""

    def __init__(self) -> None:
        self._assemblies: dict[Hashable, _Assembly] = {}
        self._bytes = 0

    @property
    def size(self) -> int:
        """The bytes of all unfinished messages."""
        return self._bytes

    def add(self, peer: Hashable, part: Part, data: bytes) -> list[bytes] | StenoError | None:
        """Add a part of a peer's message.

        Args:
            peer: the peer.
            part: the part's header.
            data: the part's data.

        Returns:
            The message after its last part, or why it has none; None after another part. A part
            that does not continue the peer's message is dropped, and so is an unfinished message
            before it.
        """
        found = self._assemblies.get(peer)
        self.forget(peer)
        if found is None or found.id != part.part or not part.offset:
            found = _Assembly(part.part)
        size = part.offset + len(data)
        if size > limits.ASSEMBLED_BYTES_MAX:
            return _too_large(size) if part.requests else None
        if part.offset != found.size:
            return _LOST if part.requests else None
        found.parts.append(data)
        if part.requests:
            return join_parts(part, found.parts)
        found.size = size
        self._bytes += size
        # Last in the order: the first one was continued least recently.
        self._assemblies[peer] = found
        while self._bytes > limits.ASSEMBLIES_BYTES_MAX:
            self.forget(next(iter(self._assemblies)))
        return None

    def forget(self, peer: Hashable) -> None:
        """Drop the unfinished message of a peer."""
        found = self._assemblies.pop(peer, None)
        if found is not None:
            self._bytes -= found.size


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"the message has {size} bytes of records, at most {limits.BATCH_BYTES_MAX} are allowed:"
        " send several batches"
    )

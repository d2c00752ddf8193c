"""The entries of the replicated journal: what was done to the files of one session's folder.

A change is a list of entries in MessagePack, each an array that begins with its name. Files have
numbers, because a name leads to another file after a rewrite. Each entry says which bytes are
before it, so that it fits nowhere else.
"""

from collections.abc import Sequence

import msgspec

from steno_protocol.errors import Corrupt


class Entry(msgspec.Struct, frozen=True, array_like=True, tag_field="entry"):
    """One change of a folder."""


class Create(Entry, frozen=True, tag="create"):
    """A new, empty file; it takes the name from another file.

    Attributes:
        file: its number, which no other file of the folder has.
        name: its name.
    """

    file: int
    name: str


class Append(Entry, frozen=True, tag="append"):
    """Bytes behind the end of a file.

    Attributes:
        file: its number.
        offset: its size before, in bytes.
        crc: the CRC-32 of all bytes before.
        data: the bytes.
    """

    file: int
    offset: int
    crc: int
    data: bytes


class Copy(Entry, frozen=True, tag="copy"):
    """A range of another file behind the end of a file.

    Attributes:
        file: its number.
        offset: its size before, in bytes.
        crc: the CRC-32 of all bytes before.
        source: the number of the other file.
        source_offset: where the range begins there.
        size: bytes of the range.
        crc_after: the CRC-32 of all bytes with the range.
    """

    file: int
    offset: int
    crc: int
    source: int
    source_offset: int
    size: int
    crc_after: int


class Cut(Entry, frozen=True, tag="cut"):
    """The end of a file was cut off.

    Attributes:
        file: its number.
        size: its bytes afterwards.
        crc: the CRC-32 of those.
    """

    file: int
    size: int
    crc: int


class Name(Entry, frozen=True, tag="name"):
    """A name leads to a file from now on.

    Attributes:
        name: the name.
        file: the number of the file; None if the name was removed.
    """

    name: str
    file: int | None


AnyEntry = Create | Append | Copy | Cut | Name

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyEntry])


def encode_entries(entries: Sequence[AnyEntry]) -> bytes:
    """Encode a change.

    >>> decode_entries(encode_entries([Name("state.json", None)]))
    [Name(name='state.json', file=None)]
    """
    return _encoder.encode(entries)


def decode_entries(body: bytes) -> list[AnyEntry]:
    """Decode a change.

    Raises:
        Corrupt: these are no entries.
    """
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"the journal has a message that is no change of a session: {error}; another program"
            " writes to steno's subjects, or a newer steno does: give it other subjects, or update"
        ) from None

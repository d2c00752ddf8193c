"""The files that a program keeps beside a transcript, as records of a stream.

Claude Code writes a long result of a tool to a file of its own, and at times later than the line
that names it. Each look takes in what a file has more than the stream.

    {"file":"call.txt","begin":0,"end":14,"text":"a long result\\n"}
    {"file":"shot.png","begin":0,"end":4,"base64":"iVBORw=="}
"""

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import msgspec

from steno_agents.limits import RAW_BYTES
from steno_follow.foreign_source import ForeignSource
from steno_follow.naming import stem

_encode = msgspec.json.Encoder().encode


def taken_of(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many bytes of each file the records of a stream have."""
    return {str(each.get("file")): int(each.get("end", 0)) for each in records}


def has_companions(source: ForeignSource, name: str) -> bool:
    """Whether there is a folder of a name with files beside a transcript."""
    return source.tree.has_folder(_beside(source, name))


def _beside(source: ForeignSource, name: str) -> PurePath:
    return source.inside.parent / stem(source.inside.name) / name


def new_pieces(
    source: ForeignSource,
    name: str,
    taken: Mapping[str, int],
    mask: Callable[[bytes], bytes] | None,
) -> Iterator[bytes]:
    """Yield a record for each piece of the files of a folder that is not taken yet.

    A file that is removed meanwhile is passed over; a folder that does not exist has no files.

    Args:
        source: the transcript.
        name: one of the `companions` of its format, and the stream with the records.
        taken: the bytes of each file that the stream has.
        mask: hides secrets.
    """
    tree, folder = source.tree, _beside(source, name)
    if not tree.has_folder(folder):
        return
    for entry in tree.entries(folder):
        file_name = os.fsencode(entry.name).decode(errors="replace")
        begin = taken.get(file_name, 0)
        if entry.is_folder or tree.size(folder / entry.name) <= begin:
            continue
        with suppress(FileNotFoundError), tree.open(folder / entry.name) as file:
            file.seek(begin)
            while piece := _piece(file.read(RAW_BYTES)):
                yield _record(file_name, begin, piece, mask)
                begin += len(piece)
                file.seek(begin)


def _piece(block: bytes) -> bytes:
    """The whole lines of a block that has more behind it."""
    return block[: block.rfind(b"\n") + 1] or block if len(block) == RAW_BYTES else block


def _record(file: str, begin: int, piece: bytes, mask: Callable[[bytes], bytes] | None) -> bytes:
    shown = piece if mask is None else mask(piece)
    place = {"file": file, "begin": begin, "end": begin + len(piece)}
    try:
        return _encode({**place, "text": shown.decode()})
    except UnicodeDecodeError:
        return _encode({**place, "base64": b64encode(shown).decode()})

"""The streams that a root knows, and what the operator asked it to do about others.

A stream that was deleted and made again, or restored from an old copy, has the name of the one
before and lacks acknowledged messages. A root remembers each stream that it used, and acknowledges
nothing in another one before the operator says `steno cluster join` with an option.
"""

import os
import threading
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from steno_protocol import paths
from steno_system.private_files import open_private, read_private
from stenod.store import syncs


class Request(StrEnum):
    """What the operator asked for.

    Attributes:
        NONE: nothing: a missing stream and another stream are refused.
        CREATE: create the streams if they are missing and this root knew none.
        AGAIN: use the streams as they are now, and create missing ones.
    """

    NONE = ""
    CREATE = "create"
    AGAIN = "again"


class Own(msgspec.Struct, frozen=True):
    """The last message that a root published, by which it knows the stream's later messages.

    Attributes:
        sequence: its number; 0 if there is none.
        id: its id, which no other message has.
    """

    sequence: int = 0
    id: str = ""


class Known(msgspec.Struct, frozen=True):
    """A stream that this root used.

    Attributes:
        identity: the time of its creation, and its marker message.
        last: the highest sequence that this root knows to be durable in it.
        is_old_copy: the servers stored a sequence anew, and may have caught up with the last one.
        own: the last message of this root that is durable in it.
        is_joining: hosts join it one after another, and no daemon of this root has served since.
    """

    identity: str
    last: int = 0
    is_old_copy: bool = False
    own: Own = Own()
    is_joining: bool = False


class Trust:
    """The known streams of one root, which its folder keeps.

    Args:
        root: the root; None for one without a folder, which forgets them with the process.
        request: what the operator asked for, of a root without a folder.

    Attributes:
        request: what the operator asked for.
    """

    def __init__(self, root: Path | None, request: Request = Request.NONE) -> None:
        self._root = root
        self.request = request
        self._known: dict[str, Known] = {}
        self._is_saved = True
        self._lock = threading.Lock()
        if root is not None:
            self.request = _request_in(root)
            with suppress(FileNotFoundError, msgspec.DecodeError):
                data = read_private(root / paths.CLUSTER_STREAMS)
                self._known = msgspec.json.decode(data, type=dict[str, Known])

    def known(self, stream: str) -> Known | None:
        """Returns what this root knows of a stream; None if it never used it."""
        return self._known.get(stream)

    def accept(self, stream: str, known: Known) -> None:
        """Remember a stream; blocks, and returns when the folder has it on disk.

        A stream that is an old copy stays one until it has another identity.

        Raises:
            OSError: the disk failed; this process remembers it, and the next call writes it.
        """
        with self._lock:
            before = self._known.get(stream)
            if before is not None and before.is_old_copy and before.identity == known.identity:
                known = before
            # What a full disk did not take is known, and has to get there before anyone trusts it.
            if before == known and self._is_saved:
                return
            self._known[stream] = known
            self._is_saved = False
            if self._root is not None:
                known_streams = msgspec.json.encode(self._known)
                replace_durably(self._root / paths.CLUSTER_STREAMS, known_streams)
            self._is_saved = True

    def end_request(self) -> None:
        """The operator's request was carried out; blocks, and is forgotten for good on return."""
        if self.request is not Request.NONE and self._root is not None:
            (self._root / paths.CLUSTER_REQUEST).unlink(missing_ok=True)
            syncs.fsync_folder(self._root)
        self.request = Request.NONE


def _request_in(root: Path) -> Request:
    with suppress(FileNotFoundError, ValueError):
        return Request(read_private(root / paths.CLUSTER_REQUEST).decode().strip())
    return Request.NONE


def replace_durably(path: Path, data: bytes) -> None:
    """Write a private file whole, which has its old or its new content whatever ends this."""
    new = path.with_name(f"{path.name}.new")
    handle = open_private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        syncs.fsync(handle)
    new.replace(path)
    syncs.fsync_folder(path.parent)

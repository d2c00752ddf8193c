"""The session behind a path, opened by use, with unstamped lines.

Everything here blocks, and runs in a thread of the adapter's event loop.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from steno import BlockingClient, BlockingSession
from steno.adapters import _twin
from steno.adapters._address import Address, find_address
from steno.adapters._daemons import client_of
from steno.parts import CheckpointLike, LineReader, ack_of, mutation, new_key
from steno.values import Ack, Checkpoint, Mail, decode_object
from steno_protocol import commands, limits, replies
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.records import stamp_of

Line = tuple[Position, bytes]


@dataclass(frozen=True, slots=True)
class _Opened:
    session: BlockingSession
    client: BlockingClient
    folder: tuple[int, int] | None


class FileSession:
    """The session with the context at `path`.

    Every change is on the disk, and readable at `path`, when its method returns. A relative path
    refers to the working directory at the time of this call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._address: Address | None = None
        self._opened: _Opened | None = None

    def __reduce__(self) -> "tuple[type[FileSession], tuple[Path]]":
        """Copy the path only: a copy, also in another process, opens the session by itself."""
        return FileSession, (self.path,)

    @property
    def has_content(self) -> bool:
        """False when there is no file, or an empty one."""
        return self.path.exists() and self.path.stat().st_size > 0

    def read(self, after: Position | None = None, until: Position | None = None) -> list[Line]:
        """Return the whole lines between two positions with their cursors; nothing is repaired."""
        address = self._look()
        client = client_of(address)
        reader = LineReader(address.session, after, until)
        while command := reader.next_command():
            reader.take(*client.request(command, replies.Lines))
        return list(reader.lines)

    def end_last_record(self) -> None:
        """Add a missing newline to the last record, which would not be read without it.

        kimi-cli and kosong restore such a record. Here the daemon writes the newline, as it does at
        the next change anyway: a record without a newline has no position.
        """
        if _is_last_record_unended(self.path):
            self._open().stat()

    def append(self, messages: Sequence[bytes]) -> Ack:
        """Append messages as one batch."""
        return self._change(lambda session: session.append_message(messages))

    def checkpoint(self, *, add_user_message: bool) -> Checkpoint:
        """Append a checkpoint."""
        return self._open().checkpoint(add_user_message)

    def update_token_count(self, token_count: int) -> Ack:
        """Append a token count."""
        return self._change(lambda session: session.update_token_count(token_count))

    def write_system_prompt(self, prompt: str) -> Ack:
        """Put the system prompt first."""
        return self._rewrite(lambda session: session.write_system_prompt(prompt))

    def revert_to(self, checkpoint_id: CheckpointLike) -> Ack:
        """Drop a checkpoint and everything after it, and damaged lines before it.

        Raises:
            RuntimeError: the folder is missing, so no file can be rotated.
        """
        self._check_folder()
        return self._rewrite(lambda session: session.revert_to(checkpoint_id, drop_damaged=True))

    def clear(self) -> Ack:
        """Drop everything.

        Raises:
            RuntimeError: the folder is missing, so no file can be rotated.
            FileNotFoundError: the file is missing.
        """
        self._check_folder()
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, "there is no file to clear", str(self.path))
        return self._rewrite(lambda session: session.clear())

    def begin_compaction(self) -> tuple[str, replies.Compaction]:
        """Begin a compaction; return its lease and the answer of the daemon.

        The daemon's own cut is not used, so the request is for the latest possible one.
        """
        session = self._open()
        client = client_of(self._look())
        command = commands.CompactBegin(
            session=session.id, lease=new_key(), preserve=1,
            lease_ms=limits.COMPACTION_SILENT_LEASE_MS, by=client.name,
        )  # fmt: skip
        return command.lease, client.request(command, replies.Compaction)[0]

    def commit_compaction(
        self,
        lease: str,
        begun: replies.Compaction,
        cut: Position,
        summary: bytes,
        summary_tokens: int | None,
    ) -> Ack:
        """Put a summary in place of the lines before `cut`, as one rewrite.

        Raises:
            Conflict: another rewrite came between; nothing was changed.
        """

        def commit(session: BlockingSession) -> Ack:
            client = client_of(self._look())
            command = mutation(
                commands.CompactCommit, session.id, client.name, None, None, "synced",
                lease=lease, cut=str(cut), at=begun.at, checkpoint_id=begun.checkpoint_id,
                incarnation=begun.incarnation or None, summary_tokens=summary_tokens,
            )  # fmt: skip
            return ack_of(client.request(command, replies.Ack, [summary])[0], command.key)

        return self._rewrite(commit)

    def abort_compaction(self, lease: str) -> None:
        """End a compaction without a result."""
        address = self._look()
        command = commands.CompactAbort(session=address.session, lease=lease)
        client_of(address).request(command, replies.Done)

    def send_dmail(self, checkpoint_id: CheckpointLike, message: str, replaces: str | None) -> Ack:
        """Send a D-Mail back to a checkpoint."""
        return self._change(
            lambda session: session.send_dmail(checkpoint_id, message, replaces=replaces)
        )

    def pending_dmail(self) -> Mail | None:
        """Return the pending D-Mail; None also when there is no session."""
        if not self.path.exists():
            return None
        address = self._look()
        try:
            return client_of(address).session(address.session).pending_dmail()
        except NotFound:
            return None

    def head(self) -> Position:
        """Return the head of the session; create it when there is none."""
        return Position.parse(self._open().stat().head)

    def make(self) -> None:
        """Create the file, if it is missing."""
        self._open()

    def _check_folder(self) -> None:
        if not self.path.parent.exists():
            raise RuntimeError(
                f"{self.path} cannot be rotated: its folder is missing; make it first"
            )

    def _change(self, change: Callable[[BlockingSession], Ack]) -> Ack:
        return change(self._open())

    def _rewrite(self, change: Callable[[BlockingSession], Ack]) -> Ack:
        ack = self._change(change)
        address = self._look()
        if address.is_companion and ack.rotated is not None:
            _twin.follow_rewrite(self.path, address.context, ack.rotated)
        return ack

    def _look(self) -> Address:
        """Return the address of the session; link its file under both names."""
        if self._address is None:
            self._address = find_address(self.path)
        if self._address.is_companion and self.path.exists():
            _twin.adopt(self.path, self._address.context)
        return self._address

    def _open(self) -> BlockingSession:
        if not self.path.parent.exists():
            raise FileNotFoundError(
                errno.ENOENT, "the folder of the session is missing", str(self.path.parent)
            )
        if not self.path.exists():
            # Empty, because the daemon keeps the contents of a session without its file.
            self.path.touch(0o600)
        address = self._look()
        client = client_of(address)
        opened = self._opened
        if opened is None or opened.client is not client or opened.folder != _identity(address):
            # A folder that was removed and created again is another session.
            session = client.open(address.session, follow=False, stamp=False)
            opened = self._opened = _Opened(session, client, _identity(address))
        return opened.session


def _identity(address: Address) -> tuple[int, int] | None:
    try:
        found = address.folder.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_last_record_unended(path: Path) -> bool:
    """True when the file ends with a record of another program without its newline."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if file.read(1) in (b"", b"\n"):
            return False
        file.seek(max(0, size - limits.RECORD_BYTES_MAX))
        last = file.read().rpartition(b"\n")[2]
    return b"\0" not in last and stamp_of(last) is None and decode_object(last) is not None

"""kosong's linear storage, backed by steno.

    context = LinearContext(StenoLinearStorage("session/context.jsonl"))

The history of the LinearContext outlives the process. Unlike kosong's own file storage it has the
bytes on the disk when an append returns, and restores files in which kimi-cli kept checkpoints and
a system prompt.
"""

import os
from pathlib import Path
from typing import Any

from steno.adapters._follow import FollowedFile
from steno.adapters._transcript import Appended, Transcript, kosong_message
from steno.parts import in_thread


class MemoryLinearStorage:
    """A storage in memory, for tests of code that uses a storage."""

    def __init__(self) -> None:
        self._transcript = Transcript()

    @property
    def messages(self) -> list[Any]:
        """The history; the storage's own list."""
        return self._transcript.messages

    @property
    def token_count(self) -> int:
        """The last token count, 0 before the first."""
        return self._transcript.token_count

    async def append_message(self, message: Appended) -> None:
        """Add a message, or a plain dict as a message of the class of the others, else kosong's."""
        self._transcript.learn_type([message])
        if self._transcript.message_type is None:
            self._transcript.message_type = kosong_message()
        self._transcript.take_messages(*self._transcript.prepare([message]))

    async def mark_token_count(self, token_count: int) -> None:
        """Append the token count of the messages."""
        self._transcript.counted(token_count)


class StenoLinearStorage:
    """The messages in the file at `path`, which several processes may append to.

    When an append returns, its bytes are on the disk; earlier messages of other processes are then
    in `messages`, too. No call opens or closes the storage. Messages from the file are of
    `message_type`, a pydantic model, else of the class of messages appended here, else kosong's.
    A relative path is taken in the present working directory.
    """

    def __init__(self, path: str | os.PathLike[str], *, message_type: type | None = None) -> None:
        self._followed = FollowedFile(Path(path), message_type)

    @property
    def messages(self) -> list[Any]:
        """The history, as far as this object has read or written it; the storage's own list."""
        return self._followed.transcript.messages

    @property
    def token_count(self) -> int:
        """The last token count, 0 before the first."""
        return self._followed.transcript.token_count

    async def restore(self) -> None:
        """Load the file, if it exists; a last record without its newline gets one.

        Raises:
            RuntimeError: there are messages here already.
        """
        async with self._followed.lock:
            if self.messages:
                raise RuntimeError(
                    f"the storage of {self._followed.file.path} holds messages already: restore()"
                    " is for a new object"
                )
            if await in_thread(lambda: self._followed.file.has_content):
                await self._followed.load()
            else:
                self._followed.find_empty()

    async def append_message(self, message: Appended) -> None:
        """Append a message, or a plain dict that the message type accepts."""
        async with self._followed.lock:
            await self._followed.append([message])

    async def mark_token_count(self, token_count: int) -> None:
        """Append the token count of the messages."""
        async with self._followed.lock:
            await self._followed.update_token_count(token_count)

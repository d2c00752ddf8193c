"""A shared file and its transcript, kept together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steno.adapters._file_session import FileSession
from steno.adapters._transcript import Appended, Transcript, kosong_message
from steno.adapters._turns import Turns
from steno.parts import CheckpointLike, in_thread
from steno.values import Ack
from steno_protocol.positions import Position


class FollowedFile:
    """The session behind a path and its transcript; callers hold `lock` while they use it.

    A file is followed from the loaded lines on, also if there were none; without `load` from the
    first change on, and the transcript lacks earlier lines. A cancelled change may be on the disk;
    the next one takes it in.

    Attributes:
        file: the session; its calls block.
        transcript: the meaning of the lines that were read.
        lock: serialises the calls of several tasks.
    """

    def __init__(self, path: Path, message_type: Any = None) -> None:
        self.file = FileSession(path)
        self.transcript = Transcript(message_type)
        self.lock = Turns()
        self._head: Position | None = None
        self._is_loaded = False

    def find_empty(self) -> None:
        """Note that there was nothing to load, so that every line is new."""
        self._is_loaded = True

    async def load(self, until: Position | None = None) -> None:
        """Replay the file, or a generation of it up to `until`."""
        await self._know_type()
        if until is None:
            await in_thread(self.file.end_last_record)
        after = None if until is None else Position(until.generation, 0)
        lines = await in_thread(lambda: self.file.read(after, until))
        self.transcript.reset()
        self.transcript.take_lines(line for _, line in lines)
        if until is None and lines:
            last = lines[-1][0]
            until = Position(last.generation, last.line + 1)
        self._is_loaded = True
        self._head = until

    async def take_in(self) -> None:
        """Take in lines of other processes, if the file is followed and was not removed."""
        is_followed = self._is_loaded or self._head is not None
        if not is_followed or not await in_thread(lambda: self.file.has_content):
            return
        await self._know_type()
        await self._begin()
        await self._catch_up(await in_thread(self.file.head))

    async def append(self, messages: Sequence[Appended]) -> None:
        """Append messages as one batch."""
        self.transcript.learn_type(messages)
        if any(isinstance(message, Mapping) for message in messages):
            await self._know_type()
        shown, encoded = self.transcript.prepare(messages)
        await self._begin()
        ack = await in_thread(lambda: self.file.append(encoded))
        await self._catch_up(ack.first)
        self.transcript.take_messages(shown, encoded)
        self._head = ack.head

    async def update_token_count(self, token_count: int) -> None:
        """Append a token count."""
        await self._know_type()
        await self._begin()
        ack = await in_thread(lambda: self.file.update_token_count(token_count))
        await self._catch_up(ack.first)
        self.transcript.counted(token_count)
        self._head = ack.head

    async def checkpoint(self, *, add_user_message: bool) -> CheckpointLike:
        """Append a checkpoint."""
        await self._know_type()
        await self._begin()
        ack = await in_thread(lambda: self.file.checkpoint(add_user_message=add_user_message))
        await self._catch_up(ack.first)
        own = await in_thread(lambda: self.file.read(ack.first, ack.head))
        self.transcript.take_lines(line for _, line in own)
        self._head = ack.head
        return ack

    async def write_system_prompt(self, prompt: str) -> None:
        """Put the system prompt first."""
        await self._know_type()
        if self._is_loaded:
            await self._begin()
        ack = await in_thread(lambda: self.file.write_system_prompt(prompt))
        await self._follow_prompt(ack)
        self.transcript.system_prompt = prompt

    async def revert_to(self, checkpoint_id: CheckpointLike) -> None:
        """Drop a checkpoint and everything after it."""
        await self._know_type()
        ack = await in_thread(lambda: self.file.revert_to(checkpoint_id))
        await self.load(ack.head)

    async def clear(self) -> None:
        """Drop everything."""
        ack = await in_thread(self.file.clear)
        self.transcript.reset()
        self._head = ack.head

    async def _begin(self) -> None:
        """Find the end of the file before a first change, which may be applied and cancelled."""
        if self._head is None:
            head = await in_thread(self.file.head)
            self._head = Position(head.generation, 0) if self._is_loaded else head

    async def _know_type(self) -> None:
        """Find the message type first: without it a call would fail after its change."""
        if self.transcript.message_type is None:
            self.transcript.message_type = await in_thread(kosong_message)

    async def _catch_up(self, until: Position) -> None:
        """Take in lines of other processes since the last call, up to a position."""
        head = self._head
        if head is None or head == until:
            return
        if head.generation != until.generation:
            await self.load(until)
            return
        others = await in_thread(lambda: self.file.read(head, until))
        self.transcript.take_lines(line for _, line in others)
        self._head = until

    async def _follow_prompt(self, ack: Ack) -> None:
        if ack.rotated is None:
            await self._catch_up(ack.first)
        elif self._head is not None:
            added = 1 if self.transcript.system_prompt is None else 0
            expected = Position(self._head.generation + 1, self._head.line + added)
            if ack.head != expected:
                # Other programs wrote in between, and the position of their lines is unknown.
                await self.load(ack.head)
        self._head = ack.head

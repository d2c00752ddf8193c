"""A followed file that turns the calls of a compaction into one rewrite.

kimi-cli's soul applies a compaction in four calls on its context: clear, write_system_prompt,
checkpoint, append_message with the summary and the messages that stay. After `plan` has noted the
messages that the summary replaces, these calls write nothing until the last one, which lets the
daemon put the summary in place as one rewrite: at every moment the file is as before or as after,
and messages of other processes stay.

If another call follows the clear, the clear is carried out before that call.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from steno.adapters._follow import FollowedFile
from steno.adapters._transcript import Appended, MessageLike, Transcript, encode
from steno.parts import CheckpointLike, in_thread
from steno_protocol import limits
from steno_protocol.errors import StenoError
from steno_protocol.positions import Position
from steno_protocol.records import checkpoint_notice
from steno_protocol.replies import Compaction


@dataclass(frozen=True, slots=True)
class Begun:
    """A compaction that has begun; its lease keeps other clients from another one.

    Attributes:
        lease: its name.
        reply: the answer of the daemon.
        messages: the history at that position.
        lines: the line number of each message.
    """

    lease: str
    reply: Compaction
    messages: list[Any]
    lines: list[int]


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned rewrite.

    Attributes:
        begun: the compaction.
        cut: the end of the summarised lines.
        messages: the summary and the messages that stay, as they will be appended.
        summary_tokens: the summary's size as reported by the model; None for an estimate from its
            text.
        task: the task that puts them in place; calls of other tasks do not count.
    """

    begun: Begun
    cut: Position
    messages: Sequence[MessageLike]
    summary_tokens: int | None
    task: int


@dataclass(slots=True)
class _Deferred:
    """A clear that was not carried out yet, and the calls after it."""

    plan: Plan
    prompt: str | None = None
    has_notice: bool | None = None


class History(list[Any]):
    """The messages of a file, which lead a compaction to the file."""

    def __init__(self, owner: "CompactingFile") -> None:
        super().__init__()
        self.owner = owner


class CompactingFile(FollowedFile):
    """A followed file with compactions; see the head of this module."""

    def __init__(self, path: Path, message_type: Any = None) -> None:
        super().__init__(path, message_type)
        self.transcript.messages = History(self)
        self._plan: Plan | None = None
        self._deferred: _Deferred | None = None

    async def begin_compaction(self) -> Begun | None:
        """Begin a compaction at the present end of the file; takes the lock itself.

        Returns:
            The compaction; None when there is nothing to summarise, or when the file is not
            followed from its first line, so that some messages are unknown here.

        Raises:
            Busy: another client compacts the session.
        """
        async with self.lock:
            await self._settle()
            self._plan = None
            if not self._is_loaded or not await in_thread(lambda: self.file.has_content):
                return None
            await self._know_type()
            await self._begin()
            lease, reply = await in_thread(self.file.begin_compaction)
            if not reply.messages:
                return None
            at = Position.parse(reply.at)
            try:
                await self._catch_up(at)
                begin = Position(at.generation, 0)
                lines = await in_thread(lambda: self.file.read(begin, at))
            except BaseException:
                await self._abandon(lease)
                raise
            numbers = _message_lines(lines, self.transcript.message_type)
            if len(numbers) != len(self.transcript.messages):
                await self._abandon(lease)
                return None
            return Begun(lease, reply, list(self.transcript.messages), numbers)

    async def plan(
        self, begun: Begun, messages: Sequence[MessageLike], summary_tokens: int | None
    ) -> None:
        """Expect these messages of a compaction in the next calls, as one rewrite.

        If they are not a summary and the last messages, the next calls stay separate changes.
        """
        first = len(begun.messages) - len(messages) + 1
        stay = begun.messages[max(first, 0) :]
        is_summary = (
            first > 0
            and _are_same(messages[1:], stay)
            and not any(messages[0] is each for each in begun.messages)
        )
        if not is_summary:
            await self.abandon(begun)
            return
        at = Position.parse(begun.reply.at)
        line = begun.lines[first] if stay else at.line
        cut = Position(at.generation, line)
        self._plan = Plan(begun, cut, messages, summary_tokens, anyio.get_current_task().id)

    async def abandon(self, begun: Begun) -> None:
        """End a compaction without a result, so that other clients can begin one."""
        await self._abandon(begun.lease)

    async def take_in(self) -> None:
        """Take in the lines of other processes."""
        await self._settle()
        await super().take_in()

    async def append(self, messages: Sequence[Appended]) -> None:
        """Append messages as one batch, or put a planned summary in place."""
        deferred = self._deferred
        if deferred is not None and _are_same(messages, deferred.plan.messages):
            self._deferred = None
            await self._compact(deferred)
            return
        await self._settle()
        await super().append(messages)

    async def update_token_count(self, token_count: int) -> None:
        """Append a token count."""
        await self._settle()
        await super().update_token_count(token_count)

    async def checkpoint(self, *, add_user_message: bool) -> CheckpointLike:
        """Append a checkpoint; a compaction sets its own one, whose id is returned."""
        deferred = self._deferred
        if deferred is not None and deferred.has_notice is None:
            deferred.has_notice = add_user_message
            return deferred.plan.begun.reply.checkpoint_id
        await self._settle()
        return await super().checkpoint(add_user_message=add_user_message)

    async def write_system_prompt(self, prompt: str) -> None:
        """Put the system prompt first; a compaction keeps the present one."""
        deferred = self._deferred
        if deferred is not None and deferred.prompt is None and deferred.has_notice is None:
            deferred.prompt = prompt
            return
        await self._settle()
        await super().write_system_prompt(prompt)

    async def revert_to(self, checkpoint_id: CheckpointLike) -> None:
        """Drop a checkpoint and everything after it."""
        await self._settle()
        await super().revert_to(checkpoint_id)

    async def clear(self) -> None:
        """Drop everything; the clear of a planned compaction waits for the next calls."""
        plan = self._plan
        if plan is not None and plan.task == anyio.get_current_task().id:
            self._plan, self._deferred = None, _Deferred(plan)
            return
        await self._settle()
        await super().clear()

    async def _settle(self) -> None:
        """Carry out the waiting calls, because the next call does not belong to a compaction."""
        plan = self._plan
        if plan is not None and plan.task == anyio.get_current_task().id:
            self._plan = None
            await self.abandon(plan.begun)
        deferred, self._deferred = self._deferred, None
        if deferred is None:
            return
        await self.abandon(deferred.plan.begun)
        await super().clear()
        if deferred.prompt is not None:
            await super().write_system_prompt(deferred.prompt)
        if deferred.has_notice is not None:
            await super().checkpoint(add_user_message=deferred.has_notice)

    async def _compact(self, deferred: _Deferred) -> None:
        plan = deferred.plan
        (record,) = encode(plan.messages[:1])
        if deferred.has_notice:
            record = _with_notice(record, plan.begun.reply.checkpoint_id)
        try:
            ack = await in_thread(
                lambda: self.file.commit_compaction(
                    plan.begun.lease, plan.begun.reply, plan.cut, record, plan.summary_tokens
                )
            )
        except BaseException:
            await self.abandon(plan.begun)
            raise
        self.transcript.learn_type(plan.messages)
        await self.load(ack.head)
        if deferred.prompt is not None and deferred.prompt != self.transcript.system_prompt:
            await super().write_system_prompt(deferred.prompt)

    async def _abandon(self, lease: str) -> None:
        with anyio.move_on_after(limits.COMPACTION_ABORT_S, shield=True), suppress(StenoError):
            await in_thread(lambda: self.file.abort_compaction(lease))


def _are_same(messages: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(messages) == len(others) and all(
        one is other for one, other in zip(messages, others, strict=True)
    )


def _message_lines(lines: Sequence[tuple[Position, bytes]], message_type: Any) -> list[int]:
    """The numbers of the lines that are messages in a transcript."""
    transcript = Transcript(message_type)
    numbers: list[int] = []
    for position, line in lines:
        transcript.take_lines([line])
        if len(transcript.messages) > len(numbers):
            numbers.append(position.line)
    return numbers


def _with_notice(record: bytes, checkpoint_id: int) -> bytes:
    """Put the notice of its checkpoint before a summary, as a part of its own."""
    message: dict[str, Any] = json.loads(record)
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    notice = {"type": "text", "text": json.loads(checkpoint_notice(checkpoint_id))["content"]}
    message["content"] = [notice, *parts]
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()

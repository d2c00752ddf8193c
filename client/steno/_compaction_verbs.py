"""What an async session does to be compacted."""

from contextlib import suppress

import anyio
import anyio.lowlevel

from steno._compacting import Begun, Compacting, too_late
from steno._linked import LinkedSession
from steno.compaction import Summarize, Summary
from steno.values import Compacted
from steno_protocol import commands, limits, replies
from steno_protocol.context import Message
from steno_protocol.errors import StenoError


class CompactionSession(LinkedSession):
    """A session whose older part a model can put into fewer words."""

    async def compact(
        self,
        summarize: Summarize,
        *,
        preserve: int = 2,
        instruction: str | None = None,
        why: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Compacted | None:
        """Put a summary in place of all but the last messages, as one rewrite.

        Everybody may go on writing meanwhile: what comes while the model thinks is kept, in its
        order, behind the messages that stay. What was summarised stays readable in the ack's
        `rotated`, and `restore_generation` brings it back.

        Args:
            summarize: an async function that gets the messages of one request to a model, and
                returns the model's answer as a text or a `Summary`.
            preserve: how many of the last user and assistant messages stay as they are; a tool's
                result always stays with its call.
            instruction: what the summary should heed before all else.
            why: a reason for the timeline.
            key: as in every mutation; a repeat asks the model again, and is applied once.
            timeout: seconds that `summarize` may take; None: as long as it takes.

        Returns:
            What was done, synced to the disk; None when there is too little to summarise.

        Raises:
            Busy: another client compacts the session; the message names it.
            Conflict: a revert, a clear or another rewrite came between.
            Expired: `summarize` took longer than `timeout`.
            BadRequest: the summary has no text.
            OutcomeUnknown: the summary may have been put in; repeat with the error's `key`.
            After all others, after an error of `summarize` and when the call was cancelled before
            the summary was there, nothing was changed.
        """
        job = Compacting(self.id, self._link.name, key, preserve, limits.COMPACTION_LEASE_MS)
        try:
            begun = job.begun(await self._link.ask(job.begin, replies.Compaction))
            if begun is None:
                return None
            request = await self._request(begun, instruction)
            summary = await self._summary(begun, summarize, request, timeout)
            ack = await self._change(
                commands.CompactCommit, job.key, None, "synced",
                records=begun.commit_record(summary), **begun.commit_fields(summary, why),
            )  # fmt: skip
        except BaseException:
            await self._abort(job)
            raise
        if ack.duplicate:
            # Only a rewrite ends the lease, and this time there was none.
            await self._abort(job)
        return begun.result(ack, summary)

    async def _request(self, begun: Begun, instruction: str | None) -> list[Message]:
        past = begun.past()
        while command := past.reader.next_command():
            past.reader.take(*await self._link.request(command, replies.Lines))
            past.absorb()
            # A long history must not keep the other tasks waiting.
            await anyio.lowlevel.checkpoint()
        return begun.request(past, instruction)

    async def _summary(
        self,
        begun: Begun,
        summarize: Summarize,
        request: list[Message],
        timeout_s: float | None,
    ) -> str | Summary:
        """What `summarize` returns; meanwhile others are told that it is at work."""
        answer: str | Summary | BaseException = too_late(self.id, timeout_s)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew, begun)
            with anyio.move_on_after(timeout_s):
                answer = await _answer(summarize, request)
            tasks.cancel_scope.cancel()
        # Raised here, because the task group would wrap it into an ExceptionGroup.
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _renew(self, begun: Begun) -> None:
        while True:
            await anyio.sleep(begun.renewal_s)
            # The lease only keeps others from starting in vain: whether the summary fits is found
            # out by the commit.
            with suppress(StenoError):
                await self._link.ask(begun.begin, replies.Compaction)

    async def _abort(self, job: Compacting) -> None:
        with anyio.move_on_after(limits.COMPACTION_ABORT_S, shield=True), suppress(StenoError):
            await self._link.ask(job.abort, replies.Done)


async def _answer(summarize: Summarize, request: list[Message]) -> str | Summary | BaseException:
    try:
        return await summarize(request)
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:
        return error

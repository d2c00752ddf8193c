"""What an async session does to be compacted."""

from contextlib import suppress
from inspect import isawaitable

import anyio
import anyio.lowlevel

from steno._async.linked import LinkedSession
from steno._async.subscription import fetch
from steno._sansio.argument_checks import given_seconds
from steno._sansio.compaction import Begun, Compacting, check_asking, too_late
from steno._sansio.reading import PastReader
from steno._sansio.summaries import Summarize, Summary
from steno.values import Compacted
from steno_protocol import commands, limits, replies
from steno_protocol.context import ContextState, Message
from steno_protocol.errors import BadRequest, StenoError


class CompactionSession(LinkedSession):
    """A session whose older messages a model can summarise."""

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

        All clients can write meanwhile: messages that arrive while the model thinks are kept, in
        their order, behind the messages that stay. What was summarised stays readable in the ack's
        `rotated`, and `restore_generation` brings it back.

        There is no `durability`, because a rewrite is always synced, and no `expect`: it is valid
        while the generation is the one that it began in.

        Args:
            summarize: an async function that gets the messages of one request to a model, and
                returns the model's answer as a text or a `Summary`.
            preserve: how many of the last user and assistant messages stay as they are; a tool's
                result always stays with its call.
            instruction: what the summary should heed before all else.
            why: a reason for the timeline.
            key: as in every mutation: a repeat returns the first result, also when the session
                was rewritten since, and asks no model.
            timeout: seconds that `summarize` may take; None: as long as it takes.

        Returns:
            What was done, synced to the disk; None when there is too little to summarise.

        Raises:
            Busy: another client compacts the session; the message names it.
            Conflict: a revert, a clear or another rewrite came between, or the session was deleted
                and made again.
            Expired: `summarize` took longer than `timeout`.
            BadRequest: the summary has no text.
            NotFound: it is a repeat, and `gc` has given up a generation that the first one made or
                left behind.
            OutcomeUnknown: the summary may have been put in; repeat with the error's `key`.
            After all others, after an error of `summarize` and when the call was cancelled before
            the summary was there, nothing was changed.
        """
        self._refuse_when_ended()
        check_asking(summarize, instruction)
        given_seconds(timeout, "timeout")
        job = Compacting(self.id, self._link.name, key, preserve, limits.COMPACTION_LEASE_MS)
        # Asked first: after a rewrite there may be nothing to do any more, and a model costs much.
        repeated = None if key is None else await self._repeated(job)
        if repeated is not None:
            return repeated
        self._link.close_requests.add(job.abort)
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
        finally:
            self._link.close_requests.discard(job.abort)
        if ack.duplicate:
            # Only a rewrite ends the lease, and this time there was none.
            await self._abort(job)
            # Another process with the same key was faster: its summary was put in, not this one.
            repeated = await self._repeated(job)
        return repeated or begun.result(ack, summary)

    async def _repeated(self, job: Compacting) -> Compacted | None:
        """What the first command of this key did, None when there was none."""
        asked = commands.Timeline(session=self.id)
        applied = job.applied((await self._link.ask(asked, replies.TimelineReport)).entries)
        if applied is None:
            return None
        made = await self._state_of(applied.made())
        summarised = await self._state_of(applied.summarised())
        ack = await self._change(
            commands.CompactCommit, job.key, None, "synced",
            records=applied.commit_record(made), **applied.commit_fields(),
        )  # fmt: skip
        return applied.result(ack, made, summarised)

    async def _request(self, begun: Begun, instruction: str | None) -> list[Message]:
        return begun.request(await self._state_of(begun.past()), instruction)

    async def _state_of(self, past: PastReader) -> ContextState:
        while await fetch(self._link, past.reader):
            past.absorb()
            # A long history must not keep the other tasks waiting.
            await anyio.lowlevel.checkpoint()
        return past.state()

    async def _summary(
        self,
        begun: Begun,
        summarize: Summarize,
        request: list[Message],
        timeout_s: float | None,
    ) -> str | Summary:
        """The result of `summarize`; its lease is renewed meanwhile."""
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
        answer = summarize(request)
        if not isawaitable(answer):
            return BadRequest(
                f"summarize returned {type(answer).__name__!r} and nothing to await: make it an"
                " async function; nothing was changed"
            )
        return await answer
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:
        return error

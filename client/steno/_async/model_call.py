"""One call of a model for a summary, while the lease is renewed."""

from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING

import anyio

from steno._sansio.argument_checks import given_seconds
from steno._sansio.compaction import Begun
from steno._sansio.summaries import Summarize, Summary
from steno_protocol import limits, replies
from steno_protocol.context import Message
from steno_protocol.errors import BadRequest, Expired, StenoError

if TYPE_CHECKING:
    from steno._async.link import Link


class ModelCall:
    """A call of `summarize`, which is bounded in time.

    Args:
        summarize: asks the model.
        timeout: seconds that it may take; None is no limit.

    Raises:
        BadRequest: the timeout is no number.

    Attributes:
        lease_ms: after how long without a renewal the compaction counts as abandoned.
    """

    def __init__(self, summarize: Summarize, timeout: float | None) -> None:
        self.lease_ms = limits.COMPACTION_LEASE_MS
        self._summarize = summarize
        self._timeout_s = given_seconds(timeout, "timeout")

    async def answer(self, link: "Link", begun: Begun, request: list[Message]) -> str | Summary:
        """Return the answer of the model, and renew the lease meanwhile.

        Raises:
            Expired: it took too long.
            Exception: `summarize` raised it.
        """
        answer: str | Summary | BaseException = Expired(
            f"there was no summary within {self._timeout_s} s: nothing was changed; allow more"
            " time, or ask a faster model",
            session=begun.begin.session,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_renew, link, begun)
            with anyio.move_on_after(self._timeout_s):
                answer = await self._ask(request)
            tasks.cancel_scope.cancel()
        # Raised here, because the task group would wrap it into an ExceptionGroup.
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _ask(self, request: list[Message]) -> str | Summary | BaseException:
        try:
            answer = self._summarize(request)
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


async def _renew(link: "Link", begun: Begun) -> None:
    while True:
        await anyio.sleep(begun.renewal_s)
        # The lease only keeps others from starting in vain: the commit checks whether the summary
        # fits.
        with suppress(StenoError):
            await link.ask(begun.begin, replies.Compaction)

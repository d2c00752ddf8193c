"""What is said while a model thinks: a line that counts on a terminal, else its begin and end."""

from typing import TYPE_CHECKING, Final

import anyio

from steno._sansio.summaries import Summary
from steno.cli.render.output import Output
from steno.cli.render.wording import count, duration
from steno_protocol.context import Message

if TYPE_CHECKING:
    from steno._sansio.summaries import Summarize

_STEP_S: Final = 1.0
"""How often the seconds are counted on."""


class Progress:
    """Shows the time since the model was asked."""

    def __init__(self, output: Output, session: str, what: str) -> None:
        self._output = output
        self._session = session
        self._what = what

    def around(self, summarize: "Summarize") -> "Summarize":
        """Wrap `summarize` with the display of its progress."""

        async def shown(messages: list[Message]) -> str | Summary:
            began = anyio.current_time()
            self._output.say(f"{self._session}: asking {self._what}")
            answer = await self._asked(summarize, messages, began)
            if isinstance(answer, Exception):
                raise answer
            took = duration(anyio.current_time() - began)
            self._output.say(f"{self._session}: the model answered after {took}, committing")
            return answer

        return shown

    async def _asked(
        self, summarize: "Summarize", messages: list[Message], began: float
    ) -> str | Summary | Exception:
        answer: str | Summary | Exception | None = None
        async with anyio.create_task_group() as tasks:
            if self._output.talks_to_terminal:
                tasks.start_soon(self._count, began)
            answer = await _outcome(summarize, messages)
            tasks.cancel_scope.cancel()
        if self._output.talks_to_terminal:
            self._output.update("")
        assert answer is not None
        return answer

    async def _count(self, began: float) -> None:
        while True:
            passed = anyio.current_time() - began
            self._output.update(f"asking {self._what}: {passed:.0f} s")
            await anyio.sleep(_STEP_S)


async def _outcome(summarize: "Summarize", messages: list[Message]) -> str | Summary | Exception:
    """What it returns or raises: a task group would wrap an error into an ExceptionGroup."""
    try:
        return await summarize(messages)
    except Exception as error:
        return error


def compacted_in_words(messages: int, tokens: int) -> str:
    """What a compaction did, for a person."""
    return f"{count(messages, 'message')} became a summary of {count(tokens, 'token')}"

"""Compactions: their progress, the worker of `steno compact --watch`, and its end by a signal."""

import signal
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import anyio.abc

from steno import Client, Summary
from steno.parts import Summarize
from steno.values import Compacted
from steno_cli.command_limits import WATCH_COMPACTIONS_MAX
from steno_cli.compact.schedule import Book
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_present import contract
from steno_present.wording import count, duration
from steno_protocol.context import Message
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.replies import SessionEntry

_STEP_S: Final = 1.0
"""Between two updates of the seconds on a terminal."""

ResultT = TypeVar("ResultT")

IsDue = Callable[[int], bool]
"""Whether a context of so many tokens is to be compacted."""


def run_until_signal(main: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
    """Run a coroutine; returns None if SIGINT or SIGTERM came first.

    A signal cancels the coroutine, so that it can undo unfinished work before the process ends.
    """
    outcome = anyio.run(_guarded, main)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome[0] if outcome else None


async def _guarded(
    main: Callable[[], Awaitable[ResultT]],
) -> tuple[()] | tuple[ResultT] | BaseException:
    outcome: tuple[()] | tuple[ResultT] | BaseException = ()
    async with anyio.create_task_group() as tasks:
        await tasks.start(_wait_for_signal, tasks.cancel_scope)
        try:
            outcome = (await main(),)
        except Exception as error:
            # Raised by the caller: the task group would wrap it into an ExceptionGroup.
            outcome = error
        tasks.cancel_scope.cancel()
    return outcome


async def _wait_for_signal(
    scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return


def with_progress(summarize: Summarize, output: Output, session: str, model: str) -> Summarize:
    """Wrap `summarize` so that it shows the time since the model was asked."""

    async def shown(messages: list[Message]) -> str | Summary:
        began = anyio.current_time()
        output.say(f"{session}: asking {model} for a summary")
        answer: str | Summary | Exception | None = None
        with Progress(output, f"asking {model} for a summary", quiet_s=0.0) as progress:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_count_seconds, progress, began)
                answer = await _outcome(summarize, messages)
                tasks.cancel_scope.cancel()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        took = duration(anyio.current_time() - began)
        output.say(f"{session}: the model answered after {took}, committing")
        return answer

    return shown


async def _count_seconds(progress: Progress, began: float) -> None:
    while True:
        progress.show(f"{anyio.current_time() - began:.0f} s")
        await anyio.sleep(_STEP_S)


async def _outcome(summarize: Summarize, messages: list[Message]) -> str | Summary | Exception:
    """The result or the error of `summarize`; a task group would wrap an error."""
    try:
        return await summarize(messages)
    except Exception as error:
        return error


def about(session: str, done: Compacted) -> str:
    """The message about a finished compaction."""
    messages, tokens = count(done.messages, "message"), count(done.tokens, "token")
    return f"{session}: {messages} became a summary of {tokens}"


class Worker:
    """Compacts full sessions until it is cancelled; a failure of one does not stop the others.

    The options of the command choose the sessions, and say how each is compacted.
    """

    def __init__(
        self,
        client: Client,
        summarize: Summarize,
        is_due: IsDue,
        options: Namespace,
        output: Output,
    ) -> None:
        self._client = client
        self._summarize = summarize
        self._is_full = is_due
        self._options = options
        self._prefix: str = options.session or ""
        self._output = output
        self._book = Book()
        self._places = anyio.CapacityLimiter(WATCH_COMPACTIONS_MAX)
        self._list_failed = False

    async def run(self) -> None:
        """Work; cancellation gives up the compactions under way."""
        where = f"with the prefix {self._prefix}" if self._prefix else "of the root"
        every_s = self._options.interval
        self._output.say(f"watching the sessions {where}, every {duration(every_s)}")
        async with anyio.create_task_group() as tasks:
            while True:
                await self._examine(tasks)
                await anyio.sleep(every_s)

    async def _examine(self, tasks: anyio.abc.TaskGroup) -> None:
        try:
            entries = await self._client.sessions(self._prefix, archived="no")
        except StenoError as error:
            if not self._list_failed:
                self._output.say(f"the sessions cannot be listed (will be tried again): {error}")
            self._list_failed = True
            return
        self._list_failed = False
        ours = [entry for entry in entries if self._applies_to(entry.session)]
        for entry in self._book.to_examine(ours, anyio.current_time()):
            if await self._is_due(entry):
                self._book.begun(entry.session)
                tasks.start_soon(self._compact, entry.session)

    def _applies_to(self, session: str) -> bool:
        """Whether the worker compacts a session; one of a mount only if the prefix names the mount.

        Another program may hold a session of a mount in memory, and would not notice a rewrite.
        """
        return session.startswith(self._prefix) and (":" in self._prefix or ":" not in session)

    async def _is_due(self, entry: SessionEntry) -> bool:
        # Noted before the request: records written meanwhile lead to another examination.
        self._book.examined(entry)
        try:
            stat = await self._client.stat(entry.session)
        except NotFound:
            return False
        except StenoError as error:
            self._failed(entry.session, str(error))
            return False
        return self._is_full(stat.token_count_with_pending)

    async def _compact(self, session: str) -> None:
        async with self._places:
            try:
                done = await self._client.session(session).compact(
                    self._summarize,
                    preserve=self._options.preserve,
                    instruction=self._options.instruction,
                    why=self._options.why,
                )
                await self._finish(session, done)
            except StenoError as error:
                self._failed(session, str(error))

    async def _finish(self, session: str, done: Compacted | None) -> None:
        if done is None:
            # The preserved messages alone are too long: only new messages change that.
            self._book.ended(session)
            return
        self._print_result(session, done)
        stat = await self._client.stat(session)
        tokens = stat.token_count_with_pending
        if self._is_full(tokens):
            # Without a pause the model would be asked at each new message.
            self._failed(session, f"{session} still has {count(tokens, 'token')}: preserve fewer")
        else:
            self._book.ended(session)

    def _print_result(self, session: str, done: Compacted) -> None:
        line, message = f"{session} {done.ack.head}", about(session, done)
        self._output.answer(contract.compacted(session, done), line, message=message)
        self._output.flush()

    def _failed(self, session: str, message: str) -> None:
        pause_s = self._book.failed(session, anyio.current_time())
        self._output.say(f"{session}: {message}; tried again in {duration(pause_s)}")

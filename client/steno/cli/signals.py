"""Running a coroutine until it is done or until a signal asks the process to end."""

import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.abc

ResultT = TypeVar("ResultT")


def run(main: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
    """What `main` returns, or None when SIGINT or SIGTERM came first.

    A signal cancels it, so that it can give up what it has begun before the process ends.
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
            # Raised by `run`: the task group would wrap it into an ExceptionGroup.
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

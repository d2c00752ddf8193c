"""The simulator: the lives of a daemon from one seed, a last one that settles all, a verdict."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, ClassVar
from unittest.mock import patch

import anyio
from anyio.abc import TaskGroup

from sim.worlds import World
from steno_protocol.errors import StenoError
from stenod.core.keys import KeyTable
from support.simulated_disk import MOMENTS, Death, Moment, SimulatedDisk
from support.stored_session import NOW_S


class Simulation:
    """One seed in one world; a subclass knows what takes part and how it is judged.

    Attributes:
        disk: shared by all lives of the daemon.
        wall_s: the wall clock of the daemon's machine.
        now_s: its monotonic clock.
    """

    lives: ClassVar[int]
    keys_max: ClassVar[int]
    """Keys that the daemon remembers in a world of few keys."""

    def __init__(self, seed: int, world: World, disk: SimulatedDisk | None = None) -> None:
        self.world = world
        self._seed = seed
        self.disk = disk or SimulatedDisk(
            seed,
            ignore_fdatasync=world.ignore_fdatasync,
            ignore_folder_fsync=world.ignore_folder_fsync,
        )
        self.wall_s = NOW_S
        self.now_s = 1000.0
        self._chance = random.Random(seed)

    async def run(self) -> None:
        """Live several lives, settle everything, and judge.

        Raises:
            AssertionError: a promise was broken.
        """
        with ExitStack() as held:
            if self.world.few_keys:
                defaults = (self.keys_max,)
                held.enter_context(patch.object(KeyTable.__init__, "__defaults__", defaults))
            for _ in range(self.lives):
                await self._live()
            self._heal()
            await self._settle()
        self._judge()

    # --- a world's own ---------------------------------------------------------------------------

    def _begin_life(self, tasks: TaskGroup) -> tuple[Any, int]:
        """Start a daemon and plan its death.

        Returns:
            The daemon, and how many steps it is to live.
        """
        raise NotImplementedError

    async def _step(self, daemon: Any) -> None:
        """Let clients ask, calls fail, and tasks run for a while."""
        raise NotImplementedError

    async def _drain(self, daemon: Any) -> None:
        """End the daemon in peace, as often as not."""
        raise NotImplementedError

    def _kill(self, daemon: Any) -> None:
        """End what still runs, while its tasks are there."""
        raise NotImplementedError

    def _end_life(self, daemon: Any) -> None:
        """Prepare the next life, when no task is left."""

    async def _settle(self) -> None:
        """Start a last daemon on a sound disk: every order gets its answer, every view its end."""
        raise NotImplementedError

    def _judge(self) -> None:
        """Check every promise.

        Raises:
            AssertionError: a promise was broken.
        """
        raise NotImplementedError

    # --- what all worlds share -------------------------------------------------------------------

    async def _live(self) -> None:
        """Play one daemon from its start to its death or end."""
        async with anyio.create_task_group() as tasks:
            daemon, steps = self._begin_life(tasks)
            with suppress(Death):
                for _ in range(steps):
                    await self._step(daemon)
                    if self.disk.died:
                        break
                await self._drain(daemon)
            self._kill(daemon)
            tasks.cancel_scope.cancel()
        self._end_life(daemon)

    def _plan_death(
        self, drawn: float, call: int, shares: tuple[float, float], moment: Moment | None = None
    ) -> None:
        """Plan a power cut or a kill.

        Args:
            drawn: decides between them, from 0 to 1.
            call: the number of calls until then.
            shares: the bounds of `drawn` below which the power is cut, and the process killed.
            moment: drawn if it is None.
        """
        if drawn < shares[0] and self.world.power_cuts:
            plan = self.disk.crash_at
        elif drawn < shares[1] and self.world.kills:
            plan = self.disk.kill_at
        else:
            return
        plan(len(self.disk.calls) + call, moment or self._chance.choice(MOMENTS))

    def _heal(self) -> None:
        self.disk.heal()
        self.disk.free_bytes = None


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers run on a clock that only its simulation moves.

    On the machine's own clock a seed would be played in another way on a busy machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._simulated = clock
        super().__init__()

    def time(self) -> float:
        """Seconds on the simulated clock."""
        return self._simulated()


def run_seed(seed: int, run: Callable[[], Awaitable[None]], clock: Callable[[], float]) -> None:
    """Run a simulation.

    Args:
        seed: its seed, for the message of an error.
        run: plays it.
        clock: the clock of timers, in place of the time that passes.

    Raises:
        AssertionError: it ended with an error; the message begins with the seed.
    """
    options = {"loop_factory": partial(SimulatedLoop, clock)}
    try:
        anyio.run(run, backend="asyncio", backend_options=options)
    except BaseExceptionGroup as group:
        raise AssertionError(f"seed {seed}: {first_error(group)!r}") from group
    except (AssertionError, OSError, StenoError, ValueError, LookupError) as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


def first_error(error: BaseException) -> BaseException:
    """Returns an error, or the first one of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

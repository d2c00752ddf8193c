"""Two engines that make cases for a target: plain chance, and atheris."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

CASE_S = 20.0
"""A case that takes longer than this is a loop; most take some milliseconds."""

CASE_BYTES_MAX = 900

Check = Callable[[bytes], bool]
"""A target: True if it took the case, False if it refused it; raises if a promise is broken."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A case that broke a promise."""

    data: bytes
    error: BaseException


@dataclass(slots=True)
class Result:
    """The cases of a run, and those that broke the target."""

    runs: int = 0
    taken: int = 0
    took_s: float = 0.0
    broken: list[Broken] = field(default_factory=list[Broken])


def run_plain(check: Check, runs: int, seed: int, broken_max: int = 10) -> Result:
    """Give a target random cases until enough of them ran, or too many broke it."""
    chance, result, started = random.Random(seed), Result(), time.monotonic()
    while result.runs < runs and len(result.broken) < broken_max:
        data = chance.randbytes(chance.randint(8, CASE_BYTES_MAX))
        result.runs += 1
        try:
            with time_limit(CASE_S):
                result.taken += check(data)
        except Exception as error:
            result.broken.append(Broken(data, error))
    result.took_s = time.monotonic() - started
    return result


def run_guided(atheris: Any, check: Check, runs: int, seed: int) -> None:
    """Give a target cases that reach new code; atheris ends the process by itself.

    Atheris prints a report, and writes a case that broke the target to a file.
    """

    def give(data: bytes) -> None:
        check(data)

    how = [f"-runs={runs}", f"-seed={seed}", f"-max_len={CASE_BYTES_MAX}", "-len_control=0"]
    atheris.Setup(["fuzz", *how], give)
    atheris.Fuzz()


def smaller(check: Check, data: bytes, tries: int = 300) -> bytes:
    """A case that is shorter or plainer and breaks a target, too."""
    for size in (len(data) // 2, len(data) // 4, 8, 1):
        start = 0
        while size and start < len(data) and tries:
            tries -= 1
            shorter = data[:start] + data[start + size :]
            if _breaks(check, shorter):
                data = shorter
            else:
                start += size
    return data


def _breaks(check: Check, data: bytes) -> bool:
    try:
        with time_limit(CASE_S):
            check(data)
    except Exception:
        return True
    return False


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End a block that loops.

    Raises:
        TimeoutError: it took longer.
    """

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"a case took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

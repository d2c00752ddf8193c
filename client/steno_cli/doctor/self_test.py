"""A trial of the daemon on a file system: kill it, tear its files, open them again, compare.

The trial has a root of its own, in a new folder beside the sessions of the root that is examined,
and removes it at the end. A kill proves what a process leaves behind. It proves nothing about a
power cut: only the disk knows whether it kept what a sync promised.
"""

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Final

import steno
from steno.local import is_free
from steno_cli.command_limits import (
    SELF_TEST_ACKS_MAX,
    SELF_TEST_KILLS_MAX,
    SELF_TEST_REQUEST_S,
    SELF_TEST_STEP_S,
    SELF_TEST_WRITERS_MAX,
)
from steno_cli.doctor import Finding, ok, problem
from steno_protocol import paths
from steno_protocol.errors import StenoError, StorageFailed

_TORN: Final = b'{"role":"user","content":"torn by the self-te'
"""Half a line, as a write that was cut leaves it."""

_REMEDY: Final = (
    "keep no sessions on this file system, and report this output with the system's version"
)

_REWRITTEN: Final = "rewritten"
"""The session whose file is replaced again and again."""


class Trial:
    """A root of its own, and the daemon that a client starts on it.

    Attributes:
        pid: the process of the daemon, which is alive.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pid: int | None = None

    def start(self) -> None:
        """Let a client start the daemon.

        Raises:
            StenoError: it does not start, or does not answer.
        """
        with steno.connect_sync(self.root) as client:
            self.pid = client.status().pid

    def kill(self) -> None:
        """Kill the daemon, and wait until the root is free.

        Raises:
            StorageFailed: the lock of a killed daemon is not released.
        """
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = None
        deadline = time.monotonic() + SELF_TEST_STEP_S
        while not is_free(self.root):
            if time.monotonic() > deadline:
                raise StorageFailed(f"{self.root / paths.LOCK} stays locked after its holder died")
            time.sleep(0.01)

    def folder(self, session: str) -> Path:
        """The folder of a session."""
        return self.root / paths.SESSIONS / session

    def contents(self, session: str) -> list[str]:
        """The messages of a session, as a client reads them."""
        with steno.connect_sync(self.root) as client:
            lines = list(client.session(session).lines())
        return [str(json.loads(line)["content"]) for line in lines]


class Writer:
    """A thread that changes one session until its daemon is gone.

    Attributes:
        done: the changes that the daemon acknowledged.
    """

    def __init__(
        self, trial: Trial, session: str, step: Callable[[steno.BlockingSession, int], None]
    ) -> None:
        self.done = 0
        self._trial, self._session, self._step = trial, session, step
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for(self, done: int) -> None:
        """Wait until so many changes are acknowledged, or the writer has failed."""
        deadline = time.monotonic() + SELF_TEST_STEP_S
        while self.done < done and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.001)

    def join(self) -> None:
        """Wait until it has noticed the end of its daemon."""
        self._thread.join()

    def _run(self) -> None:
        with (
            suppress(StenoError),
            steno.connect_sync(
                self._trial.root, spawn=False, timeout=SELF_TEST_REQUEST_S
            ) as client,
        ):
            session = client.open(self._session, follow=False)
            for number in count():
                self._step(session, number)
                self.done += 1


def self_test(beside: Path) -> Iterator[tuple[str, Finding]]:
    """Try the daemon in a new folder, and yield each finding with the name of its check."""
    with _own_environment(), _new_folder(beside) as folder:
        trial = Trial(folder / "root")
        try:
            for name, check in _CHECKS.items():
                yield from ((name, finding) for finding in check(trial))
        except (StenoError, OSError) as error:
            yield "trial", problem(f"the trial ended early: {error}", _REMEDY)
        finally:
            with suppress(StenoError, OSError):
                trial.kill()


def _check_start(trial: Trial) -> Iterator[Finding]:
    trial.start()
    with steno.connect_sync(trial.root) as client:
        client.open("plain", follow=False).append_message({"role": "user", "content": "hi"})
    found = trial.contents("plain")
    if found == ["hi"]:
        yield ok("a client started the daemon, and read back what it wrote")
    else:
        yield problem(f"a record was read back as {found!r}", _REMEDY)


def _check_alone(trial: Trial) -> Iterator[Finding]:
    if is_free(trial.root):
        text = "the lock of a running daemon can be taken: two daemons would write the same files"
        yield problem(text, _REMEDY)
    else:
        yield ok("no second daemon can take the root of the first")


def _check_kills(trial: Trial) -> Iterator[Finding]:
    """Kill the daemon under several writers, tear the files, and compare after each kill."""
    acked: dict[str, list[str]] = {
        f"writer-{number}": [] for number in range(SELF_TEST_WRITERS_MAX)
    }
    problems: list[Finding] = []
    for kill in range(SELF_TEST_KILLS_MAX):
        trial.start()
        writers = {name: Writer(trial, name, _appending(kill)) for name in acked}
        for writer in writers.values():
            writer.wait_for(SELF_TEST_ACKS_MAX)
        trial.kill()
        for name, writer in writers.items():
            writer.join()
            acked[name] += [f"{kill}-{number}" for number in range(writer.done)]
        for name in acked:
            _tear(trial.folder(name))
        trial.start()
        for name, expected in acked.items():
            problems += _compared(trial, name, expected, unanswered=kill + 1)
    total = sum(map(len, acked.values()))
    yield from problems
    if not total:
        yield problem("no append was acknowledged before a kill", _REMEDY)
    elif not problems:
        text = f"{total} acknowledged appends outlived {SELF_TEST_KILLS_MAX} kills and torn tails"
        yield ok(text)


def _appending(kill: int) -> Callable[[steno.BlockingSession, int], None]:
    def append(session: steno.BlockingSession, number: int) -> None:
        session.append_message({"role": "user", "content": f"{kill}-{number}"})

    return append


def _tear(folder: Path) -> None:
    """Write half a line behind the last one."""
    path = folder / paths.CONTEXT
    if path.exists():
        with path.open("ab") as file:
            file.write(_TORN)


def _compared(
    trial: Trial, session: str, acked: list[str], *, unanswered: int
) -> Iterator[Finding]:
    """Compare a session with its acknowledged records.

    Args:
        trial: the root.
        session: the session.
        acked: the acknowledged records, in order.
        unanswered: the number of records that may be there without an answer.
    """
    found = trial.contents(session)
    with steno.connect_sync(trial.root) as client:
        # An opening for writing repairs the tail; a read, as before it, leaves it out.
        client.open(session, follow=False)
        damage = client.session(session).verify().damage
    if trial.contents(session) != found:
        yield problem(f"the repair of {session} changed what it holds", _REMEDY)
    kept = set(found)
    missing = [each for each in acked if each not in kept]
    if missing:
        text = f"{session} lost {len(missing)} acknowledged records, the first is {missing[0]}"
        yield problem(text, _REMEDY)
    if [each for each in found if each in set(acked)] != [each for each in acked if each in kept]:
        yield problem(f"{session} has records twice, or in another order", _REMEDY)
    if len(kept - set(acked)) > unanswered:
        yield problem(f"{session} has records that nobody appended", _REMEDY)
    if not list((trial.folder(session) / paths.QUARANTINE).glob("*")):
        yield problem(f"the torn tail of {session} is not in quarantine", _REMEDY)
    if damage:
        yield problem(f"{session} has {damage} damaged places after a kill", _REMEDY)


def _check_rewrites(trial: Trial) -> Iterator[Finding]:
    """Kill the daemon while a session's file is replaced again and again."""
    steps, problems = 0, 0
    for kill in range(SELF_TEST_KILLS_MAX):
        trial.start()
        with steno.connect_sync(trial.root) as client:
            client.open(_REWRITTEN, follow=False).clear()
        writer = Writer(trial, _REWRITTEN, _rewrite)
        # Each kill meets another step of a rewrite.
        writer.wait_for(SELF_TEST_ACKS_MAX // 4 + kill)
        trial.kill()
        writer.join()
        steps += writer.done
        trial.start()
        found, allowed = trial.contents(_REWRITTEN), [_after(writer.done), _after(writer.done + 1)]
        if found not in allowed:
            text = f"after {writer.done} changes the session has {found!r}, not {allowed[0]!r}"
            problems += 1
            yield problem(text, _REMEDY)
    if not problems:
        text = f"{steps} changes, a third of them rewrites, outlived {SELF_TEST_KILLS_MAX} kills"
        yield ok(text)


def _rewrite(session: steno.BlockingSession, number: int) -> None:
    # Two appends, then a clear.
    if number % 3 == 2:
        session.clear()
    else:
        session.append_message({"role": "user", "content": str(number)})


def _after(steps: int) -> list[str]:
    """The contents after so many steps of `_rewrite`."""
    return [str(number) for number in range(steps - steps % 3, steps)]


_CHECKS: Final[dict[str, Callable[[Trial], Iterator[Finding]]]] = {
    "start": _check_start,
    "alone": _check_alone,
    "kills": _check_kills,
    "rewrites": _check_rewrites,
}
"""The parts of the trial by name; each leaves a running daemon to the next."""


@contextmanager
def _new_folder(beside: Path) -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=".steno-self-test-", dir=beside))
    try:
        yield folder.resolve()
    finally:
        rmtree(folder, ignore_errors=True)


@contextmanager
def _own_environment() -> Generator[None]:
    """Hide the variables of this shell, which may lead to the daemon that people use."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("STENO_")}
    try:
        yield
    finally:
        os.environ.update(hidden)

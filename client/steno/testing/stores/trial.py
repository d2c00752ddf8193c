"""One store under test: clauses run on it in folders of their own."""

import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from steno.testing.stores import limits
from steno.testing.stores.driver import CAPABILITIES, Capability, Entry
from steno.testing.stores.files import largest
from steno.testing.stores.ledger import Item, Ledger
from steno.testing.stores.process import (
    Died,
    DriverFailed,
    Hung,
    Refused,
    StoreProcess,
    environment_with,
    own_path,
)
from steno.testing.stores.verdicts import Finding, NotKept, NotObserved, NotOffered, Verdict


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise of a store and its test.

    Attributes:
        name: a few words, for tables.
        promise: what the store promises, as a sentence.
        test: raises Broken, NotOffered or NotObserved; returns what was tried.
        needs: capabilities of which the driver has to declare one; empty if every store has to
            keep the promise.
    """

    name: str
    promise: str
    test: "Callable[[Case], str]"
    needs: frozenset[Capability] = frozenset()

    @property
    def id(self) -> str:
        """The name as one word."""
        return self.name.replace(" ", "-")


class Trial:
    """A store under test.

    Args:
        driver: the driver, `module:name`.
        seed: the seed of everything that is random.
        rounds: how often each clause repeats its accident.
        python: the interpreter of the store's processes; None for this one.
        path: their module path; None for that of this process.

    Attributes:
        offers: the capabilities that the driver declares.
        version: the store and its version, as the driver gives it.

    Raises:
        DriverFailed: the driver cannot be made, or declares an unknown capability.
    """

    def __init__(
        self,
        driver: str,
        *,
        seed: int,
        rounds: int = 1,
        python: str | None = None,
        path: Sequence[str] | None = None,
    ) -> None:
        self.seed = seed
        self.rounds = rounds
        self._driver = driver
        self._python = python or sys.executable
        self._environment = environment_with(own_path() if path is None else path)
        # Short, because a store may put a socket there, whose path ends at 107 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="stores-")).resolve()
        self._folders = 0
        self.offers: frozenset[Capability] = frozenset()
        try:
            self._describe()
        except BaseException:
            self.close()
            raise

    def run(self, clause: Clause) -> Finding:
        """Test one clause in a folder of its own; the processes have ended when this returns."""
        try:
            if clause.needs and not clause.needs & self.offers:
                raise NotOffered(" and ".join(f"no `{name}`" for name in sorted(clause.needs)))
            with self._case(clause.name) as case:
                tried = clause.test(case)
        except NotKept as error:
            return self._finding(clause, error.verdict, error.summary, error.detail)
        return self._finding(clause, "kept", tried)

    def close(self) -> None:
        """Remove all folders."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self) -> None:
        with self._case("describe") as case:
            description = case.host_ask("describe")
        self.version: str = description["version"]
        self.offers = frozenset(description["offers"])
        if unknown := self.offers - CAPABILITIES.keys():
            raise DriverFailed(
                f"{self._driver} offers {', '.join(sorted(unknown))}, and the suite knows"
                f" {', '.join(CAPABILITIES)}"
            )

    @contextmanager
    def _case(self, name: str) -> "Generator[Case]":
        self._folders += 1
        folder = self._folder / str(self._folders)
        folder.mkdir(mode=0o700)
        log = self._folder / f"{self._folders}.log"

        def start(session: str) -> StoreProcess:
            return StoreProcess(self._python, self._driver, folder, session, self._environment, log)

        chance = random.Random(f"{self.seed} {name}")
        case = Case(folder, start, chance, self.rounds, self.offers)
        try:
            yield case
        finally:
            case.end()
            shutil.rmtree(folder, ignore_errors=True)

    def _finding(self, clause: Clause, verdict: Verdict, summary: str, detail: str = "") -> Finding:
        return Finding(clause.name, verdict, summary, detail, self.seed)


class Case:
    """The folder of one test of one clause, with its processes and its ledger.

    Args:
        folder: the folder of the store.
        start: starts a process.
        random: the only source of randomness.
        rounds: how often the clause repeats its accident.
        offers: the capabilities that the driver declares.

    Attributes:
        ledger: what was appended to the present session.
    """

    def __init__(
        self,
        folder: Path,
        start: Callable[[str], StoreProcess],
        random: random.Random,
        rounds: int,
        offers: frozenset[Capability],
    ) -> None:
        self.folder = folder
        self.random = random
        self.rounds = rounds
        self.offers = offers
        self._sessions = 0
        self._start = start
        self._host: StoreProcess | None = None
        self._processes: list[StoreProcess] = []
        self.begin_session()

    def begin_session(self) -> None:
        """Let later processes open a new session in the same folder."""
        self._sessions += 1
        self.ledger: Ledger = Ledger(session=self._session)

    @property
    def _session(self) -> str:
        return (
            "session" + chr(ord("a") + self._sessions // 26) + chr(ord("a") + self._sessions % 26)
        )

    # --- processes --------------------------------------------------------------------------------

    def start(self) -> StoreProcess:
        """Start a process that has not opened the store yet."""
        process = self._start(self._session)
        self._processes.append(process)
        return process

    def open(self) -> StoreProcess:
        """Start a process and open the store in it."""
        process = self.start()
        process.ask("open")
        return process

    def close(self, process: StoreProcess) -> None:
        """Close the store of a process, and end the process."""
        process.ask("close")
        self.kill(process)

    def kill(self, process: StoreProcess) -> None:
        """SIGKILL a process, unless it is dead already."""
        process.kill()
        self._processes.remove(process)

    def host_ask(self, what: str) -> Any:
        """Ask a process that never opens the store about the driver.

        Raises:
            DriverFailed: the driver cannot be made, or the question failed.
        """
        if self._host is None:
            self._host = self._start(self._session)
        try:
            return self._host.ask(what)
        except (Refused, Died, Hung) as error:
            raise DriverFailed(error.detail) from error

    def servers(self) -> list[int]:
        """The pids of other processes that write the files."""
        has_processes = self.host_ask("describe")["has_processes"]
        return self.host_ask("processes") if has_processes else []

    def kill_servers(self) -> None:
        """SIGKILL the processes that write the files for the callers, and wait for their ends."""
        pids = self.servers()
        handles = [_handle_of(pid) for pid in pids]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for handle in handles:
            _wait_for_end(handle)

    def kill_all(self) -> None:
        """SIGKILL every process of the store, servers too."""
        for process in self._processes:
            process.kill()
        self._processes.clear()
        self.kill_servers()

    def end(self) -> None:
        """End everything that runs for the folder."""
        for process in self._processes:
            process.kill()
        self._processes.clear()
        try:
            # A driver that cannot even be made has nothing to end.
            with suppress(DriverFailed):
                self.host_ask("end")
        finally:
            if self._host is not None:
                self._host.kill()

    # --- appends and loads ------------------------------------------------------------------------

    def append(self, process: StoreProcess, item: Item) -> None:
        """Append in a process; the store has to acknowledge it.

        Raises:
            Refused, Died, Hung: it does not.
        """
        process.ask(**item.call())
        self.ledger.ack(item.id)

    def stream(self, process: StoreProcess, items: Sequence[Item]) -> None:
        """Let a process append one after the other; `take` takes in its acks."""
        process.stream([{**item.call(), "id": item.id} for item in items])

    def take(self, process: StoreProcess) -> list[str]:
        """Take in the acks of a stream to its end; the errors of the refused appends."""
        replies = list(process.acks())
        self.ledger.ack(*(reply.id for reply in replies if reply.error is None))
        return [reply.error for reply in replies if reply.error is not None]

    def kill_within_stream(self, process: StoreProcess, acks: int) -> None:
        """SIGKILL a process soon after a number of acks, and take in all that it gave."""
        delay_s = self.random.uniform(0, limits.KILL_DELAY_MS_MAX) / 1000
        for reply in [*process.acks(acks), *process.acks_for(delay_s)]:
            if reply.error is None:
                self.ledger.ack(reply.id)
        self.kill(process)
        self.take(process)

    def load(self) -> list[Entry]:
        """Load the session in a process of its own, which has ended when this returns."""
        process = self.open()
        loaded: list[Entry] = process.ask("load")
        self.close(process)
        return loaded

    def check(self) -> list[Entry]:
        """Compare what a new process loads with the ledger; the loaded entries.

        Raises:
            Broken: they differ.
        """
        loaded = self.load()
        self.ledger.check(loaded)
        return loaded

    # --- accidents --------------------------------------------------------------------------------

    def acks_before_kill(self) -> int:
        """A random number of acks after which a writer is killed within its stream."""
        return self.random.randrange(1, limits.KILLED_APPENDS_MAX // 2)

    @contextmanager
    def full_disk(self, process: StoreProcess) -> Generator[None]:
        """Let the files of a process and of the servers grow a little only, as on a full disk."""
        if sys.platform != "linux":
            raise NotObserved("the files of another process are bounded on Linux alone")
        pids = [process.pid, *self.servers()]
        room = largest(self.folder) + limits.DISK_ROOM_BYTES
        before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
        try:
            for pid, (_, hard) in before.items():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, hard))
            yield
        finally:
            for pid, limit in before.items():
                with suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


def _handle_of(pid: int) -> int | None:
    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            return os.pidfd_open(pid)
    return None


def _wait_for_end(handle: int | None) -> None:
    """Wait until a process that is no child of this one has ended."""
    if handle is None:
        return
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.poll(limits.STOP_S_MAX * 1000)
    finally:
        os.close(handle)

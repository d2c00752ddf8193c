"""One process with an open store, as its parent sees it."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from steno.testing.stores import limits
from steno.testing.stores.verdicts import NotKept

_UNANSWERED: Final = "a call did not return"


class DriverFailed(Exception):
    """The driver cannot be made, or its process ended by itself; no verdict about the store."""


class Refused(NotKept):
    """The store raised an exception; `detail` is its type and message."""


class Died(NotKept):
    """The process ended before it answered."""


class Hung(NotKept):
    """There was no answer within the deadline."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one call.

    Attributes:
        id: the id of the entry or batch, in a stream.
        value: what the store returned.
        error: the exception of the store, None if it returned.
        began_ns: when the call began, on the monotonic clock of the machine.
        ended_ns: when it returned or raised.
    """

    id: str
    value: Any
    error: str | None
    began_ns: int
    ended_ns: int


class StoreProcess:
    """A worker process; every wait for it has a deadline.

    Args:
        python: the interpreter.
        driver: the driver, `module:name`.
        folder: the folder of the store.
        session: the session.
        environment: the environment of the process.
        log: the file for what the process prints.
    """

    def __init__(
        self,
        python: str,
        driver: str,
        folder: Path,
        session: str,
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self._log = log
        self._is_killed = False
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 (the driver that the caller tests)
                [python, "-m", "steno.testing.stores.worker", driver, str(folder), session],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    def ask(self, do: str, **fields: Any) -> Any:
        """Let the store do something.

        Raises:
            Refused: the store raised an exception.
            Died, Hung: there was no answer.
        """
        reply = self.call(do, **fields)
        if reply.error is not None:
            raise Refused("a call raised", reply.error)
        return reply.value

    def call(self, do: str, **fields: Any) -> Reply:
        """Let the store do something; its exception is in the reply.

        Raises:
            Died, Hung: there was no answer.
        """
        self.send(do, **fields)
        return self.reply()

    def send(self, do: str, **fields: Any) -> None:
        """Send a request; `reply` gets its answer.

        Raises:
            Died: the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._died() from error

    def reply(self) -> Reply:
        """Return the next reply.

        Raises:
            Died, Hung: there was none.
        """
        reply = self._next(limits.REPLY_S_MAX)
        if reply is None:
            raise self._died()
        return _reply_of(reply)

    def stream(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Send appends that are carried out one after the other; `acks` gets their answers."""
        self.send("stream", calls=list(calls))

    def acks(self, count: int | None = None) -> Iterator[Reply]:
        """Yield the replies of a stream, `count` of them or up to its end or that of `kill`.

        Raises:
            Died: the process ended by itself.
            Hung: there was none within the deadline.
        """
        taken = 0
        while count is None or taken < count:
            reply = self._next(limits.REPLY_S_MAX)
            if reply is None and not self._is_killed:
                raise self._died()
            if reply is None or "end" in reply:
                return
            taken += 1
            yield _reply_of(reply)

    def acks_for(self, seconds: float) -> Iterator[Reply]:
        """Yield the replies of a stream that come within a time."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            try:
                reply = self._next(left_s)
            except Hung:
                return
            if reply is None or "end" in reply:
                return
            yield _reply_of(reply)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; the replies that it has sent can still be read."""
        self._is_killed = True
        self._process.kill()
        self._process.wait(limits.STOP_S_MAX)
        self._reader.join(limits.STOP_S_MAX)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _next(self, within_s: float) -> dict[str, Any] | None:
        try:
            line = self._lines.get(timeout=within_s)
        except queue.Empty:
            raise Hung(_UNANSWERED, f"no answer within {within_s:.0f} s") from None
        if line is None:
            self._lines.put(None)
            return None
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                # A line without its end is the last word of a killed process, and no reply.
                if line.endswith(b"\n"):
                    self._lines.put(line)
        self._lines.put(None)

    def _died(self) -> Died:
        lines = self._log.read_text(errors="replace").splitlines()
        said = "\n".join(["the process of the store ended by itself", *lines[-12:]])
        return Died(_UNANSWERED, said)


def _reply_of(reply: dict[str, Any]) -> Reply:
    began, ended = reply["at"]
    return Reply(reply.get("id", ""), reply.get("ok"), reply.get("error"), began, ended)


def environment_with(paths: Sequence[str]) -> dict[str, str]:
    """The environment of this process, with another module path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def own_path() -> list[str]:
    """The module path of this process."""
    return [path for path in sys.path if path]

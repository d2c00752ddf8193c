"""Calls of the command `steno` on one root."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from support import command_in_process, warm_command

_RUN_S_MAX = 100.0
"""Seconds that a call may take: less than a test, and more than a busy machine needs."""

_Way = Callable[
    [Sequence[str], Mapping[str, str], bytes, float], "subprocess.CompletedProcess[bytes]"
]
_Process = warm_command.Begun | subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class Ran:
    """The end of a call: its exit code, data and messages."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document that it printed."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def documents(self) -> list[Any]:
        """Its JSON documents, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The JSON error that it ended with."""
        error: dict[str, Any] = json.loads(self.err.splitlines()[-1])["error"]
        return error


class Steno:
    """Calls of the command on one root; `-W error`, so that a warning fails them."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        self._environment = {**os.environ, "STENO_HOME": str(root), **environment}
        self._environment.pop("STENO_SOCKET", None)

    @property
    def environment(self) -> dict[str, str]:
        """The environment that calls have."""
        return self._environment.copy()

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Ran:
        """Run it to its end, in this process if that is possible."""
        if self._is_usual and command_in_process.is_possible():
            return self._run(command_in_process.run, arguments, stdin)
        return self.forked(*arguments, stdin=stdin)

    def forked(self, *arguments: str, stdin: str | bytes = b"") -> Ran:
        """Run it to its end, in a fork of a process that has imported the library."""
        return self._run(warm_command.run if self._is_usual else self._start, arguments, stdin)

    @property
    def _is_usual(self) -> bool:
        # A class with other words has another interpreter in mind.
        return type(self).words is Steno.words and warm_command.is_suitable(self._environment)

    def _start(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, timeout: float
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.words(*arguments),
            input=stdin,
            env=environment,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def _run(self, way: _Way, arguments: Sequence[str], stdin: str | bytes) -> Ran:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        ran = way(arguments, self._environment, given, _RUN_S_MAX)
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def begin(self, *arguments: str, stderr: int = subprocess.DEVNULL) -> _Process:
        """Run it in the background."""
        (given, out, err), (feed, *read) = warm_command.pipes()
        os.close(feed)
        if stderr == subprocess.DEVNULL:
            os.close(read.pop())
            os.close(err)
            err = os.open(os.devnull, os.O_WRONLY)
        process = self._begin(arguments, self._environment, (given, out, err))
        process.stdout, process.stderr = (*map(os.fdopen, read), None)[:2]
        return process

    def _begin(
        self, arguments: Sequence[str], environment: Mapping[str, str], handles: Sequence[int]
    ) -> _Process:
        """Run it on these streams, which are closed here."""
        if self._is_usual:
            return warm_command.Begun(arguments, environment, handles)
        given, out, err = handles
        try:
            words = self.words(*arguments)
            return subprocess.Popen(words, env=environment, stdin=given, stdout=out, stderr=err)
        finally:
            for handle in {*handles}:
                os.close(handle)

    def words(self, *arguments: str) -> list[str]:
        """The command line of a call."""
        return [sys.executable, "-W", "error", "-m", "steno_cli", *arguments]

    def on_terminal(self, columns: int, *arguments: str, typed: str | None = None) -> str:
        """Run it on a terminal of this width; returns data and messages together.

        Args:
            columns: how wide it is; it has 24 lines.
            arguments: of the command.
            typed: what the person types; None: stdin is no terminal.
        """
        controller, terminal = os.openpty()
        environment = {**self._environment, "COLUMNS": str(columns), "TERM": "xterm"}
        given = os.open(os.devnull, os.O_RDONLY) if typed is None else terminal
        process = self._begin(arguments, environment, (given, terminal, terminal))
        os.write(controller, (typed or "").encode())
        with os.fdopen(controller, "rb", buffering=0) as screen:
            shown = b"".join(_until_hang_up(screen))
        process.wait()
        return shown.decode().replace("\r\n", "\n")


def _until_hang_up(screen: IO[bytes]) -> Any:
    while True:
        try:
            data = screen.read(4096)
        except OSError:  # Linux reports a closed other end so
            return
        if not data:
            return
        yield data


def lines_of(*contents: str) -> str:
    """Messages of the user as lines for stdin."""
    return "".join(json.dumps({"role": "user", "content": each}) + "\n" for each in contents)


STAT = {
    "session", "head", "bytes", "generation", "token_count", "token_count_with_pending",
    "n_checkpoints", "has_system_prompt", "created", "stamp", "incarnation", "folder", "open",
    "title", "labels", "archived", "forked_from",
}  # fmt: skip

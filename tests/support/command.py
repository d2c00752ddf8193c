"""The command `steno` as a process on one root."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from support import warm_command

_RUN_S_MAX = 100.0
"""Seconds that a call may take: less than a test, and more than a busy machine needs."""


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
        """Run it to its end, in a fork of a process that has imported the library."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        environment = self._environment
        # A class with other words has another interpreter in mind.
        if type(self).words is Steno.words and warm_command.is_suitable(environment):
            ran = warm_command.run(arguments, environment, given, _RUN_S_MAX)
        else:
            ran = subprocess.run(
                self.words(*arguments),
                input=given,
                env=environment,
                capture_output=True,
                timeout=_RUN_S_MAX,
                check=False,
            )
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def begin(self, *arguments: str, stderr: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        """Run it in the background."""
        return subprocess.Popen(
            self.words(*arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

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
        process = subprocess.Popen(
            self.words(*arguments),
            env=environment,
            stdin=subprocess.DEVNULL if typed is None else terminal,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
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

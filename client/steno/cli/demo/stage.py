"""The processes of the demo: started together, listened to as one, and never left behind."""

import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Self

from steno.cli.command_limits import DEMO_TIMEOUT_S
from steno_protocol.errors import Internal


class Player:
    """One process that prints its actions, a line at a time."""

    def __init__(self, name: str, module: str, *arguments: str) -> None:
        self.name = name
        self._rest = b""
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 (our own module)
            # -P: the folder that the demo is started in must not lend its modules to it.
            [sys.executable, "-P", "-m", f"steno.cli.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    @property
    def stdout(self) -> IO[bytes]:
        """Its printed lines."""
        assert self.process.stdout is not None
        return self.process.stdout

    def go(self) -> None:
        """Let it begin, or go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    def lines(self) -> list[bytes] | None:
        """The whole lines that have come; None at the end."""
        data = self.stdout.read(1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def end(self) -> None:
        """Kill it if it still runs, and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Stage:
    """All processes of one demo; those that still run at the end of the `with` are killed."""

    def __init__(self) -> None:
        self.players: list[Player] = []
        self._speaking = selectors.DefaultSelector()
        self._heard: deque[tuple[Player, bytes]] = deque()
        self._deadline = time.monotonic() + DEMO_TIMEOUT_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for player in self.players:
            player.end()
        self._speaking.close()

    def add(self, player: Player) -> Player:
        """Take in a process."""
        self.players.append(player)
        self._speaking.register(player.stdout, selectors.EVENT_READ, player)
        return player

    def hear(self) -> Iterator[tuple[Player, bytes]]:
        """The lines of all processes with their names, in order of arrival, until all have ended.

        Raises:
            Internal: one of them failed, or it takes too long.
        """
        while self._heard or self._speaking.get_map():
            if not self._heard:
                self._listen()
            while self._heard:
                yield self._heard.popleft()

    def hear_until_ready(self) -> None:
        """Return once every process has said `ready`."""
        waiting = set(self.players)
        while waiting:
            if not self._speaking.get_map():
                raise Internal("the processes of the demo ended before they began")
            self._listen()
            ready = [said for said in self._heard if said[1] == b"ready"]
            for said in ready:
                self._heard.remove(said)
                waiting.discard(said[0])

    def _listen(self) -> None:
        left_s = self._deadline - time.monotonic()
        for key, _ in self._speaking.select(max(0.0, left_s)):
            player: Player = key.data
            lines = player.lines()
            if lines is not None:
                self._heard += [(player, line) for line in lines]
            else:
                self._speaking.unregister(player.stdout)
                _check_end(player)
        if left_s <= 0:
            raise Internal(f"the demo took longer than {DEMO_TIMEOUT_S:.0f} s")


def _check_end(player: Player) -> None:
    code = player.process.wait()
    if code:
        raise Internal(f"the process {player.name} of the demo ended with exit code {code}")

"""`--timeout` of every command, before a daemon that is there and never answers."""

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from steno._connect import connect as connect_module
from steno._connect import probe as probe_module
from steno._connect import spawn
from steno._connect.target import Target
from steno_cli.command_table import COMMANDS
from steno_cli.entry import main
from steno_protocol import limits, paths

WORDS = {
    "sessions": [], "info": ["demo"], "show": ["demo"], "read": ["demo"], "tail": ["demo"],
    "grep": ["word"], "view": ["--no-browser"], "mcp": [], "open": ["demo"],
    "append": ["demo", "hi"], "checkpoint": ["demo"], "revert": ["demo", "0"], "clear": ["demo"],
    "usage": ["demo"], "prompt": ["demo"], "timeline": ["demo"], "restore": ["demo", "0"],
    "fork": ["demo", "other"], "undo": ["demo"], "redo": ["demo"], "dmail": ["show", "demo"],
    "compact": ["demo", "--model", "m"], "title": ["demo"], "label": ["demo"],
    "archive": ["demo"], "unarchive": ["demo"], "rename": ["demo", "other"],
    "delete": ["demo", "--yes"], "undelete": ["demo"], "export": ["demo"],
    "import": ["FOLDER", "other"], "watch": ["FOLDER"], "verify": ["demo"], "repair": ["demo"],
    "redact": ["demo"],
    "wire": ["demo"], "turns": ["demo"], "replay": ["demo"], "emit": ["demo", "{}"],
    "stream": ["demo"], "status": [], "start": [], "stop": [], "restart": [], "clients": [],
    "config": [], "top": ["--once"], "doctor": [], "gc": ["--dry-run"], "backup": ["copy"],
    "cluster": ["status"],
}  # fmt: skip
"""The commands that ask the daemon, with their arguments."""

WITHOUT_A_DAEMON = {"logs", "service", "keys", "help", "completion", "demo", "hooks"}


class Silence:
    """A daemon that holds a root, and a clock that a wait for it moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited_s = 0.0
        self._really = time.monotonic
        monkeypatch.setattr(time, "monotonic", self.monotonic)
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(connect_module, "probe", self.probe)
        monkeypatch.setattr(spawn, "probe", self.probe)

    def monotonic(self) -> float:
        return self._really() + self.waited_s

    def sleep(self, seconds: float) -> None:
        self.waited_s += seconds

    def probe(self, target: Target, deadline: float) -> probe_module.Outcome:
        self.waited_s += max(0.0, deadline - self.monotonic())
        endpoint = target.address()
        return probe_module.Unreachable(endpoint, "nothing answers", is_silent=True)


@pytest.fixture
def silence(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silence]:
    monkeypatch.setenv("STENO_HOME", str(root))
    monkeypatch.delenv("STENO_SOCKET", raising=False)
    note = paths.LockNote(
        pid=os.getpid(), version="0", root=str(root), endpoint=f"ipc://{root}/stenod.sock"
    )
    (root / paths.SOCKET).touch()
    session = root / paths.SESSIONS / "demo"
    session.mkdir(parents=True)
    (session / paths.CONTEXT).write_text('{"role":"user","content":"hi"}\n')
    with (root / paths.LOCK).open("w") as lock:
        lock.write(msgspec.json.encode(note).decode())
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Silence(monkeypatch)


def test_every_command_is_in_the_tables() -> None:
    assert {*WORDS} | WITHOUT_A_DAEMON == {*COMMANDS}


@pytest.mark.parametrize("timeout_s", [0.5, 20.0])
@pytest.mark.parametrize("name", WORDS)
def test_command_waits_exactly_as_long_as_its_timeout(
    root: Path, silence: Silence, name: str, timeout_s: float
) -> None:
    if name == "mcp":
        pytest.importorskip("mcp_types", reason="`steno mcp` needs the extra mcp")
    words = [str(root / paths.SESSIONS / "demo") if w == "FOLDER" else w for w in WORDS[name]]
    begun = time.monotonic()
    code = main([name, *words, "--timeout", f"{timeout_s}"])
    took_s = time.monotonic() - begun
    assert code != 2, "the test has to call it rightly"
    # The last pause, and the looks at the process.
    assert timeout_s <= took_s
    assert silence.waited_s <= timeout_s + 2 * limits.RECONNECT_S_MAX, "it waits once"

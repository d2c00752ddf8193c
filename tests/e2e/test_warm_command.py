"""A call of the command in the process of the tests, or a fork, ends as its own process does."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from support import command_in_process, warm_command
from support.command import Ran, Steno
from support.daemon_in_thread import DaemonInThread


def in_a_process(steno: Steno, *arguments: str, stdin: bytes = b"") -> Ran:
    """Run the command as a process of its own."""
    ran = subprocess.run(
        steno.words(*arguments),
        env=steno.environment, input=stdin, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@pytest.mark.parametrize("line", ["append --help", "nonsense", "show missing", "sessions --json"])
def test_a_call_ends_as_its_process_does(daemon: DaemonInThread, line: str) -> None:
    steno = Steno(daemon.root)
    assert steno("append", "demo", "hi").code == 0
    assert steno(*line.split()) == in_a_process(steno, *line.split())
    assert steno.forked(*line.split()) == in_a_process(steno, *line.split())


@pytest.mark.parametrize("way", [Steno.__call__, Steno.forked])
def test_input_and_output_may_be_longer_than_a_pipe_holds(
    daemon: DaemonInThread, way: Callable[..., Ran]
) -> None:
    steno = Steno(daemon.root)
    record = json.dumps({"role": "user", "content": "x" * 500_000}).encode()
    assert way(steno, "append", "demo", "--batch", stdin=record) == Ran(
        0, "0:0\n", "steno: the session demo was created: there was none\n"
    )
    assert len(way(steno, "read", "demo").out) > 500_000


def test_a_call_leaves_the_process_of_the_tests_as_it_was(
    daemon: DaemonInThread, tmp_path: Path
) -> None:
    def facts() -> list[object]:
        signals = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        streams = [sys.stdin, sys.stdout, sys.stderr]
        return [dict(os.environ), sys.argv, *streams, *signals]

    steno = Steno(daemon.root, TZ="Asia/Tokyo", TMPDIR=str(tmp_path))
    before = facts()
    assert steno("append", "demo", "hi").code == 0
    assert steno("--socket", f"{daemon.root}/stenod.sock", "show", "demo").code == 0
    assert facts() == before


@pytest.mark.anyio
async def test_a_call_in_an_event_loop_is_a_fork(anyio_backend: str) -> None:
    assert not command_in_process.is_possible()
    assert not await anyio.to_thread.run_sync(command_in_process.is_possible)


def test_calls_of_several_threads_run_beside_each_other(daemon: DaemonInThread) -> None:
    steno = Steno(daemon.root)
    assert steno("append", "demo", "hi").code == 0
    with ThreadPoolExecutor(8) as threads:
        codes = [*threads.map(lambda text: steno("append", "demo", text).code, "abcdefgh")]
    assert codes == [0] * 8


def test_a_call_that_takes_too_long_is_killed(daemon: DaemonInThread) -> None:
    words = ["tail", "-f", "demo"]
    steno = Steno(daemon.root)
    assert steno("append", "demo", "hi").code == 0
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        warm_command.run(words, steno.environment, b"", timeout=0.5)
    assert caught.value.cmd == words


def test_an_environment_that_an_interpreter_reads_as_it_starts_is_not_suitable() -> None:
    assert warm_command.is_suitable({**os.environ, "STENO_HOME": "/somewhere"})
    assert not warm_command.is_suitable({**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert not warm_command.is_suitable({**os.environ, "LC_ALL": "tlh_KX"})

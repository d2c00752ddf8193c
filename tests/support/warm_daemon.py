"""Daemons that clients start in tests, as forks of a process that has imported the daemon.

Most of the processor time of a start is that of an interpreter and its imports. A test that is
about a session gets a fork; a test that is about the start of a daemon has a process of its own.
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, NoReturn

ADDRESS: Final = "STENO_TEST_DAEMONS"
"""The variable with the address of the process that forks; without it a daemon is a process."""

_CALL_BYTES_MAX: Final = 1 << 17
"""Bytes of the arguments and the environment of a start, which are one datagram."""

_ANSWER_BYTES: Final = 16

_PRELOADED: Final = "zmq", "stenod.cli"


class Subprocess:
    """What `steno._connect.spawn` uses of `subprocess`, which starts daemons in this way."""

    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def run(
        command: Sequence[str], *, stderr: IO[bytes], timeout: float, check: bool, **others: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        address = os.environ.get(ADDRESS)
        if address is None or list(command[:4]) != [sys.executable, "-P", "-m", "stenod"]:
            return subprocess.run(command, stderr=stderr, timeout=timeout, check=check, **others)
        until = time.monotonic() + timeout
        call = {
            "arguments": command[4:], "environment": dict(os.environ), "folder": str(Path.cwd())
        }  # fmt: skip
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks:
            forks.connect(f"\0{address}")
            socket.send_fds(forks, [json.dumps(call).encode()], [stderr.fileno()])
            pid = int(forks.recv(_ANSWER_BYTES))
            try:
                forks.settimeout(max(0.001, until - time.monotonic()))
                code = int(forks.recv(_ANSWER_BYTES))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout) from None
        return subprocess.CompletedProcess(command, code)


class _Server:
    """The process that forks itself."""

    def __init__(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            # The kernel chooses an address that nobody has.
            listening.bind("")
            self.address = listening.getsockname()[1:].decode()
            listening.listen(64)
            code = f"from support import warm_daemon; warm_daemon.serve({listening.fileno()})"
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
            # Its forks are those of other tests, too.
            environment.pop("PYTEST_CURRENT_TEST", None)
            self.process = subprocess.Popen(
                # The last word, which its forks have, too, is that of a daemon: so one that a test
                # leaves behind is found.
                [sys.executable, "-P", "-c", code, "stenod"],
                env=environment,
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
            )


@cache
def _server() -> _Server:
    return _Server()


def address() -> str:
    """The address of the process that forks, which is started at the first call."""
    return _server().address


def end() -> None:
    """End the process that forks, and not its forks."""
    if _server.cache_info().currsize:
        with _server().process as process:
            process.kill()
        _server.cache_clear()


def serve(descriptor: int) -> None:
    """Fork for each start that comes; a fork of its own waits for the end of each.

    It ends when its standard input does, as that of a process of tests that was killed.
    """
    for name in _PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    # Those that wait for a start are nobody's children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as listening:
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            call, _ = listening.accept()
            if os.fork():
                call.close()
                continue
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _start(call)


def _start(call: socket.socket) -> NoReturn:
    """Run a start, and report its process and its exit code."""
    data, handles, _, _ = socket.recv_fds(call, _CALL_BYTES_MAX, 1)
    pid = os.fork()
    if pid == 0:
        _carry_out(json.loads(data), handles[0])
    call.send(b"%d" % pid)
    _, ended = os.waitpid(pid, 0)
    try:
        call.send(b"%d" % os.waitstatus_to_exitcode(ended))
    finally:
        os._exit(0)


def _carry_out(call: dict[str, Any], stderr: int) -> NoReturn:
    """Become the process of `stenod`."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number, handle in enumerate((null, null, stderr)):
            os.dup2(handle, number)
        os.closerange(3, max(null, stderr) + 1)
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environment"])
        time.tzset()
        from stenod.cli import main

        code = main(call["arguments"])
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    os._exit(code)

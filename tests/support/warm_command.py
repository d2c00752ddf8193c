"""Processes of `steno`, and of a store of it, as forks of a process that has imported the library.

Most of the time of a short command is the start of its interpreter and its imports. A test that is
about what a command does calls it here; a test that is about its process starts one.
"""

import gc
import io
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from support import warm_daemon

_CALL_BYTES_MAX = 1 << 17
"""Bytes of the arguments and the environment of a call, which are one datagram."""

_READ_BYTES = 1 << 16

_PID_BYTES = 10

_COMMAND = "steno_cli.process"

_WORKER = "steno.testing.stores.worker"

_PRELOADED = (
    "zmq", "steno._sync.client", "steno_cli.entry", "steno_cli.connection",
    _WORKER, "steno.testing.stores.steno_driver",
)  # fmt: skip
"""What every command imports; the modules of all commands are imported after it.

So a call does not show that the module of its command can be imported first: `house.test_startup`
does.
"""


def is_suitable(environment: Mapping[str, str]) -> bool:
    """Whether a fork can have this environment: the interpreter reads some of it as it starts."""
    return all(
        os.environ.get(name) == value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LANG"))
    )


def run(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end, as `subprocess.run` does.

    Raises:
        subprocess.TimeoutExpired: it took longer than `timeout` seconds; it was killed.
    """
    theirs, ours = zip(*(os.pipe() for _ in range(4)), strict=True)
    # The command reads from the first pipe and writes to the others.
    (given, *written), (feed, *read) = [theirs[0], *ours[1:]], [ours[0], *theirs[1:]]
    try:
        _fork(_COMMAND, arguments, environment, [given, *written])
    finally:
        for handle in (given, *written):
            os.close(handle)
    pid = int(os.read(read[-1], _PID_BYTES))
    out, err, code = _exchanged(feed, stdin, read, time.monotonic() + timeout)
    if not code:
        os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(list(arguments), timeout, out, err)
    return subprocess.CompletedProcess(list(arguments), int(code), out, err)


class StoreWorkers:
    """What `steno.testing.stores.process` uses of `subprocess`, which starts workers in this way.

    So all of them are those of the interpreter and the modules of the tests.
    """

    PIPE = subprocess.PIPE

    class Popen:
        """A worker that is a fork."""

        def __init__(
            self, words: Sequence[str], *, stderr: IO[bytes], env: Mapping[str, str], **_: Any
        ) -> None:
            assert list(words[:3]) == [sys.executable, "-m", _WORKER]
            (given, feed), (read, written), (self._ended, status) = (os.pipe() for _ in range(3))
            try:
                _fork(_WORKER, words[3:], env, [given, written, stderr.fileno(), status])
            finally:
                for handle in (given, written, status):
                    os.close(handle)
            self.stdin, self.stdout = os.fdopen(feed, "wb"), os.fdopen(read, "rb")
            self.pid = int(os.read(self._ended, _PID_BYTES))

        def kill(self) -> None:
            """End it, unless it has ended."""
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

        def wait(self, timeout: float) -> None:
            """Wait until it has ended, which is done once."""
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(_WORKER, timeout)
            os.close(self._ended)


def _fork(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], handles: Sequence[int]
) -> None:
    """Let the server run `main` of a module in a process with these streams.

    The last handle gets its pid, and the exit code at its end.
    """
    call = {
        "module": module, "arguments": arguments, "environment": dict(environment),
        "folder": str(Path.cwd()),
    }  # fmt: skip
    socket.send_fds(_server().control, [json.dumps(call).encode()], handles)


def _exchanged(feed: int, stdin: bytes, read: Sequence[int], until: float) -> list[bytes]:
    """Feed a call and read all of its pipes, until each is closed or the time is over."""
    found = {handle: bytearray() for handle in read}
    left = memoryview(stdin)
    os.set_blocking(feed, False)
    with selectors.DefaultSelector() as selector:
        selector.register(feed, selectors.EVENT_WRITE)
        for handle in read:
            selector.register(handle, selectors.EVENT_READ)
        while selector.get_map() and (ready := selector.select(until - time.monotonic())):
            for key, _ in ready:
                if key.fd == feed:
                    with suppress(BrokenPipeError):
                        left = left[os.write(feed, left[:_READ_BYTES]) :] if left else left
                        if left:
                            continue
                elif data := os.read(key.fd, _READ_BYTES):
                    found[key.fd] += data
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
        for key in [*selector.get_map().values()]:
            os.close(key.fd)
    return [bytes(each) for each in found.values()]


class _Server:
    """The process that forks itself, and the socket for its calls."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"from support import warm_command; warm_command.serve({theirs.fileno()})"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", code],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )


@cache
def _server() -> _Server:
    import atexit

    server = _Server()

    def end() -> None:
        server.control.close()
        server.process.wait()

    atexit.register(end)
    return server


def serve(descriptor: int) -> None:
    """Fork for each call that comes, until the other end of the socket is closed."""
    for name in _PRELOADED:
        import_module(name)
    from steno._connect import spawn
    from steno_cli.command_table import COMMANDS
    from steno_cli.parser import module_of

    for name in COMMANDS:
        import_module(module_of(name))
    spawn.subprocess = warm_daemon.Subprocess  # type: ignore[misc, assignment]
    gc.collect()
    gc.freeze()
    waiting: dict[int, tuple[int, int]] = {}
    with socket.socket(fileno=descriptor) as control, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd != descriptor:
                    selector.unregister(key.fd)
                    _report(key.fd, *waiting.pop(key.fd))
                    continue
                data, handles, _, _ = socket.recv_fds(control, _CALL_BYTES_MAX, 4)
                if not data:
                    return
                pid = os.fork()
                if pid == 0:
                    _carry_out(json.loads(data), handles)
                for handle in handles[:3]:
                    os.close(handle)
                os.write(handles[3], b"%*d" % (_PID_BYTES, pid))
                process = os.pidfd_open(pid)
                waiting[process] = pid, handles[3]
                selector.register(process, selectors.EVENT_READ)


def _report(process: int, pid: int, status: int) -> None:
    """Send the exit code of a call that has ended."""
    os.close(process)
    _, ended = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(status, b"%d" % os.waitstatus_to_exitcode(ended))
    os.close(status)


def _carry_out(call: dict[str, Any], handles: Sequence[int]) -> NoReturn:
    """Become the process of a command."""
    try:
        for number, handle in enumerate(handles[:3]):
            os.dup2(handle, number)
        os.closerange(3, max(handles) + 1)
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environment"])
        time.tzset()
        sys.stdin, sys.stdout, sys.stderr = (
            _stream(number, stream)
            for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr))
        )
        sys.argv[1:] = call["arguments"]
        import_module(call["module"]).main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _stream(number: int, like: Any) -> io.TextIOWrapper:
    """A stream of the new process, with the settings of the old one."""
    return io.TextIOWrapper(
        open(number, "rb" if number == 0 else "wb", closefd=False),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=number == 2,
        write_through=number > 0 and like.write_through,
    )

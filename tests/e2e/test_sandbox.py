"""Clients that the system allows no socket: an error at once, with the reason."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno_protocol import paths
from support.foreground import ForegroundDaemon
from support.project import PROJECT
from support.sandbox import IS_POSSIBLE

ENDS_S = 100.0
"""The clients' own timeout is longer, so a client that waits for it fails the test."""

BLOCKING = """
import steno, sys
try:
    steno.connect_sync(sys.argv[0], timeout=1000)
except steno.Unreachable as error:
    print(error.message)
"""

WAITING = """
import anyio, steno, sys
async def main():
    async with steno.connect(sys.argv[0], timeout=1000) as client:
        await client.status()
try:
    anyio.run(main, backend=sys.argv[1])
except steno.Unreachable as error:
    print(error.message)
"""

ANOTHER_USER = """
import os
# Before: another user may be unable to read the modules.
import socket, steno._connect.forbidden, steno._sync.client
os.setuid(65534)
"""

COMMAND = """
import sys
from steno_cli.entry import main
sys.exit(main(["append", "demo", "hi", "--timeout", "1000", "--root", sys.argv[0]]))
"""

pytestmark = pytest.mark.skipif(not IS_POSSIBLE, reason="the numbers of the calls are unknown here")


@pytest.fixture(params=["with a daemon", "without a daemon"])
def perhaps_served(request: pytest.FixtureRequest, root: Path) -> Iterator[None]:
    """A daemon outside of the sandbox, or none."""
    if request.param == "without a daemon":
        yield
        return
    with ForegroundDaemon(root):
        yield


def _forbidden(called: str, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "support.sandbox", called, code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT / "tests"), *sys.path])},
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )


@pytest.mark.usefixtures("perhaps_served")
def test_sandbox_without_sockets_ends_a_client_at_once(root: Path) -> None:
    ran = _forbidden("socket", BLOCKING, str(root))
    assert "this process may not open a socket (Operation not permitted)" in ran.stdout, ran
    assert "AF_UNIX" in ran.stdout


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.usefixtures("perhaps_served")
def test_sandbox_without_sockets_ends_an_async_client_at_once(root: Path, backend: str) -> None:
    ran = _forbidden("socket", WAITING, str(root), backend)
    assert "this process may not open a socket" in ran.stdout, ran


def test_sandbox_without_connections_ends_a_command_at_once(root: Path) -> None:
    with ForegroundDaemon(root):
        ran = _forbidden("connect", COMMAND, str(root))
    assert ran.returncode == 5, ran
    expected = f"this process may not connect to ipc://{root}/stenod.sock (Operation not permitted)"
    assert expected in ran.stderr
    assert "outside of its sandbox" in ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_socket_of_another_user_ends_a_client_at_once(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        root.chmod(0o755)
        (root / paths.SOCKET).chmod(0)
        code = BLOCKING.replace("sys.argv[0]", "endpoint=sys.argv[1]")
        ran = subprocess.run(
            [sys.executable, "-c", ANOTHER_USER + code, daemon.endpoint],
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )
        root.chmod(0o700)
    assert "this process may not connect to" in ran.stdout, ran
    assert f"run it as user {os.geteuid()}" in ran.stdout

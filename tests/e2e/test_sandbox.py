"""Clients that the system allows no socket: an error at once, with the reason."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.sandbox import IS_POSSIBLE
from steno_protocol import credentials, paths
from support.command import Steno
from support.daemon_in_thread import DaemonInThread
from support.foreground import ForegroundDaemon
from support.project import PROJECT
from support.remote_access import endpoint_of, listen

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

THROUGH_TCP = """
import socket, steno
try:
    socket.socket(socket.AF_UNIX)
    print("the sandbox allows Unix sockets")
except PermissionError:
    with steno.connect_sync(endpoint=sys.argv[0]) as client:
        session = client.open("from-sandbox")
        session.append_message({"role": "user", "content": "hi"})
        print(client.clients().clients[0].key, len(session.history))
        try:
            client.delete("from-sandbox")
        except steno.Unauthorized:
            print("may not delete")
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


def _forbidden(
    called: str, code: str, *arguments: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "e2e.sandbox", called, code, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "tests"), *sys.path]),
            **variables,
        },
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


def test_sandbox_without_unix_sockets_writes_through_tcp_with_a_token(root: Path) -> None:
    listen(root)
    steno = Steno(root)
    made = steno("keys", "new", "sandbox", "--token")
    assert (made.code, "shown only now" in made.err) == (0, True)
    token = made.out.strip()
    assert not (root / credentials.KEYS_FOLDER / "sandbox.key").exists()
    with DaemonInThread(root) as daemon:
        code = f"import sys\n{THROUGH_TCP}"
        ran = _forbidden("unix", code, endpoint_of(daemon), STENO_TOKEN=token)
        assert ran.stdout.splitlines() == ["sandbox 1", "may not delete"], ran
        call = Steno(root, STENO_ENDPOINT=endpoint_of(daemon), STENO_TOKEN=token)
        assert json.loads(call("read", "from-sandbox").out)["content"] == "hi"
        assert token not in "".join(daemon.log)
        assert steno("keys", "revoke", "sandbox").code == 0
        assert "does not let this client in" in call("read", "from-sandbox", "--timeout", "5").err
        # Neither another key nor none is a way in.
        stranger = Steno(root / "other")("keys", "new", "stranger", "--token").out.strip()
        for wrong in (stranger, ""):
            other = Steno(root, STENO_ENDPOINT=endpoint_of(daemon), STENO_TOKEN=wrong)
            assert other("sessions", "--timeout", "2").code != 0


@pytest.mark.parametrize("token", ["nonsense", "steno_AAAA", "x" * 5000])
def test_wrong_token_is_named_and_not_shown(root: Path, token: str) -> None:
    ran = Steno(root, STENO_ENDPOINT="tcp://127.0.0.1:9", STENO_TOKEN=token)("sessions")
    assert ran.code == 1
    assert "STENO_TOKEN is no token" in ran.err
    assert token not in ran.err


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

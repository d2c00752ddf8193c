"""A client over TCP in processes that have none of the calls of POSIX."""

import subprocess
from pathlib import Path

import pytest

from e2e import as_windows
from steno_protocol import credentials
from steno_protocol.rights import Right
from support.daemon_in_thread import DaemonInThread
from support.remote_access import allow, endpoint_of, listen

BLOCKING = """
import sys, threading, steno, steno_system
assert steno_system.wakeup_handles.__module__.endswith("_windows"), steno_system.wakeup_handles
with steno.connect_sync(endpoint=sys.argv[1], name="pc") as client:
    session = client.open("demo")
    with client.session("demo").subscribe() as events:
        def write():
            for number in range(50):
                session.append_message({"role": "user", "content": str(number)})
        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        next(iter(events))
        for thread in threads:
            thread.join()
    mark = session.checkpoint()
    session.append_message({"role": "user", "content": "dropped"})
    session.revert_to(mark)
    print(len(list(session.lines())), "lines", client.clients().clients[0].key)
"""

WAITING = """
import sys, anyio, steno
async def main():
    async with steno.connect(endpoint=sys.argv[1]) as client:
        session = await client.open("demo")
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(session.append_message, {"role": "user", "content": "hi"})
        print(len([line async for line in session.lines()]), "lines")
anyio.run(main, backend=sys.argv[2])
"""

LOCAL = """
import steno
try:
    steno.connect_sync(WHERE)
except steno.BadRequest as error:
    print(error.message)
"""


def run(environ: dict[str, str], code: str, *words: str) -> str:
    done = subprocess.run(
        as_windows.command(code, *words),
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture
def environ(root: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of such a process, with a token for the daemon of the root."""
    folder = tmp_path / "windows"
    folder.mkdir()
    key_file = allow(root, "windows", Right.WRITE.label)
    key = credentials.decode_client_key(key_file.read_text(), str(key_file))
    token = {credentials.TOKEN_VARIABLE: credentials.encode_token(key)}
    return as_windows.environment(folder, **token)


def test_blocking_client_writes_follows_and_reverts(root: Path, environ: dict[str, str]) -> None:
    listen(root)
    with DaemonInThread(root) as daemon:
        assert run(environ, BLOCKING, endpoint_of(daemon)) == "150 lines windows\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_client_writes_and_reads(root: Path, environ: dict[str, str], backend: str) -> None:
    listen(root)
    with DaemonInThread(root) as daemon:
        assert run(environ, WAITING, endpoint_of(daemon), backend) == "20 lines\n"


@pytest.mark.parametrize("where", ["'folder'", "endpoint='ipc:///tmp/stenod.sock'"])
def test_root_and_local_socket_are_refused_with_the_reason(
    environ: dict[str, str], where: str
) -> None:
    said = run(environ, LOCAL.replace("WHERE", where))
    assert "this system is 'win32', and only Linux and macOS are supported" in said
    assert "a client on Windows needs the tcp:// address of a daemon" in said


def test_public_modules_import(environ: dict[str, str]) -> None:
    names = "steno, steno.values, steno.parts, steno.local, steno_protocol.settings"
    code = f"import {names}\nfor name in steno.__all__: getattr(steno, name)\nprint('all')"
    assert run(environ, code) == "all\n"

"""The fixtures of steno.testing, in test suites that run as processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno
from steno._connect.lock_holder import holder_of
from steno.testing import private_root
from steno_protocol import commands, paths, replies
from support.documents import blocks
from support.project import PROJECT

PLUGIN = 'pytest_plugins = ["steno.testing"]\n'
NOTES = """

def note(value):
    with pathlib.Path(__file__).with_name("notes").open("a") as file:
        file.write(f"{value}\\n")

"""


@pytest.fixture
def suite(root: Path) -> Iterator[Path]:
    """A folder for the files of a test suite; its daemons are gone when its run ends."""
    (root / "tmp").mkdir()
    yield root
    assert list((root / "tmp").glob("steno-*")) == []


def run(suite: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "anyio",
         "-W", "error", *options],
        cwd=suite,
        # Half of the time of such a run is the import of plugins that it does not use.
        env={
            **os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(suite / "tmp"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )  # fmt: skip


def notes(suite: Path) -> list[str]:
    """The notes that the tests of a suite wrote."""
    return (suite / "notes").read_text().splitlines()


def test_the_example_of_the_guide_passes_on_its_own(suite: Path) -> None:
    plugin, example, *_ = blocks(PROJECT / "client" / "guide" / "testing.md")
    (suite / "conftest.py").write_text(plugin.code)
    (suite / "test_example.py").write_text(example.code)
    ran = run(suite)
    # The async test runs on asyncio, and on trio where it is installed.
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout


def test_one_imported_name_is_enough(suite: Path) -> None:
    (suite / "test_one.py").write_text(
        "import os\nfrom steno.testing import steno_session\n\n"
        "def test_a(steno_session):\n"
        "    steno_session.append_message({'role': 'user', 'content': 'a'})\n"
        "    assert len(steno_session.history) == 1\n"
        "    root = os.environ['STENO_HOME']\n"
        "    assert str(steno_session.file_backend).startswith(root + os.sep)\n"
        "    assert 'STENO_SOCKET' not in os.environ\n\n"
        "def test_b(steno_session):\n"
        "    assert steno_session.history == []\n"
        "    assert steno_session.id.startswith('test_b-')\n"
    )
    ran = run(suite, STENO_SOCKET=str(suite / "another.sock"))
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout


def test_all_fixtures_share_the_daemon_of_their_process(suite: Path) -> None:
    (suite / "conftest.py").write_text(PLUGIN)
    (suite / "test_all.py").write_text(
        "import pytest\n\n"
        "@pytest.fixture(params=['asyncio', 'trio'])\n"
        "def anyio_backend(request):\n"
        "    return request.param\n\n"
        "@pytest.mark.anyio\n"
        "async def test_a(\n"
        "    async_steno_session, async_steno_client, steno_client, steno_session, steno_root\n"
        "):\n"
        "    await async_steno_session.append_message({'role': 'user', 'content': 'a'})\n"
        "    found = [each.session for each in steno_client.sessions()]\n"
        "    assert {async_steno_session.id, steno_session.id} <= {*found}\n"
        "    assert found == [each.session for each in await async_steno_client.sessions()]\n"
        "    assert steno_client.welcome.root == str(steno_root)\n"
    )
    ran = run(suite)
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout


def test_each_worker_of_xdist_has_a_daemon_of_its_own(suite: Path) -> None:
    (suite / "conftest.py").write_text(PLUGIN)
    (suite / "test_many.py").write_text(
        f"import pathlib, pytest\n{NOTES}\n"
        "@pytest.mark.parametrize('number', range(8))\n"
        "def test_a(steno_root, steno_client, steno_session, number, worker_id):\n"
        "    steno_session.append_message({'role': 'user', 'content': str(number)})\n"
        "    note(f'{worker_id} {steno_root} {steno_client.welcome.pid}')\n"
    )
    ran = run(suite, "-p", "xdist", "-n", "2", "--dist", "load")
    assert (ran.returncode, "8 passed" in ran.stdout) == (0, True), ran.stdout
    daemons = {tuple(note.split()) for note in notes(suite)}
    assert len(daemons) == len({worker for worker, _, _ in daemons})
    assert (
        len(daemons) == len({root for _, root, _ in daemons}) == len({pid for *_, pid in daemons})
    )


def test_a_daemon_that_a_test_kills_is_replaced_and_removed(suite: Path) -> None:
    (suite / "conftest.py").write_text(PLUGIN)
    (suite / "test_kill.py").write_text(
        "import os, signal\n\n"
        "def test_a(steno_session, steno_client):\n"
        "    steno_session.append_message({'role': 'user', 'content': 'a'})\n"
        "    os.kill(steno_client.welcome.pid, signal.SIGKILL)\n"
        "    steno_session.append_message({'role': 'user', 'content': 'b'})\n"
        "    assert [each['content'] for each in steno_session.history] == ['a', 'b']\n\n"
        "def test_b(steno_session, steno_client):\n"
        "    os.kill(steno_client.welcome.pid, signal.SIGSTOP)\n"
    )
    ran = run(suite)
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout


def test_the_daemon_of_a_killed_test_run_ends_when_it_is_idle(root: Path) -> None:
    program = (
        "import os, signal, steno\nfrom steno.testing import private_root\n"
        "with private_root() as root, steno.connect_sync(root):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(root)},
        timeout=60,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL
    [left] = root.glob("steno-*")
    holder = holder_of(left)
    assert holder is not None
    try:
        with steno.connect_sync(left, spawn=False) as client:
            assert client.welcome.pid == holder.pid
            report, _ = client.request(commands.Configuration(), replies.ConfigurationReport)
            settings = {each.name: each.value for each in report.options}
            assert settings["life.idle_exit_s"] == 30
    finally:
        os.kill(holder.pid, signal.SIGKILL)


def test_the_contract_of_a_storage_needs_no_pytest() -> None:
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "from steno.testing import LinearStorageContract, private_root\n"
        "try:\n    from steno.testing import steno_session\n"
        "except ImportError:\n    print('refused')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "refused\n"), ran.stderr


def test_a_long_folder_for_temporary_files_gives_a_short_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with private_root() as root, steno.connect_sync(root) as client:
        assert client.welcome.root == str(root)
        assert (root / paths.SOCKET).is_socket()
    assert not root.exists()

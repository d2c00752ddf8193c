"""A root for the adapters, with one mounted tree."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import steno
from support.daemon_in_thread import DaemonInThread
from support.daemons import end_daemon_of, end_daemons_below


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """STENO_HOME of the adapters; they share one daemon, as they would in a program."""
    folder = Path(tempfile.mkdtemp(prefix="steno-")).resolve()
    (folder / "tree").mkdir()
    (folder / "config.toml").write_text(f'[mounts]\nkimi = "{folder}/tree"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STENO_HOME", str(folder))
        try:
            yield folder
        finally:
            # Also those that adapters started for trees of their own.
            end_daemons_below(folder)
            shutil.rmtree(folder)


@pytest.fixture
def folder(home: Path) -> Path:
    """An empty folder in the mounted tree, for one session."""
    return Path(tempfile.mkdtemp(prefix="session-", dir=home / "tree"))


@pytest.fixture
async def client(daemon: DaemonInThread) -> AsyncIterator[steno.Client]:
    """A client of the root, whose daemon ends with it."""
    async with steno.connect(daemon.root, spawn=False) as client:
        yield client


@pytest.fixture
async def client_of_process(root: Path) -> AsyncIterator[steno.Client]:
    """A client of a daemon that can be killed."""
    async with steno.connect(root) as client:
        yield client
    end_daemon_of(root)

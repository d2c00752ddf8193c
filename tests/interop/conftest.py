"""A root for the adapters, with one mounted tree."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import end_daemons_below


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

"""The durable name of a root."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import steno_system as system
from steno._connect.folders import make_private
from stenod.store.lock import make_root


@pytest.fixture(name="synced")
def _synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    found: set[Path] = set()
    sync = os.fsync

    def record(handle: int) -> None:
        found.add(Path(f"/proc/self/fd/{handle}").readlink())
        sync(handle)

    monkeypatch.setattr(system, "fsync", record)
    return found


@pytest.mark.parametrize("make", [make_root, make_private])
def test_each_folder_that_is_made_for_a_root_is_synced_into_its_parent(
    tmp_path: Path, synced: set[Path], make: Callable[[Path], object]
) -> None:
    make(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced - {tmp_path / "a" / "b"} == {tmp_path, tmp_path / "a"}


def test_existing_root_is_synced_with_its_entries(tmp_path: Path, synced: set[Path]) -> None:
    (tmp_path / "root").mkdir()
    make_root(tmp_path / "root")
    assert synced == {tmp_path, tmp_path / "root"}

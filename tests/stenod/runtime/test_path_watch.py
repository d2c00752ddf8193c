"""The watch that reports a path that was removed, moved or replaced."""

import socket
from collections.abc import Callable
from math import inf
from pathlib import Path

import anyio
import pytest

from steno_protocol import limits, paths
from stenod.runtime.path_watch import PathWatch
from stenod.sessions.registry import Registry
from support.daemon_in_thread import DaemonInThread

pytestmark = pytest.mark.anyio


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.touch()
    other.rename(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "moved": lambda path: path.rename(path.with_name("moved")),
    "replaced": _replace,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_of_a_bound_socket_is_reported(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        with PathWatch([path]) as watch:
            change(path)
            with anyio.fail_after(limits.PROBE_TIMEOUT_S):
                await watch.wait(inf)


async def test_a_moved_folder_is_reported_and_a_file_in_it_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    with PathWatch([folder, tmp_path / "missing"]) as watch:
        (folder / "session").mkdir()
        with anyio.move_on_after(0) as scope:
            await watch.wait(inf)
        assert scope.cancelled_caught
        folder.rename(tmp_path / "moved")
        with anyio.fail_after(limits.PROBE_TIMEOUT_S):
            await watch.wait(inf)


async def test_a_system_without_watches_leaves_the_caller_its_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: object) -> object:
        raise OSError

    monkeypatch.setattr("ctypes.CDLL", none)
    with PathWatch([tmp_path]) as watch:
        await watch.wait(0)


@pytest.mark.parametrize("name", [paths.SOCKET, paths.LOCK])
def test_a_daemon_notices_a_removed_file_before_its_next_look(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(limits, "ROOT_WATCH_S", inf)
    # A daemon also looks after its first burst of messages, and before it sweeps.
    monkeypatch.setattr(Registry, "_check_root", lambda _: None)
    with DaemonInThread(root) as daemon:
        (root / name).unlink()
        daemon.wait()

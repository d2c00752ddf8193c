"""Copies of sessions whose past generations are compressed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_backup import mirror
from steno_protocol import compression, paths
from steno_protocol.replies import Verification
from stenod.sessions import verify
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing, open_file
from stenod.store.names import past_generations
from stenod.store.posix import PosixDisk
from support.backups import back_up, is_killed
from support.compressed import compress_past
from support.daemon_in_thread import DaemonInThread

DEMO = f"{paths.SESSIONS}/demo"


@pytest.fixture
def client(root: Path, daemon: DaemonInThread) -> Any:
    with steno.connect_sync(root, spawn=False) as connected:
        yield connected


def rewrite(client: steno.BlockingClient, times: int, first: int = 0) -> None:
    session = client.open("demo", follow=False)
    for number in range(first, first + times):
        session.append_message({"role": "user", "content": f"{number} " + "again " * 50})
        session.clear()


def generations(folder: Path) -> list[bytes]:
    disk = PosixDisk()
    with closing(disk, disk.open_root(str(folder))) as at:
        found = []
        for generation in past_generations(disk, at):
            with closing(disk, open_file(disk, at, paths.generation_file(generation + 1))) as file:
                found.append(disk.read(file, disk.stat(file).size, 0))
        return found


def checked(folder: Path) -> Verification:
    disk = PosixDisk()
    with closing(disk, disk.open_root(str(folder))) as at:
        return verify.verify(disk, at, "demo", {}, live=None, failed_syncs=FailedSyncs())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith("context_")}


@pytest.mark.parametrize("is_known", [False, True], ids=["a new copy", "an older copy"])
def test_a_copy_has_the_compressed_files(
    root: Path, second_root: Path, client: steno.BlockingClient, is_known: bool
) -> None:
    copy = second_root / "copy"
    rewrite(client, 2)
    if is_known:
        back_up(client, root, copy)
    rewrite(client, 3, first=2)
    compress_past(root / DEMO)
    assert back_up(client, root, copy).problems == []
    assert names(copy / DEMO) == names(root / DEMO)
    assert len(names(copy / DEMO)) == 5
    assert generations(copy / DEMO) == generations(root / DEMO)
    assert back_up(client, root, copy).copied == 0


def test_a_copy_takes_over_what_was_compressed_since(
    root: Path, second_root: Path, client: steno.BlockingClient
) -> None:
    copy = second_root / "copy"
    rewrite(client, 4)
    back_up(client, root, copy)
    before = generations(copy / DEMO)
    compress_past(root / DEMO)
    assert back_up(client, root, copy).copied == 1
    assert names(copy / DEMO) == names(root / DEMO)
    assert generations(copy / DEMO) == before


def test_a_generation_that_is_compressed_during_a_round_is_copied(
    root: Path, second_root: Path, client: steno.BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = second_root / "copy"
    rewrite(client, 4)
    taken = mirror.taken

    def compressing(*args: Any) -> Any:
        found = taken(*args)
        snapshot = found.__enter__()
        compress_past(root / DEMO)

        class Same:
            def __enter__(self) -> Any:
                return snapshot

            def __exit__(self, *error: Any) -> None:
                found.__exit__(None, None, None)

        return Same()

    with monkeypatch.context() as patch:
        patch.setattr(mirror, "taken", compressing)
        assert back_up(client, root, copy).problems == []
    assert generations(copy / DEMO) == generations(root / DEMO)
    assert checked(copy / DEMO).damage == 0
    back_up(client, root, copy)
    assert names(copy / DEMO) == names(root / DEMO)


@pytest.mark.parametrize("rewrites", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_a_copy_that_is_killed_at_any_step_is_valid(
    root: Path,
    second_root: Path,
    client: steno.BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    rewrites: int,
) -> None:
    base, copy = second_root / "base", second_root / "copy"
    rewrite(client, 3)
    back_up(client, root, base)
    rewrite(client, rewrites, first=3)
    compress_past(root / DEMO)
    wanted = generations(root / DEMO)
    for step in range(200):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(base, copy)
        if not is_killed(client, root, copy, monkeypatch, step):
            break
        found = generations(copy / DEMO)
        assert len(found) >= 3
        assert found == wanted[: len(found)]
        assert checked(copy / DEMO).damage == 0
        back_up(client, root, copy)
        assert generations(copy / DEMO) == wanted
    else:
        pytest.fail("the copy never ended")
    assert step > 5


@pytest.mark.parametrize("is_known", [False, True], ids=["a new copy", "an older copy"])
@pytest.mark.parametrize("is_damaged", [False, True], ids=["without zstd", "with damage"])
def test_generations_that_nothing_expands_are_copied_as_they_are(
    root: Path,
    second_root: Path,
    client: steno.BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    is_damaged: bool,
    is_known: bool,
) -> None:
    copy = second_root / "copy"
    rewrite(client, 1)
    client.session("demo").append_message({"role": "user", "content": "begun"})
    if is_known:
        back_up(client, root, copy)
    rewrite(client, 4, first=1)
    compress_past(root / DEMO)
    client.open("later", follow=False)
    packed = root / DEMO / paths.compressed_file(paths.generation_file(3))
    whole = packed.read_bytes()
    if is_damaged:
        packed.write_bytes(whole[:-3])
    with monkeypatch.context() as patch:
        if not is_damaged:
            patch.setattr(compression.importlib, "import_module", _missing)
        report = back_up(client, root, copy)
    assert report.problems == []
    assert names(copy / DEMO) == names(root / DEMO)
    for name in [*names(root / DEMO), paths.CONTEXT, paths.TIMELINE]:
        assert (copy / DEMO / name).read_bytes() == (root / DEMO / name).read_bytes(), name
    assert (copy / "sessions/later" / paths.CONTEXT).exists()
    (copy / DEMO / packed.name).write_bytes(whole)
    assert checked(copy / DEMO).damage == 0


def _missing(name: str) -> object:
    raise ImportError(name)

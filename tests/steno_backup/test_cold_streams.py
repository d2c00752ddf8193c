"""Copies of sessions whose streams are compressed."""

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_backup import mirror
from steno_protocol import paths
from stenod.recovery.cold_streams import expand_stream
from stenod.store.handles import closing, open_file
from stenod.store.posix import PosixDisk
from support.backups import back_up, is_killed
from support.compressed import compress_streams
from support.daemon_in_thread import DaemonInThread

DEMO = f"{paths.SESSIONS}/demo"
NAME = paths.stream_file("notes")
PACKED = paths.compressed_file(NAME)


def fill(root: Path, first: int = 0) -> None:
    """Append to the stream of a session, and close it."""
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        stream = client.open("demo", follow=False).stream("notes")
        for number in range(first, first + 20):
            stream.append({"number": number, "text": "again " * 20})


@pytest.fixture
def packed(root: Path) -> Path:
    """The folder of a session with a compressed stream."""
    fill(root)
    assert compress_streams(root / DEMO) == [PACKED]
    return root / DEMO


@pytest.fixture
def client(root: Path, packed: Path, daemon: DaemonInThread) -> Any:
    with steno.connect_sync(root, spawn=False) as connected:
        yield connected


def expand(folder: Path) -> None:
    disk = PosixDisk()
    with closing(disk, disk.open_root(str(folder))) as at:
        expand_stream(disk, at, NAME)


def content(folder: Path) -> bytes:
    disk = PosixDisk()
    with (
        closing(disk, disk.open_root(str(folder))) as at,
        closing(disk, open_file(disk, at, NAME)) as file,
    ):
        return disk.read(file, disk.stat(file).size, 0)


def forms(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("stream-*.jsonl*"))


def test_a_copy_has_the_form_that_the_root_has(
    root: Path, second_root: Path, packed: Path, client: steno.BlockingClient
) -> None:
    copy = second_root / "copy"
    for change, form in ((None, PACKED), (expand, NAME), (compress_streams, PACKED)):
        if change is not None:
            change(packed)
        report = back_up(client, root, copy)
        assert (report.problems, report.sessions, report.copied) == (
            [],
            1,
            form == NAME or not change,
        )
        assert forms(copy / DEMO) == [form]
        assert content(copy / DEMO) == content(packed)
        assert back_up(client, root, copy).bytes == 0


@pytest.mark.parametrize(
    ("before", "change"), [(expand, compress_streams), (None, expand)], ids=["compress", "expand"]
)
@pytest.mark.parametrize("when", ["before", "within"])
@pytest.mark.parametrize("is_known", [False, True], ids=["a new copy", "an older copy"])
def test_a_stream_that_changes_its_form_during_a_round_is_in_the_copy(
    root: Path,
    second_root: Path,
    packed: Path,
    client: steno.BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[Path], Any] | None,
    change: Callable[[Path], Any],
    when: str,
    is_known: bool,
) -> None:
    copy = second_root / "copy"
    if is_known:
        back_up(client, root, copy)
    if before is not None:
        before(packed)
    client.session("demo").append_message({"role": "user", "content": "new"})
    taken, wanted = mirror.taken, content(packed)
    changes = iter([change])

    @contextmanager
    def changing(*arguments: Any) -> Any:
        if when == "before":
            for each in changes:
                each(packed)
        with taken(*arguments) as snapshot:
            for each in changes:
                each(packed)
            yield snapshot

    monkeypatch.setattr(mirror, "taken", changing)
    # The daemon has the context open and not the stream.
    monkeypatch.setattr(PosixDisk, "lock", lambda self, handle: True)
    assert back_up(client, root, copy).problems == []
    assert forms(copy / DEMO) == forms(packed)
    assert content(copy / DEMO) == wanted


@pytest.mark.parametrize("change", [None, expand], ids=["compressed", "expanded"])
def test_a_copy_that_is_killed_at_any_step_has_the_whole_stream(
    root: Path,
    second_root: Path,
    packed: Path,
    client: steno.BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], Any] | None,
) -> None:
    copy, wanted = second_root / "copy", content(packed)
    if change is None:
        expand(packed)
    back_up(client, root, copy)
    (change or compress_streams)(packed)
    step = 0
    while is_killed(client, root, copy, monkeypatch, step):
        assert content(copy / DEMO) == wanted
        step += 1
    assert step > 1
    assert content(copy / DEMO) == wanted
    assert forms(copy / DEMO) == forms(packed)


def test_a_copy_keeps_the_form_it_has_until_it_has_the_other_one(
    root: Path,
    second_root: Path,
    packed: Path,
    client: steno.BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy, wanted, taken = second_root / "copy", content(packed), mirror.taken
    expand(packed)
    back_up(client, root, copy)
    # The daemon has the context open and not the stream.
    monkeypatch.setattr(PosixDisk, "lock", lambda self, handle: True)

    @contextmanager
    def expanding(*arguments: Any) -> Any:
        with taken(*arguments) as snapshot:
            expand(packed)
            yield snapshot

    monkeypatch.setattr(mirror, "taken", expanding)
    step, killed = 0, True
    while killed:
        compress_streams(packed)
        client.session("demo").append_message({"role": "user", "content": "new"})
        killed = is_killed(client, root, copy, monkeypatch, step)
        assert content(copy / DEMO) == wanted
        step += 1
    assert step > 1
    assert forms(copy / DEMO) == [NAME]


def test_a_restored_copy_goes_on_from_the_compressed_stream(
    root: Path, second_root: Path, packed: Path, client: steno.BlockingClient
) -> None:
    copy = second_root / "copy"
    back_up(client, root, copy)
    (copy / mirror.MARKER).unlink()
    with DaemonInThread(copy), steno.connect_sync(copy, spawn=False) as other:
        stream = other.session("demo").stream("notes")
        assert [json.loads(each)["number"] for each in stream.lines()] == list(range(20))
        assert str(stream.append({"number": 20}).first) == "0:20"
    assert forms(copy / DEMO) == [NAME]

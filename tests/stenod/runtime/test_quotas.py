"""Quotas and the minimum of free space, checked before anything is written."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import steno
from steno_protocol import limits
from steno_protocol.errors import Outcome, StenoError
from steno_protocol.settings import Settings
from stenod.runtime.quotas import Quotas
from stenod.store.usage import BLOCK_BYTES, free_bytes, tree_bytes
from support.daemon_in_thread import DaemonInThread

KIB = 1024


def _message(size: int) -> dict[str, str]:
    return {"role": "user", "content": "x" * size}


def _configure(root: Path, **options: object) -> None:
    lines = [f"{name} = {value}" for name, value in options.items()]
    (root / "config.toml").write_text("\n".join(["[disk]", *lines, ""]))


def _root_quotas(root: Path, clock: Callable[[], float]) -> Quotas:
    settings = Settings({**Settings().values, "disk.root_bytes": 64 * KIB})
    return Quotas(lambda: settings, clock, lambda _: str(root), lambda: [root], free_bytes)


def _fill(session: steno.BlockingSession) -> StenoError:
    """Append until an append is refused, at most a thousand times; returns the error."""
    try:
        for _ in range(1000):
            session.append_message(_message(4 * KIB))
    except StenoError as error:
        return error
    raise AssertionError("no append was refused")


def _create_until_full(client: steno.BlockingClient) -> StenoError:
    """Create sessions without records until one is refused, at most 200; returns the error."""
    try:
        for number in range(200):
            client.open(f"s{number}", follow=False).describe(title="a title")
    except StenoError as error:
        return error
    raise AssertionError("no session was refused")


def test_full_session_is_refused_and_others_continue(root: Path) -> None:
    _configure(root, session_bytes=64 * KIB)
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("full", follow=False)
        error = _fill(session)
        assert isinstance(error, steno.TooLarge)
        assert (error.outcome, error.session) == (Outcome.NOT_APPLIED, "full")
        assert "disk.session_bytes" in error.message
        size = (root / "sessions" / "full" / "context.jsonl").stat().st_size
        assert 48 * KIB < size <= 64 * KIB
        with pytest.raises(steno.TooLarge):
            session.append_wire("Event", {"text": "x" * 8 * KIB})
        client.open("other", follow=False).append_message(_message(KIB))


def test_appends_fail_below_the_minimum_of_free_space_until_it_is_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a fast disk takes all of `_fill` before the next look.
    monkeypatch.setattr(limits, "ROOM_CHECK_S", 0.0)
    with DaemonInThread(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        _configure(root, free_bytes="'4096 TB'")
        daemon.reload()
        with pytest.raises(steno.StorageFailed, match=r"disk\.free_bytes"):
            client.open("another", follow=False)
        assert isinstance(_fill(session), steno.StorageFailed)
        lines = list(session.lines())
        with pytest.raises(steno.StorageFailed) as refused:
            session.append_message(_message(1), key="late")
        assert refused.value.outcome is Outcome.NOT_APPLIED
        assert "disk.free_bytes" in refused.value.message
        assert list(session.lines()) == lines
        _configure(root, free_bytes=1)
        daemon.reload()
        assert not session.append_message(_message(1), key="late").duplicate


def test_batch_beyond_the_quota_is_refused_as_a_whole(root: Path) -> None:
    _configure(root, session_bytes=64 * KIB)
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        with pytest.raises(steno.TooLarge):
            session.append_message([_message(16 * KIB)] * 8)
        assert list(session.lines()) == [], "a batch is atomic"
        session.append_message([_message(16 * KIB)] * 2)
        assert len(list(session.lines())) == 2


def test_file_system_of_unknown_size_has_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # ramfs reports no sizes, and neither do some file systems of other programs.
    unknown = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    quotas = Quotas(Settings, time.monotonic, lambda _: str(root), lambda: [root], free_bytes)
    monkeypatch.setattr(os, "statvfs", lambda _: unknown)
    account = quotas.account("demo")
    quotas.renew(account)
    assert account.left > KIB


def test_the_writers_of_one_session_share_an_account(root: Path) -> None:
    quotas = _root_quotas(root, lambda: 0.0)
    first = quotas.account("demo")
    quotas.renew(first)
    assert quotas.account("demo") is first


def test_bytes_taken_by_one_session_count_for_all_sessions(root: Path) -> None:
    quotas = _root_quotas(root, lambda: 0.0)
    quotas.root_measured(0)
    quick, other = quotas.account("quick"), quotas.account("other")
    quotas.renew(quick)
    quick.left -= 40 * KIB
    quick.taken += 40 * KIB
    quotas.renew(other)
    assert other.left == 24 * KIB
    quotas.renew(other)
    assert other.left == 24 * KIB, "bytes are counted once"


def test_a_measurement_of_the_root_ends_every_account(root: Path) -> None:
    quotas = _root_quotas(root, lambda: 5.0)
    account = quotas.account("demo")
    quotas.renew(account)
    quotas.root_measured(0)
    assert account.until_s < 5.0


def test_sessions_without_records_count_against_the_root(root: Path) -> None:
    _configure(root, root_bytes=512 * KIB)
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        assert isinstance(_create_until_full(client), steno.TooLarge)
        assert tree_bytes(str(root / "sessions")) <= (512 + 64) * KIB
        # What makes room is still served, and what is there can be read.
        client.open("s0", follow=False).clear()
        client.delete("s1")
        assert client.open("s0", create=False, follow=False).stat().title == "a title"


def test_files_are_counted_in_whole_blocks(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "small").write_bytes(b"x")
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(b"x" * (BLOCK_BYTES + 1))
    assert tree_bytes(str(tmp_path)) == 5 * BLOCK_BYTES


def test_fork_beyond_the_quota_is_refused_and_leaves_no_session(root: Path) -> None:
    _configure(root, root_bytes=96 * KIB)
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        for _ in range(16):
            session.append_message(_message(4 * KIB))
        with pytest.raises(steno.TooLarge):
            session.fork("copy")
        assert [entry.session for entry in client.sessions()] == ["demo"]


@pytest.mark.parametrize("quota", ["session_bytes", "root_bytes"])
def test_each_file_that_a_rewrite_makes_counts_at_once(root: Path, quota: str) -> None:
    _configure(root, **{quota: 256 * KIB})
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        first = session.checkpoint()
        session.append_message(_message(48 * KIB))
        made = 0
        with suppress(steno.TooLarge):
            for _ in range(20):
                session.revert_to(session.checkpoint())
                made += 1
        assert made >= 3
        with pytest.raises(steno.TooLarge, match=rf"disk\.{quota}") as raised:
            session.restore_generation(0)
        assert raised.value.outcome is Outcome.NOT_APPLIED
        assert tree_bytes(str(root / "sessions")) <= 256 * KIB
        # One that leaves little behind fits.
        session.revert_to(first)
        session.clear()


def test_a_full_root_says_how_a_deletion_makes_room(root: Path) -> None:
    _configure(root, root_bytes=64 * KIB)
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        with pytest.raises(steno.TooLarge, match=r"the trash have .* and run `steno gc --trash`"):
            session.append_message(_message(64 * KIB))

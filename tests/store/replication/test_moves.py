"""Moves of folders in a cluster: renames, deletions and forks of sessions of several hosts."""

from pathlib import Path

import pytest

from steno_protocol.errors import Held
from stenod.replication.journal import Fenced, Kind
from support.memory_journal import MemoryStream
from support.replicated import Host


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream()


@pytest.fixture
def one(stream: MemoryStream, tmp_path: Path) -> Host:
    return Host(stream, "one", str(tmp_path / "one" / "sessions"))


@pytest.fixture
def two(stream: MemoryStream, tmp_path: Path) -> Host:
    return Host(stream, "two", str(tmp_path / "two" / "sessions"))


def line(text: str) -> bytes:
    return b'{"role":"user","content":"%s"}\n' % text.encode()


def write(host: Host, session: str, text: str) -> None:
    """Write a durable line, and close the session."""
    log = host.open(session).log
    log.append(line(text))
    log.sync()
    host.close()
    host.hosts.tell_alive()


def read(host: Host, session: str) -> bytes | None:
    """What a session contains; None if there is none."""
    folder = host.ownership.acquire(session)
    if folder is None or not folder.manifest.names:
        return None
    return host.content(session)["context.jsonl"]


def rename(host: Host, name: str, new_name: str) -> None:
    tree = host.disk.open_root(host.tree)
    host.disk.move(tree, name, tree, new_name)
    host.disk.close(tree)


def delete(host: Host, name: str) -> None:
    tree = host.disk.open_root(host.tree)
    trash = host.disk.open_folder(tree, ".trash", create=True)
    host.disk.move(tree, name, trash, name)
    host.disk.close(trash)
    host.disk.close(tree)


def kinds(stream: MemoryStream) -> dict[str, Kind]:
    """The last message of each session."""
    found = {folder: stream.last("", folder) for folder in stream.folders("")}
    return {folder: last.kind for folder, last in found.items() if last is not None}


# --- ids that are free ---------------------------------------------------------------------------


def test_an_id_that_a_living_host_deleted_is_free(one: Host, two: Host) -> None:
    write(two, "t", "old")
    delete(two, "t")
    write(one, "s", "new")
    rename(one, "s", "t")
    assert read(one, "t") == line("new")
    with pytest.raises(Held):
        two.ownership.acquire("t")


def test_asking_for_a_deleted_session_leaves_its_id_free(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(two, "t", "old")
    delete(two, "t")
    for host in (one, two):
        host.hosts.tell_alive()
        assert host.ownership.acquire("t") is None
    assert kinds(stream) == {"t": Kind.GONE}


def test_of_two_hosts_that_make_a_deleted_session_again_one_succeeds(one: Host, two: Host) -> None:
    write(two, "t", "old")
    delete(two, "t")
    late = one.ownership.writable("t")
    write(two, "t", "new")
    assert late.is_new
    with pytest.raises(Fenced):
        one.open("t").log.sync()
    one.close()
    one.now += 100.0
    assert read(one, "t") == line("new")


def test_a_stale_copy_of_a_deleted_session_is_not_its_successor(one: Host, two: Host) -> None:
    write(one, "t", "old")
    one.ownership.release_to("t", two.hosts.owner)
    write(two, "t", "newer")
    delete(two, "t")
    assert read(one, "t") is None
    assert not Path(one.tree, "t", "context.jsonl").exists()

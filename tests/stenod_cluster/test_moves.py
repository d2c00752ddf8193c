"""Names of sessions in a cluster: renames, deletions and restorations on several hosts."""

import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from errno import EIO
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest

from steno_protocol.errors import BadRequest, Held
from stenod_cluster import limits
from stenod_cluster.journal import (
    Fenced,
    InDoubt,
    JournalLost,
    Kind,
    Message,
    Publication,
    subject_of_name,
)
from support.cluster_commands import ClusterCommands
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host, line

KEY = "k"
"""The key of each move."""


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


def rename(host: Host, name: str, new_name: str = "q") -> None:
    tree = host.disk.open_root(host.tree)
    host.disk.move(tree, name, tree, new_name, KEY)
    host.disk.close(tree)


def delete(host: Host, session: str) -> None:
    *above, name = session.split("/")
    tree = host.disk.open_root(host.tree)
    trash = host.disk.open_folder(tree, ".trash", create=True)
    parent = host.disk.open_folder(tree, above[0]) if above else tree
    host.disk.move(parent, name, trash, trash_of(session), KEY)
    for handle in {trash, parent, tree}:
        host.disk.close(handle)


def trash_of(session: str) -> str:
    """The name of a deleted session's folder in the trash."""
    return f"1.{KEY}.{session.replace('/', '~')}"


def kinds(stream: MemoryStream) -> dict[str, Kind]:
    """The last message of each name."""
    found = {name: stream.last("", subject_of_name(name)) for name in stream.names("")}
    return {name: last.kind for name, last in found.items() if last is not None}


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
    assert kinds(stream)["t"] is Kind.GONE


def test_of_two_hosts_that_make_a_deleted_session_again_one_succeeds(one: Host, two: Host) -> None:
    write(two, "t", "old")
    delete(two, "t")
    late = one.ownership.acquire("t", create=True)
    write(two, "t", "new")
    assert late is not None
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


# --- sessions below ------------------------------------------------------------------------------


def give(host: Host, session: str, other: Host) -> None:
    """Hand a session over, and let the other host write to it."""
    host.ownership.release_to(session, other.hosts.owner)
    write(other, session, "theirs")


@pytest.fixture
def family(one: Host, two: Host, stream: MemoryStream) -> Host:
    """A host with the sessions p and p/c, of which another living one owns p/c."""
    write(one, "p", "above")
    write(one, "p/c", "below")
    give(one, "p/c", two)
    return one


@pytest.mark.parametrize("act", [delete, rename])
@pytest.mark.parametrize("is_here", [True, False])
def test_a_session_below_that_another_host_owns_keeps_its_parent_where_it_is(
    family: Host,
    two: Host,
    stream: MemoryStream,
    act: Callable[[Host, str], None],
    *,
    is_here: bool,
) -> None:
    if not is_here:
        shutil.rmtree(Path(family.tree, "p", "c"))
    before = stream.subjects("")
    with pytest.raises(BadRequest) as refused:
        act(family, "p")
    assert refused.value.session == "p/c"
    assert "the daemon at ipc:///two owns the session 'p/c'" in refused.value.message
    assert "`steno cluster move p/c ipc:///one`" in refused.value.message
    assert stream.subjects("") == before
    assert read(family, "p") == line("above")
    assert read(two, "p/c") == line("below") + line("theirs")


def test_a_session_below_moves_as_its_dead_owner_left_it(family: Host, two: Host) -> None:
    family.now += 100.0
    rename(family, "p")
    family.start()
    two.now += 100.0
    for host in (family, two):
        assert read(host, "q") == line("above")
        assert read(host, "q/c") == line("below") + line("theirs")
        assert read(host, "p") is None
        assert read(host, "p/c") is None
        host.now += 100.0


def test_a_session_below_moves_although_only_the_journal_has_it(family: Host, two: Host) -> None:
    shutil.rmtree(Path(family.tree, "p", "c"))
    family.now += 100.0
    delete(family, "p")
    assert (
        Path(family.tree, ".trash", trash_of("p"), "c", "context.jsonl")
        .read_bytes()
        .endswith(line("theirs"))
    )
    two.now += 100.0
    assert read(two, "p/c") is None


def test_a_session_below_that_another_host_deleted_does_not_come_back(
    family: Host, two: Host
) -> None:
    delete(two, "p/c")
    rename(family, "p")
    assert read(family, "q") == line("above")
    assert read(family, "q/c") is None


@pytest.mark.parametrize("place", ["q", "q/c"])
def test_a_place_that_another_host_has_is_taken(
    one: Host, two: Host, stream: MemoryStream, place: str
) -> None:
    write(one, "p", "above")
    write(one, "p/c", "below")
    write(two, place, "theirs")
    before = stream.subjects("")
    with pytest.raises(FileExistsError):
        rename(one, "p")
    assert stream.subjects("") == before
    # Also when that host is dead.
    one.now += 100.0
    with pytest.raises(FileExistsError):
        rename(one, "p")
    assert read(one, place) == line("theirs")
    assert read(one, "p/c") == line("below")


# --- moves that fail or end with their process ---------------------------------------------------

FAMILY = {"p": line("above"), "p/c": line("below")}


def at_each_place(host: Host) -> dict[str, bytes]:
    found = {name: read(host, name) for name in ("p", "p/c", "q", "q/c")}
    return {name: text for name, text in found.items() if text is not None}


def moved_to(goal: str) -> dict[str, bytes]:
    return {f"{goal}{name[1:]}": text for name, text in FAMILY.items()}


@pytest.fixture
def pair(one: Host) -> Host:
    """A host with the sessions p and p/c."""
    write(one, "p", "above")
    write(one, "p/c", "below")
    return one


def test_a_family_moves_in_one_batch_that_names_the_command(
    pair: Host, stream: MemoryStream
) -> None:
    published: list[Publication] = []
    publish = stream.publish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            stream, "publish", lambda host, each: published.append(each) or publish(host, each)
        )
        pair.ownership.acquire("p/c")
        published.clear()
        rename(pair, "p")
    (batch,) = published
    names = [(each.subject, each.kind, each.move) for each in batch.batch if each.move]
    assert names == [
        ("@p", Kind.GONE, KEY),
        ("@q", Kind.NAME, KEY),
        ("@p/c", Kind.GONE, KEY),
        ("@q/c", Kind.NAME, KEY),
    ]


def test_a_move_that_the_journal_refuses_changes_nothing(
    pair: Host, two: Host, stream: MemoryStream
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "publish", lambda *_: JournalLost(None, "no majority"))
        with pytest.raises(JournalLost):
            rename(pair, "p")
    two.now += 100.0
    assert at_each_place(two) == FAMILY
    pair.now += 100.0
    two.now -= 100.0
    rename(pair, "p")
    assert at_each_place(pair) == moved_to("q")


def test_a_move_that_the_disk_fails_took_place_nevertheless(
    pair: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(EIO, "the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(pair.local, "move", fail)
        with pytest.raises(OSError, match="this disk failed"):
            rename(pair, "p")
    for host in (pair, two):
        assert host.disk.name_changes.moved("p", KEY) == "q"
        assert at_each_place(host) == moved_to("q")
        two.now += 100.0
    # Its copy followed, with the files that it had.
    assert not Path(pair.tree, "p").exists()
    assert not Path(pair.tree, "q", "quarantine").exists()


def test_an_opening_that_found_nothing_leaves_what_comes_to_the_name_meanwhile(
    one: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "p", "old")
    mover, is_waiting = Thread(target=rename, args=(one, "p")), Event()
    last, alone = one.journal.last, one.ownership.alone

    def alone_with(path: str) -> AbstractContextManager[None]:
        if path == "q" and current_thread() is mover:
            is_waiting.set()
        return alone(path)

    def last_of(subject: str, *, at_leader: bool = False) -> Message | None:
        found = last(subject, at_leader=at_leader)
        if subject == subject_of_name("q") and mover.ident is None:
            mover.start()
            while mover.is_alive() and not is_waiting.wait(0.01):
                pass
        return found

    monkeypatch.setattr(one.ownership, "alone", alone_with)
    monkeypatch.setattr(one.journal, "last", last_of)
    assert one.ownership.acquire("q") is None
    mover.join()
    assert read(one, "q") == line("old")


@contextmanager
def dying(host: Host, *, is_stored: bool) -> Generator[None]:
    """Let the process of a host end before or behind its batch of names."""
    publish = host.journal.publish

    def publish_and_die(publications: Sequence[Publication]) -> list[int | OSError]:
        if not any(each.move for one in publications for each in one.batch):
            return publish(publications)
        if is_stored:
            publish(publications)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.journal, "publish", publish_and_die)
        with pytest.raises(KeyboardInterrupt):
            yield
    host.start()


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_rename_whose_host_died_is_whole_or_did_not_begin(
    pair: Host, two: Host, *, is_stored: bool
) -> None:
    with dying(pair, is_stored=is_stored):
        rename(pair, "p")
    wanted = moved_to("q") if is_stored else FAMILY
    two.now += 100.0
    for host in (two, pair):
        assert host.disk.name_changes.moved("p", KEY) == ("q" if is_stored else None)
        assert at_each_place(host) == wanted
        pair.now += 100.0


@pytest.mark.parametrize("act", [rename, delete])
def test_a_host_that_lost_a_session_unnoticed_moves_nothing(
    pair: Host, two: Host, stream: MemoryStream, act: Callable[[Host, str], None]
) -> None:
    pair.ownership.acquire("p")
    stream.partition("one")
    two.now += 100.0
    write(two, "p", "theirs")
    stream.heal("one")
    with pytest.raises(Held) as refused:
        act(pair, "p")
    assert refused.value.endpoint == "ipc:///two"
    assert at_each_place(two) == {**FAMILY, "p": FAMILY["p"] + line("theirs")}
    assert pair.disk.name_changes.moved("p", KEY) is None


def test_a_deletion_settles_what_became_of_an_append_before_it(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    log = one.open("p").log
    stream.force("one", Fault.UNANSWERED)
    log.append(line("in doubt"))
    with pytest.raises(InDoubt):
        log.sync()
    one.close()
    delete(one, "p")
    restore(two, "p")
    assert read(two, "p") == line("above") + line("in doubt")


def test_a_copy_follows_its_session_to_another_name(one: Host, two: Host) -> None:
    write(one, "p", "above")
    two.now += 100.0
    write(two, "p", "theirs")
    inode = Path(one.tree, "p", "context.jsonl").stat().st_ino
    rename(two, "p")
    one.ownership.tidy("p")
    assert Path(one.tree, "q", "context.jsonl").stat().st_ino == inode
    one.now += 100.0
    assert read(one, "q") == line("above") + line("theirs")


def test_a_copy_has_moved_although_those_below_it_cannot_be_put_away_now(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "p", "above")
    two.now += 100.0
    rename_at(two, "p", "q")

    def fail(_: object) -> None:
        monkeypatch.undo()
        raise JournalLost(None, "no majority")

    monkeypatch.setattr(one.ownership.copies, "_put_away_all", fail)
    one.ownership.tidy("p")
    assert Path(one.tree, "q", "context.jsonl").read_bytes() == line("above")
    assert not Path(one.tree, "p").exists()


def test_a_copy_of_a_session_whose_place_is_taken_here_is_removed(one: Host, two: Host) -> None:
    write(one, "p", "above")
    two.now += 100.0
    rename_at(two, "p", "q")
    folder = Path(one.tree, "q")
    folder.mkdir()
    (folder / "notes.txt").write_text("another program's")
    one.ownership.tidy("p")
    assert not Path(one.tree, "p").exists()
    one.now += 100.0
    assert read(one, "q") == line("above")
    assert (folder / "notes.txt").exists()


def rename_at(host: Host, name: str, new_name: str) -> None:
    host.ownership.acquire(name)
    rename(host, name, new_name)


def test_a_copy_of_a_deleted_session_goes_to_the_trash_of_its_disk(one: Host, two: Host) -> None:
    write(one, "p", "above")
    two.now += 100.0
    two.ownership.acquire("p")
    delete(two, "p")
    one.ownership.tidy("p")
    assert Path(one.tree, ".trash", trash_of("p"), "context.jsonl").read_bytes() == line("above")
    assert not Path(one.tree, "p").exists()


def test_an_id_leads_to_another_session_after_a_deletion(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "old")
    first = stream.identity_of("p")
    delete(one, "p")
    two.now += 100.0
    write(two, "p", "new")
    assert stream.identity_of("p") != first
    one.now += 100.0
    assert read(one, "p") == line("new")
    assert not Path(one.tree, "p", "quarantine").exists()
    # A repeat of the deletion answers, and deletes nothing.
    assert one.disk.name_changes.moved("p", KEY) == f".trash/{trash_of('p')}"
    assert read(one, "p") == line("new")


def test_a_copy_below_another_name_than_its_own_is_no_session(one: Host, two: Host) -> None:
    write(one, "p", "above")
    write(one, "p/c", "below")
    two.now += 100.0
    two.ownership.acquire("p/c")
    tree = two.disk.open_root(two.tree)
    parent = two.disk.open_folder(tree, "p")
    two.disk.move(parent, "c", tree, "r", "another")
    rename_at(two, "p", "q")
    one.start()
    one.ownership.tidy("p")
    assert sorted(one.ownership.copies.here()) == ["q"]
    one.now += 100.0
    assert (read(one, "q"), read(one, "q/c"), read(one, "r")) == (
        line("above"),
        None,
        line("below"),
    )


@pytest.mark.parametrize("more", ["", "more"])
def test_files_without_a_mark_follow_the_session_that_had_their_id(
    one: Host, two: Host, more: str
) -> None:
    write(one, "p", "above")
    Path(one.tree, "p", "journal.mark").unlink()
    two.now += 100.0
    rename_at(two, "p", "q")
    wanted = line("above") + (line(more) if more else b"")
    Path(one.tree, "p", "context.jsonl").write_bytes(wanted)
    assert read(one, "p") is None
    assert not Path(one.tree, "p").exists()
    one.now += 100.0
    assert read(one, "q") == wanted


def test_files_that_differ_from_the_session_that_had_their_id_are_kept_beside_it(
    one: Host, two: Host
) -> None:
    write(one, "p", "above")
    Path(one.tree, "p", "journal.mark").unlink()
    two.now += 100.0
    rename_at(two, "p", "q")
    Path(one.tree, "p", "context.jsonl").write_bytes(line("other"))
    assert read(one, "p") is None
    assert read(one, "p-kept-1") == line("other")


def test_a_session_that_is_used_below_an_id_that_is_gone_stays_where_it_is(
    one: Host, two: Host
) -> None:
    write(one, "p", "above")
    two.now += 100.0
    two.ownership.acquire("p")
    delete(two, "p")
    write(one, "p/c", "new")
    one.ownership.tidy("p")
    assert sorted(one.ownership.copies.here()) == ["p/c"]
    assert read(one, "p/c") == line("new")


def test_more_sessions_than_a_batch_takes_stay_where_they_are(
    pair: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOVED_TOGETHER_MAX", 1)
    with pytest.raises(BadRequest, match="2 sessions would go together"):
        rename(pair, "p")
    assert at_each_place(pair) == FAMILY


# --- the trash -----------------------------------------------------------------------------------


def restore(host: Host, session: str) -> None:
    """Restore a session as a daemon does."""
    host.disk.name_changes.fetch_deleted(session)
    tree = host.disk.open_root(host.tree)
    trash = host.disk.open_folder(tree, ".trash")
    host.disk.move(trash, trash_of(session), tree, session, "undelete")


def test_any_host_restores_what_another_one_deleted(pair: Host, two: Host) -> None:
    delete(pair, "p")
    restore(two, "p")
    assert at_each_place(two) == FAMILY
    assert pair.disk.name_changes.moved("p", "undelete") == "p"
    # What the first host has in its trash is where the session is now.
    assert read(pair, f".trash/{trash_of('p')}") is None
    pair.now += 100.0
    assert at_each_place(pair) == FAMILY
    assert list(Path(pair.tree, ".trash").iterdir()) == []


def test_a_session_that_another_host_restored_is_restored_once(one: Host, two: Host) -> None:
    write(one, "p", "above")
    delete(one, "p")
    restore(two, "p")
    rename(two, "p", "r")
    with pytest.raises(FileNotFoundError):
        restore(one, "p")
    assert at_each_place(one) == {}


def remove_from_trash(host: Host, session: str) -> None:
    """Remove a deleted session for good, as the daemon does."""
    tree = host.disk.open_root(host.tree)
    trash = host.disk.open_folder(tree, ".trash")
    for name in (trash_of(session),):
        shutil.rmtree(Path(host.tree, ".trash", name, "c"), ignore_errors=True)
        for each in Path(host.tree, ".trash", name).iterdir():
            each.unlink()
        host.disk.remove_folder(trash, name)


def test_what_is_removed_from_the_trash_leaves_the_journal(
    pair: Host, stream: MemoryStream
) -> None:
    delete(pair, "p")
    assert len(stream.counts()) == 2
    remove_from_trash(pair, "p")
    assert stream.counts() == {}
    assert set(kinds(stream)) == {"p", "p/c"}


def test_a_trash_that_lags_removes_nothing_that_was_restored(pair: Host, two: Host) -> None:
    delete(pair, "p")
    restore(two, "p")
    remove_from_trash(pair, "p")
    assert at_each_place(two) == FAMILY


def test_a_host_whose_root_is_gone_has_all_names_again(
    pair: Host, two: Host, stream: MemoryStream
) -> None:
    rename(pair, "p")
    two.now += 100.0
    write(two, "p", "new")
    shutil.rmtree(pair.tree)
    again = Host(stream, "one", pair.tree)
    again.now = 500.0
    assert at_each_place(again) == {**moved_to("q"), "p": line("new")}


# --- what copies leave ---------------------------------------------------------------------------


THREE = ("p", "p/c", "p/c/d")


def lose_family(one: Host, two: Host) -> None:
    """Write a family at a host that another one takes for dead."""
    for session in THREE:
        write(one, session, session)
    two.now += 100.0
    for session in THREE:
        write(two, session, "theirs")
        one.ownership.lose(session, two.hosts.owner)


@pytest.mark.parametrize("tidied", [["p"], ["p", "p/c/d", "p/c"], ["p/c/d", "p/c", "p"]])
def test_a_deleted_family_leaves_nothing_on_a_disk_that_knew_it(
    one: Host, two: Host, tidied: list[str]
) -> None:
    lose_family(one, two)
    delete(two, "p")
    for session in tidied:
        one.ownership.tidy(session)
    assert not Path(one.tree, "p").exists()


def test_copies_of_sessions_that_were_deleted_one_by_one_leave_no_folder(
    one: Host, two: Host
) -> None:
    lose_family(one, two)
    for session in ("p/c", "p"):
        delete(two, session)
    for session in THREE:
        one.ownership.tidy(session)
    assert not Path(one.tree, "p").exists()


def test_folders_that_refused_openings_left_are_in_the_way_of_no_restoration(
    one: Host, two: Host
) -> None:
    write(one, "s/child", "1")
    write(one, "s", "1")
    ClusterCommands(one).delete("s", "d", 1000)
    Path(two.tree, "s", "child").mkdir(parents=True)
    two.now += 100.0
    ClusterCommands(two).undelete("s", "u", 1001)
    for session in ("s", "s/child"):
        assert two.content(session)["context.jsonl"] == line("1")

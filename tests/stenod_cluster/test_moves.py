"""Moves of folders in a cluster: renames, deletions and forks of sessions of several hosts."""

import itertools
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from errno import EIO
from pathlib import Path

import pytest

from steno_protocol.errors import BadRequest, Held
from stenod_cluster.journal import Fenced, InDoubt, JournalLost, Kind, Publication
from support.memory_journal import MemoryStream
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
    host.disk.move(parent, name, trash, name, KEY)
    for handle in {trash, parent, tree}:
        host.disk.close(handle)


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
    before = stream.folders("")
    with pytest.raises(BadRequest) as refused:
        act(family, "p")
    assert refused.value.session == "p/c"
    assert "the daemon at ipc:///two owns the session 'p/c'" in refused.value.message
    assert "`steno cluster move p/c ipc:///one`" in refused.value.message
    assert stream.folders("") == before
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
        Path(family.tree, ".trash", "p", "c", "context.jsonl").read_bytes().endswith(line("theirs"))
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
    before = stream.folders("")
    with pytest.raises(FileExistsError):
        rename(one, "p")
    assert stream.folders("") == before
    # Also when that host is dead.
    one.now += 100.0
    with pytest.raises(FileExistsError):
        rename(one, "p")
    assert read(one, place) == line("theirs")
    assert read(one, "p/c") == line("below")


# --- moves that fail half-way --------------------------------------------------------------------


@contextmanager
def failing(stream: MemoryStream, number: int) -> Generator[None]:
    """Let the servers refuse one message, after so many that they take."""
    original, messages = stream.publish, itertools.count()

    def publish(host: str, publication: Publication) -> int | OSError:
        if next(messages) == number:
            return JournalLost(None, "no majority")
        return original(host, publication)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "publish", publish)
        yield


@pytest.mark.parametrize("number", range(4))
def test_a_rename_that_the_journal_fails_leaves_both_sessions_at_their_place(
    one: Host, two: Host, stream: MemoryStream, number: int
) -> None:
    write(one, "p", "above")
    write(one, "p/c", "below")
    with failing(stream, number), pytest.raises(JournalLost):
        rename(one, "p")
    two.now += 100.0
    assert (read(two, "p"), read(two, "p/c")) == (line("above"), line("below"))
    assert (read(two, "q"), read(two, "q/c")) == (None, None)
    one.now += 100.0
    two.now -= 100.0
    rename(one, "p")
    assert (read(one, "q"), read(one, "q/c")) == (line("above"), line("below"))


def test_a_rename_that_the_disk_fails_leaves_the_session_at_its_place(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "p", "above")

    def fail(*_: object) -> None:
        raise OSError(EIO, "the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(one.local, "move", fail)
        with pytest.raises(OSError, match="the disk failed"):
            rename(one, "p")
    # It did not take place, whoever is asked.
    assert not one.disk.moves.renamed_elsewhere("p", "q", KEY)
    two.now += 100.0
    assert not two.disk.moves.renamed_elsewhere("p", "q", KEY)
    assert read(two, "p") == line("above")
    assert read(two, "q") is None


def test_a_session_above_is_gone_from_the_journal_last(one: Host, stream: MemoryStream) -> None:
    write(one, "p", "above")
    write(one, "p/c", "below")
    gone: list[str] = []
    original = stream.publish

    def publish(host: str, publication: Publication) -> int | OSError:
        if publication.kind is Kind.GONE:
            gone.append(publication.folder)
        return original(host, publication)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "publish", publish)
        delete(one, "p")
    assert gone == ["p/c", "p"]


# --- moves that end with their process -----------------------------------------------------------


@contextmanager
def ending_before_the_disk_moves(host: Host) -> Generator[None]:
    """Let the process of a host end, at the latest when its disk moves a folder."""

    def move(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.local, "move", move)
        with pytest.raises(KeyboardInterrupt):
            yield
    host.start()


def cut_short(host: Host, stream: MemoryStream, number: int) -> None:
    """Rename p to q, and let the process end when it publishes its message of that number."""
    original, messages = stream.publish, itertools.count()

    def publish(name: str, publication: Publication) -> int | OSError:
        if next(messages) == number:
            raise KeyboardInterrupt
        return original(name, publication)

    with pytest.MonkeyPatch.context() as patch, ending_before_the_disk_moves(host):
        patch.setattr(stream, "publish", publish)
        rename(host, "p")


@pytest.mark.parametrize("number", range(5))
def test_a_rename_that_was_cut_short_leaves_each_session_at_one_place(
    one: Host, two: Host, stream: MemoryStream, number: int
) -> None:
    die_moving_a_family(one, stream, number)
    is_moved = one.disk.settle_move("p", "q", KEY)
    # Both are at q in the journal, and p is gone, with the fourth message.
    assert is_moved is (number == 4)
    there, gone = ("q", "p") if is_moved else ("p", "q")
    for host in (one, two):
        assert (read(host, there), read(host, f"{there}/c")) == (line("above"), line("below"))
        assert (read(host, gone), read(host, f"{gone}/c")) == (None, None)
        two.now += 100.0


def test_a_rename_that_the_successor_of_its_host_has_seen_takes_place(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 2)
    two.now += 100.0
    write(two, "q", "theirs")
    assert one.disk.settle_move("p", "q", KEY)
    assert read(one, "p") is None
    one.now += 100.0
    assert read(one, "q") == line("above") + line("theirs")


def test_a_session_that_was_handed_over_is_not_taken_back(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 0)
    write(two, "q", "theirs")
    two.ownership.release_to("q", one.hosts.owner)
    assert not one.disk.settle_move("p", "q", KEY)
    assert read(one, "q") == line("theirs")


def test_a_session_that_was_opened_at_its_new_place_since_stays(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 1)
    write(one, "q", "more")
    assert not one.disk.settle_move("p", "q", KEY)
    two.now += 100.0
    assert read(two, "q") == line("above") + line("more")


def test_a_moved_session_stays_although_its_old_id_was_used_again(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 2)
    two.now += 100.0
    write(two, "p", "new")
    assert not one.disk.settle_move("p", "q", KEY)
    assert read(two, "p") == line("new")
    assert read(one, "q") == line("above")
    one.now += 100.0
    assert read(one, "p") == line("new")


def test_an_id_that_another_host_took_is_not_where_a_session_moved(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    write(two, "q", "theirs")
    with ending_before_the_disk_moves(one):
        delete(one, "p")
    assert not one.disk.settle_move("p", "q", KEY)
    assert read(one, "p") == line("above")
    assert read(two, "q") == line("theirs")


def test_a_restoration_that_was_cut_short_is_taken_back(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    delete(one, "p")
    tree = one.disk.open_root(one.tree)
    trash = one.disk.open_folder(tree, ".trash")
    with ending_before_the_disk_moves(one):
        one.disk.move(trash, "p", tree, "p")
    assert not one.disk.settle_move(".trash/p", "p", KEY)
    assert read(one, "p") is None
    two.now += 100.0
    assert read(two, "p") is None


# --- moves that a repeat at another host finishes -----------------------------------------------


def repeat(host: Host) -> None:
    """Do the rename of p to q under its key, as a daemon does that another one may have begun."""
    host.ownership.acquire("p")
    if not host.disk.moves.renamed_elsewhere("p", "q", KEY):
        host.ownership.acquire("q")
        rename(host, "p")


AT_Q = {"p": None, "p/c": None, "q": line("above"), "q/c": line("below")}


def die_moving_a_family(host: Host, stream: MemoryStream, number: int) -> None:
    """As `cut_short`, with the session p/c below p."""
    write(host, "p", "above")
    write(host, "p/c", "below")
    cut_short(host, stream, number)


def at_each_place(host: Host) -> dict[str, bytes | None]:
    return {session: read(host, session) for session in ("p", "p/c", "q", "q/c")}


@pytest.mark.parametrize("number", range(5))
def test_a_rename_that_was_cut_short_is_finished_by_its_repeat_at_another_host(
    one: Host, two: Host, stream: MemoryStream, number: int
) -> None:
    die_moving_a_family(one, stream, number)
    two.now += 100.0
    for _ in range(2):
        repeat(two)
        assert at_each_place(two) == AT_Q
    two.hosts.tell_alive()
    one.disk.settle_move("p", "q", KEY)
    one.now += 100.0
    for host in (one, two):
        repeat(host)
        assert at_each_place(host) == AT_Q
        two.now += 100.0


def test_what_a_rename_publishes_names_its_command_until_the_session_is_changed(
    one: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    write(one, "p/c", "below")
    rename(one, "p")
    last = {folder: stream.last("", folder) for folder in stream.folders("")}
    assert {folder: (each.kind, each.move, each.body) for folder, each in last.items() if each} == {
        "p": (Kind.GONE, KEY, b"q"),
        "p/c": (Kind.GONE, KEY, b"q/c"),
        "q": (Kind.CHANGE, KEY, last["q"].body if last["q"] else b""),
        "q/c": (Kind.CHANGE, KEY, last["q/c"].body if last["q/c"] else b""),
    }
    write(one, "q", "more")
    changed = stream.last("", "q")
    assert changed is not None
    assert changed.move == ""


def test_a_session_at_the_new_id_that_no_rename_brought_stays(one: Host, two: Host) -> None:
    write(one, "p", "above")
    write(one, "q", "another session")
    two.now += 100.0
    assert not two.disk.moves.renamed_elsewhere("p", "q", KEY)
    assert read(two, "q") == line("another session")


def test_what_another_host_left_at_the_new_place_is_not_taken_back(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    # p/c is at q/c alone then, and its last message is of the first host.
    die_moving_a_family(one, stream, 3)
    two.now += 100.0
    repeat(two)
    assert not one.disk.settle_move("p", "q", KEY)
    assert read(two, "q/c") == line("below")


def test_a_rename_is_begun_again_by_its_first_host_if_the_second_one_dies_in_it(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    die_moving_a_family(one, stream, 3)
    two.now += 100.0
    assert not two.disk.moves.renamed_elsewhere("p", "q", KEY)
    one.now += 100.0
    assert not one.disk.settle_move("p", "q", KEY)
    repeat(one)
    assert at_each_place(one) == AT_Q


def test_a_rename_that_a_living_host_is_doing_is_left_to_it(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 1)
    one.hosts.tell_alive()
    with pytest.raises(Held):
        two.disk.moves.renamed_elsewhere("p", "q", KEY)
    assert kinds(stream) == {"p": Kind.CHANGE, "q": Kind.CHANGE}


def test_a_session_that_another_command_moved_away_was_not_renamed(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    rename(one, "p", "elsewhere")
    two.now += 100.0
    assert not two.disk.moves.renamed_elsewhere("p", "q", KEY)
    assert not two.disk.moves.renamed_elsewhere("p", "elsewhere", "another key")
    assert two.disk.moves.renamed_elsewhere("p", "elsewhere", KEY)
    assert two.disk.moves.deleted_elsewhere("p", KEY) is None


@pytest.fixture(params=["purged", "kept"])
def old_messages(
    request: pytest.FixtureRequest, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the servers remove the messages before that a folder is gone, as they are asked."""

    def fail(*_: object) -> None:
        raise JournalLost(None, "no majority")

    if request.param == "kept":
        monkeypatch.setattr(stream, "purge", fail)


@pytest.mark.usefixtures("old_messages")
def test_a_rename_that_its_own_host_finished_at_its_start_is_known_to_others(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 2)
    assert one.disk.settle_move("p", "q", KEY)
    two.now += 100.0
    assert two.disk.moves.renamed_elsewhere("p", "q", KEY)
    assert read(two, "q") == line("above")


@pytest.mark.usefixtures("old_messages")
def test_a_rename_that_another_host_finished_stays_known_when_its_first_host_is_back(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 1)
    two.now += 100.0
    repeat(two)
    two.hosts.tell_alive()
    assert not one.disk.settle_move("p", "q", KEY)
    # What the disk of the first host still has of p goes aside, and the others do not list it.
    Path(one.tree, "p", "context.mark").write_bytes(b"{}")
    assert read(one, "p") is None
    assert kinds(stream)["p"] is Kind.GONE
    assert [each.name for each in Path(one.tree, "p").iterdir()] == ["quarantine"]
    assert one.disk.moves.renamed_elsewhere("p", "q", KEY)
    messages = stream.folders("")
    assert read(one, "p") is None
    assert stream.folders("") == messages


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_session_is_gone_although_nobody_answers_who_says_so(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 1)
    two.now += 100.0
    repeat(two)
    original = stream.publish

    def publish(host: str, publication: Publication) -> int | OSError:
        if publication.kind is not Kind.GONE:
            return original(host, publication)
        if is_stored:
            original(host, publication)
        return InDoubt(None, "the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(stream, "publish", publish)
        with pytest.raises(JournalLost):
            read(one, "p")
    assert read(one, "p") is None
    assert kinds(stream)["p"] is Kind.GONE
    assert two.disk.moves.renamed_elsewhere("p", "q", KEY)


def test_an_id_whose_old_files_are_here_can_be_used_again(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "p", "above")
    cut_short(one, stream, 1)
    two.now += 100.0
    repeat(two)
    assert one.ownership.writable("p").is_new
    write(one, "p", "new")
    assert read(one, "p") == line("new")


@pytest.mark.parametrize("is_published", [True, False])
def test_a_deletion_is_answered_by_another_host_and_taken_back_by_none(
    one: Host, two: Host, *, is_published: bool
) -> None:
    write(one, "p", "above")
    if is_published:
        with ending_before_the_disk_moves(one):
            delete(one, "p")
    two.now += 100.0
    assert two.disk.moves.deleted_elsewhere("p", KEY) == (".trash/p" if is_published else None)
    if not is_published:
        delete(two, "p")
    two.hosts.tell_alive()
    for host in (one, two):
        assert read(host, "p") is None
        assert host.disk.moves.deleted_elsewhere("p", KEY) == ".trash/p"


def test_a_deletion_that_nobody_answered_is_done_again_by_its_own_host(
    one: Host, two: Host
) -> None:
    write(one, "p", "above")
    with ending_before_the_disk_moves(one):
        delete(one, "p")
    assert one.disk.moves.deleted_elsewhere("p", KEY) is None
    assert read(one, "p") == line("above")
    # Another host does not take it for done either.
    two.now += 100.0
    assert two.disk.moves.deleted_elsewhere("p", KEY) is None
    assert read(two, "p") == line("above")
    one.now += 200.0
    delete(one, "p")
    assert Path(one.tree, ".trash", "p", "context.jsonl").exists()


def test_a_session_of_a_deleted_id_outlives_a_repeat_of_the_deletion(one: Host, two: Host) -> None:
    write(one, "p", "above")
    delete(one, "p")
    write(two, "p", "new")
    assert two.disk.moves.deleted_elsewhere("p", KEY) == ".trash/p"
    assert read(two, "p") == line("new")

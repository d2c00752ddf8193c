"""A stream that went back to an old copy: the newest files of the hosts come into it again."""

import copy
import itertools
import shutil
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from steno_protocol import paths
from steno_protocol.errors import (
    BadRequest,
    Exists,
    Held,
    NotFound,
    StenoError,
    StorageFailed,
)
from stenod_cluster import limits
from stenod_cluster.journal import (
    Fenced,
    ForeignStream,
    JournalLost,
    Kind,
    Publication,
    host_of_notes,
    subject_of_name,
    subject_of_notes,
)
from support.cluster_commands import ClusterCommands
from support.memory_journal import MemoryJournal, MemoryStream
from support.replicated import Host, line


def write(host: Host, session: str, text: str, *, create: bool = True) -> None:
    log = host.open(session, create=create).log
    log.append(line(text))
    log.sync()
    host.close()


def content(host: Host, session: str) -> bytes:
    host.ownership.acquire(session)
    return host.content(session)["context.jsonl"]


class Copied:
    """An old copy of the servers' disks."""

    def __init__(self, stream: MemoryStream) -> None:
        self._messages = copy.deepcopy(stream._messages)
        self._sequence = stream._sequence

    def restore(self, stream: MemoryStream, *hosts: Host) -> None:
        """Bring it back, and let hosts join it again; each of them is a new process."""
        stream._messages, stream._sequence = self._messages, self._sequence + 1
        stream.began, stream.identity = stream._sequence, "stream-2-again"
        for host in hosts:
            host.start()
            host.ownership.is_joining = True


@pytest.fixture
def three(stream: MemoryStream, tmp_path: Path) -> Host:
    """A host that has seen nothing."""
    return Host(stream, "three", str(tmp_path / "three" / "sessions"))


def test_a_session_is_shipped_again_over_an_old_copy(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    write(one, "s", "old")
    before = Copied(stream)
    write(one, "s", "new")
    before.restore(stream, one, two)
    with pytest.raises((Held, StorageFailed)):
        two.ownership.acquire("s")
    two.now += 100.0
    with pytest.raises(StorageFailed, match="steno restart"):
        two.ownership.acquire("s")
    wanted = line("old") + line("new")
    assert content(one, "s") == wanted
    for host in (two, three):
        host.now += 200.0
        assert content(host, "s") == wanted
    write(three, "s", "newest")
    assert not list(Path(one.tree, "s").glob("quarantine/*"))


def test_the_last_owner_ships_a_session_that_the_old_copy_has_of_another_host(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    write(one, "s", "old")
    before = Copied(stream)
    one.ownership.release_to("s", two.hosts.owner)
    write(two, "s", "new")
    before.restore(stream, one, two)
    with pytest.raises(BadRequest, match="ipc:///two"):
        one.ownership.acquire("s")
    wanted = line("old") + line("new")
    one.hosts.tell_alive()
    assert content(two, "s") == wanted
    for host in (one, three):
        host.now += 200.0
        assert content(host, "s") == wanted


def hand_over(one: Host, two: Host) -> None:
    one.ownership.release_to("s", two.hosts.owner)


def take(one: Host, two: Host) -> None:
    """A host takes over from another one that it does not hear, and that hears it."""
    del one
    two.now += 100.0
    two.ownership.acquire("s")


@contextmanager
def lost_at(stream: MemoryStream, number: int, *hosts: Host) -> Generator[Callable[[], bool]]:
    """Let hosts lose the servers at one of their messages and words; yields whether they did."""
    left = number

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                for host in hosts:
                    stream.partition(host.name)
            # The look of each host may be due at any time.
            for host in hosts:
                with suppress(JournalLost):
                    host.ownership.look_for_losses()
            return act(*arguments)

        return counting

    with pytest.MonkeyPatch.context() as patch:
        for name in ("publish", "announce"):
            patch.setattr(stream, name, counted(getattr(stream, name)))
        yield lambda: left < 0
    for host in hosts:
        host.close()
        stream.heal(host.name)


Change = Callable[[Host, Host], None]


def lose_everywhere(folder: Path, change: Change, *, has_old: bool, is_turned: bool) -> None:
    """Lose the servers at each message while a session gets another owner, and look for it.

    Args:
        folder: where the hosts' disks are.
        change: gives it another owner.
        has_old: the stream that the hosts join is an old copy, which has the session.
        is_turned: the new owner joins first.
    """
    for number in itertools.count():
        stream = MemoryStream()
        one, two = (
            Host(stream, name, str(folder / f"{number}" / name / "sessions"))
            for name in ("one", "two")
        )
        before = Copied(stream)
        write(one, "s", "old")
        before = Copied(stream) if has_old else before
        write(one, "s", "new")
        wanted = line("old") + line("new")
        with lost_at(stream, number, one, two) as is_lost, suppress(OSError, StenoError):
            change(one, two)
            write(two, "s", "newest")
            wanted += line("newest")
        before.restore(stream, one, two)
        # Each host joins, and is told of what another one has to bring first; then both restart.
        for is_joining in (True, False):
            for host in (two, one) if is_turned else (one, two):
                host.now += 100.0
                host.start()
                host.ownership.is_joining = is_joining
                host.now += 100.0
                with suppress(Held, BadRequest, StorageFailed, FileNotFoundError):
                    # The clients do not wait until all hosts are there.
                    write(host, "s", "after", create=False)
                host.close()
        for host in (one, two):
            host.now += 200.0
            found = content(host, "s")
            assert found.startswith(wanted), f"lost at {number}: {host.name} has {found!r}"
        if not is_lost():
            assert wanted.endswith(line("newest"))
            assert number > 3
            return


@pytest.mark.parametrize("change", [hand_over, take])
@pytest.mark.parametrize("has_old", [True, False])
@pytest.mark.parametrize("is_turned", [True, False])
def test_a_stream_that_is_lost_while_a_session_gets_another_owner_hides_nothing_of_it(
    tmp_path: Path, change: Change, *, has_old: bool, is_turned: bool
) -> None:
    lose_everywhere(tmp_path, change, has_old=has_old, is_turned=is_turned)


@pytest.mark.parametrize("change", [hand_over, take])
@pytest.mark.parametrize(
    ("kinds", "is_turned"),
    [
        # A copy counts as an old one before another host has the files.
        ({Kind.OWN: Kind.CHANGE, Kind.CHANGE: Kind.CHANGE}, True),
        # No copy ever counts as an old one.
        ({Kind.OWN: Kind.OWN, Kind.CHANGE: Kind.OWN}, False),
    ],
)
def test_a_session_is_hidden_without_the_order_of_the_notes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    kinds: dict[Kind, Kind],
    *,
    is_turned: bool,
) -> None:
    note_taken = MemoryJournal.note_taken

    def noted(journal: MemoryJournal, *note: Any) -> None:
        *note_, kind = note
        note_taken(journal, *note_, kinds[kind])

    monkeypatch.setattr(MemoryJournal, "note_taken", noted)
    with pytest.raises((AssertionError, BadRequest)):
        lose_everywhere(tmp_path, change, has_old=True, is_turned=is_turned)


def test_a_session_whose_new_host_lost_it_joins_from_the_host_that_gave_it(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    one.ownership.release_to("s", two.hosts.owner)
    shutil.rmtree(Path(two.tree, "s"))
    before.restore(stream, one, two)
    assert two.ownership.acquire("s") is None
    with pytest.raises(BadRequest, match="run `steno restart` here once all other hosts"):
        one.ownership.acquire("s")
    one.start()
    assert content(one, "s") == line("1")


def lose_newest(one: Host, two: Host, three: Host, before: "Copied", stream: MemoryStream) -> None:
    """Let two hosts have older copies of a session each, and lose the third, and the stream."""
    write(one, "s", "1")
    for giver, taker, text in ((one, two, "2"), (two, three, "3")):
        giver.ownership.release_to("s", taker.hosts.owner)
        write(taker, "s", text)
    shutil.rmtree(Path(three.tree, "s"))
    before.restore(stream, one, two, three)
    for host in (one, two):
        with pytest.raises(BadRequest, match="are on the host of ipc:///three: run"):
            host.ownership.acquire("s")


def test_of_older_copies_the_longest_comes_back_once_all_hosts_have_joined(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    lose_newest(one, two, three, Copied(stream), stream)
    for host in (one, two, three):
        host.start()
    assert content(one, "s") == line("1")
    wanted = line("1") + line("2")
    # Whoever owns it, the files that begin with the others win.
    assert content(two, "s") == wanted
    three.now += 200.0
    assert content(three, "s") == wanted
    one.hosts.tell_alive()
    one.now += 200.0
    assert content(one, "s") == wanted
    assert not any(Path(host.tree, "s-kept-1").exists() for host in (one, two, three))


def test_an_older_copy_that_differs_from_one_that_clients_changed_is_kept_beside_it(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    lose_newest(one, two, three, Copied(stream), stream)
    for host in (one, two):
        host.start()
    write(one, "s", "other")
    two.now += 200.0
    assert content(two, "s") == line("1") + line("other")
    assert content(two, "s-kept-1") == line("1") + line("2")


def test_an_older_copy_waits_while_the_newest_one_joins_in_parts(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    one.ownership.release_to("s", two.hosts.owner)
    write(two, "s", "2")
    before.restore(stream, one, two)
    monkeypatch.setattr(limits, "JOURNAL_BODY_BYTES_MAX", 150)
    monkeypatch.setattr(limits, "JOURNAL_DATA_BYTES_MAX", 50)
    store, refused = MemoryStream._store, list[BadRequest]()

    def store_and_look(stored_in: MemoryStream, each: Publication, *more: Any) -> Any:
        outcome = store(stored_in, each, *more)
        if each.kind is Kind.PART and each.owner.host == "two":
            with pytest.raises(BadRequest, match="are on the host of ipc:///two") as error:
                one.ownership.acquire("s")
            refused.append(error.value)
        return outcome

    monkeypatch.setattr(MemoryStream, "_store", store_and_look)
    assert content(two, "s") == line("1") + line("2")
    assert refused
    one.now += 200.0
    assert content(one, "s") == line("1") + line("2")
    assert stream.names() == ["s"]


def test_an_older_copy_that_differs_is_kept_beside_it_while_hosts_join_too(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    # The first host is cut off, and knows of no later owner.
    stream.partition("one")
    two.now += 100.0
    write(two, "s", "2")
    two.ownership.release_to("s", three.hosts.owner)
    write(three, "s", "3")
    stream.heal("one")
    shutil.rmtree(Path(three.tree, "s"))
    before.restore(stream, one, two, three)
    write(one, "s", "other")
    two.now += 200.0
    # Whether the host that took it over has it is not known before all are there.
    content(two, "s")
    for host in (one, two, three):
        host.start()
        host.now += 400.0
        assert content(host, "s") == line("1") + line("other")
        assert content(host, "s-kept-1") == line("1") + line("2")
        assert not list(Path(host.tree).rglob("quarantine"))


def test_a_line_that_was_refused_to_a_stale_owner_makes_no_session_beside_the_newest_one(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    stale = one.open("s").log
    stream.partition("one")
    two.now += 100.0
    write(two, "s", "2")
    stream.heal("one")
    stale.append(line("refused"))
    with pytest.raises(Fenced):
        stale.sync()
    one.ownership.look_for_losses()
    before.restore(stream, one, two)
    assert content(two, "s") == line("1") + line("2")
    one.now += 200.0
    assert content(one, "s") == line("1") + line("2")
    assert stream.names() == ["s"]
    (aside,) = Path(one.tree, "s", "quarantine").iterdir()
    assert aside.read_bytes() == line("1") + line("refused")


def test_an_older_copy_of_a_session_whose_owner_lives_leaves_it_the_session(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    write(one, "s", "1")
    one.ownership.release_to("s", two.hosts.owner)
    write(two, "s", "2")
    before = Copied(stream)
    before.restore(stream, one, three)
    for host in (one, three):
        host.start()
        host.now += 200.0
    # The host that had the newest files is dead, and this one has none.
    assert content(three, "s") == line("1") + line("2")
    three.hosts.tell_alive()
    with pytest.raises(Held):
        one.ownership.acquire("s")


def test_an_older_copy_waits_for_the_newest_one_in_a_stream_that_no_host_joined_again(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    one.ownership.release_to("s", two.hosts.owner)
    before.restore(stream, one, two)
    # One of another cluster.
    stream.identity = "stream-3"
    for host in (one, two):
        host.start()
        assert not host.ownership.is_joining
    with pytest.raises(BadRequest, match="are on the host of ipc:///two") as refused:
        one.ownership.acquire("s")
    assert content(two, "s") == line("1")
    with pytest.raises(Held):
        one.ownership.acquire("s")
    assert f"remove {one.tree}/s/journal.mark and join again" in refused.value.message


def test_a_session_that_was_restored_since_the_old_copy_comes_back(
    one: Host, three: Host, stream: MemoryStream
) -> None:
    write(one, "s", "old")
    ClusterCommands(one).delete("s", "d", 1000)
    before = Copied(stream)
    ClusterCommands(one).undelete("s", "u", 1001)
    write(one, "s", "new")
    before.restore(stream, one)
    three.now += 100.0
    for host in (one, three):
        host.now += 100.0
        assert content(host, "s") == line("old") + line("new")


def test_a_stale_copy_of_a_session_that_was_deleted_does_not_come_back_with_an_old_copy(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "s", "old")
    two.now += 100.0
    with monkeypatch.context() as patched:
        patched.setattr(stream, "announce", lambda *_: None)
        ClusterCommands(two).delete("s", "d", 1000)
    before = Copied(stream)
    before.restore(stream, one, two)
    assert one.ownership.acquire("s") is None
    assert not Path(one.tree, "s", "context.jsonl").exists()


def test_a_copy_from_before_a_loss_does_not_come_back_after_the_next_one(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Copied(stream)
    write(one, "s", "old")
    two.now += 100.0
    with monkeypatch.context() as patched:
        # The first host was dead meanwhile.
        patched.setattr(stream, "announce", lambda *_: None)
        patched.setattr(MemoryJournal, "note_taken", lambda *_: None)
        write(two, "s", "new")
    empty.restore(stream, two)
    assert content(two, "s") == line("old") + line("new")
    two.ownership.is_joining = False
    ClusterCommands(two).rename("s", "r", "k", 1000.0)
    one.start()
    for path in list(one.ownership.copies.stale()):
        one.ownership.tidy(path)
    Copied(MemoryStream()).restore(stream, one, two)
    stream.identity = "stream-3-again"
    assert one.ownership.acquire("s") is None
    assert content(two, "r") == line("old") + line("new")


def test_a_shipping_that_died_is_done_again(
    one: Host, three: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "s", "old")
    before = Copied(stream)
    write(one, "s", "new")
    before.restore(stream, one)

    def die(*_: object) -> None:
        raise OSError("died")

    with monkeypatch.context() as patched:
        patched.setattr(one.ownership, "_shipped", die)
        with pytest.raises(OSError, match="died"):
            one.ownership.acquire("s")
    one.start()
    assert content(one, "s") == line("old") + line("new")
    three.now += 200.0
    assert content(three, "s") == line("old") + line("new")


def test_what_another_host_wrote_since_is_not_shipped_over(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "s", "old")
    before = Copied(stream)
    write(one, "s", "new")
    before.restore(stream, one)
    two.start()
    two.now += 100.0
    write(two, "s", "other")
    one.now += 200.0
    assert content(one, "s") == line("old") + line("other")
    for host in (one, two):
        host.now += 200.0
        assert content(host, "s-kept-1") == line("old") + line("new")
    assert not Path(one.tree, "s", "quarantine").exists()


def test_the_last_owner_ships_over_what_another_host_took_and_left_as_it_was(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "s", "old")
    before = Copied(stream)
    write(one, "s", "new")
    before.restore(stream, one)
    two.start()
    two.now += 100.0
    two.ownership.acquire("s")
    one.start()
    one.now += 200.0
    one.ownership.look_for_losses()
    assert content(one, "s") == line("old") + line("new")


def test_a_note_of_an_earlier_takeover_says_nothing_of_a_session_that_came_back(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "s", "1")
    for host, text in ((two, "2"), (one, "3")):
        host.now += 100.0
        write(host, "s", text)
    one.start()
    one.ownership.look_for_losses()
    stream._messages.clear()
    stream.identity = "stream-2-again"
    one.start()
    assert content(one, "s") == line("1") + line("2") + line("3")


def test_a_note_of_a_takeover_that_failed_says_nothing_after_a_restart(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    write(one, "s", "1")
    two.journal.note_taken("s", "one", two.hosts.owner, Kind.OWN)
    write(one, "s", "2")
    one.ownership.look_for_losses()
    one.start()
    one.ownership.look_for_losses()
    stream._messages.clear()
    stream.identity = "stream-2-again"
    one.start()
    assert content(one, "s") == line("1") + line("2")


def test_a_session_that_was_copied_and_then_taken_over_by_a_host_that_died_is_not_hidden(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    two.ownership.follow("s")
    two.now += 100.0
    note_taken = MemoryJournal.note_taken

    def unheard(made: MemoryJournal, *note: Any) -> None:
        if note[-1] is Kind.CHANGE:
            raise JournalLost(None, "no majority")
        note_taken(made, *note)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryJournal, "note_taken", unheard)
        with pytest.raises(JournalLost):
            two.ownership.acquire("s")
    two.start()
    two.now += 100.0
    write(two, "s", "2")
    one.ownership.look_for_losses()
    before.restore(stream, one, two)
    with pytest.raises(BadRequest, match="ipc:///two"):
        one.ownership.acquire("s")
    assert content(two, "s") == line("1") + line("2")


# --- the order in which hosts join ----------------------------------------------------------------

NAMES = ("one", "two", "three")
FAMILY = ("s", "s/child")


class Lost:
    """Three hosts that owned a session one after another.

    Args:
        folder: where the hosts' disks are.
        has_old: the stream that they join is an old copy, which has the session.
        has_marks: their copies have their marks.
        is_heard: each former owner knows of the later one.
    """

    def __init__(
        self, folder: Path, *, has_old: bool, has_marks: bool = True, is_heard: bool = False
    ) -> None:
        self.stream = MemoryStream()
        self.hosts = [Host(self.stream, name, str(folder / name / "sessions")) for name in NAMES]
        before = Copied(self.stream)
        # One that knows of a later owner waits for it.
        self._also_refused = (BadRequest,) if is_heard else ()
        self.texts = list[str]()
        with pytest.MonkeyPatch.context() as patch:
            if not is_heard:
                # Each former owner is dead, or cut off.
                patch.setattr(self.stream, "announce", lambda *_: None)
                patch.setattr(MemoryJournal, "note_taken", lambda *_: None)
            for host in self.hosts:
                host.now += 100.0
                for session in ("s", "s/child"):
                    write(host, session, host.name)
                self.texts.append(host.name)
                if has_old and host is self.hosts[0]:
                    before = Copied(self.stream)
        if not has_marks:
            for host in self.hosts:
                for mark in Path(host.tree).rglob("journal.mark"):
                    mark.unlink()
        before.restore(self.stream, *self.hosts)

    def join(self, order: Sequence[int], write_after: str = "") -> None:
        """Let the hosts join one after another, and each begin again behind that."""
        for is_joining in (True, False):
            for host in [self.hosts[number] for number in order]:
                host.start()
                host.ownership.is_joining = is_joining
                for session in sorted(host.ownership.copies.here()):
                    with suppress(Held, StorageFailed, *self._also_refused):
                        host.ownership.acquire(session)
                    if write_after and is_joining and session == "s":
                        with suppress(Held, StorageFailed):
                            write(host, session, write_after)
                            self.texts.append(write_after)
                            write_after = ""

    def judge(self, wanted: dict[str, bytes]) -> None:
        """Compare the sessions of all hosts with what is wanted."""
        for host in self.hosts:
            host.now += 1000.0
            found = {
                name: content(host, name)
                for name in self.stream.names()
                if host.ownership.acquire(name) is not None
            }
            assert found == wanted, host.name
            assert not list(Path(host.tree).rglob("quarantine")), host.name


@pytest.mark.parametrize("has_marks", [True, False])
@pytest.mark.parametrize("has_old", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_in_which_hosts_join_does_not_decide_what_is_visible(
    tmp_path: Path, order: Sequence[int], *, has_old: bool, has_marks: bool
) -> None:
    lost = Lost(tmp_path, has_old=has_old, has_marks=has_marks)
    lost.join(order)
    newest = b"".join(map(line, NAMES))
    lost.judge({"s": newest, "s/child": newest})


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("has_old", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_in_which_hosts_join_does_not_decide_which_older_copy_comes_back(
    tmp_path: Path, order: Sequence[int], number: int, *, has_old: bool
) -> None:
    lost = Lost(tmp_path, has_old=has_old, is_heard=True)
    shutil.rmtree(Path(lost.hosts[number].tree, "s"))
    lost.join(order)
    newest = b"".join(map(line, NAMES[:2] if number == 2 else NAMES))
    lost.judge({"s": newest, "s/child": newest})


@pytest.mark.parametrize("has_old", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_what_differs_from_the_journal_is_a_session_of_its_own_in_any_order(
    tmp_path: Path, order: Sequence[int], *, has_old: bool
) -> None:
    lost = Lost(tmp_path, has_old=has_old)
    lost.join(order, "after")
    newest = [line(name) for name in NAMES]
    first = NAMES[: order[0] + 1]
    wanted = {"s": b"".join(map(line, [*first, "after"])), "s/child": b"".join(newest)}
    # A host whose copy is a beginning of what the journal has brings nothing.
    beside = list[bytes]()
    for number in order[1:]:
        if number > order[0]:
            beside.append(b"".join(newest[: number + 1]))
    wanted |= {f"s-kept-{number}": found for number, found in enumerate(beside, 1)}
    lost.judge(wanted)


def test_a_host_that_is_overtaken_while_it_takes_a_session_knows_that_its_copy_is_old(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    take(one, two)
    one.ownership.look_for_losses()
    read = one.journal.read

    def overtaken(subject: str, *places: int) -> Any:
        if host_of_notes(subject) is not None:
            yield from read(subject, *places)
            return
        monkeypatch.undo()
        yield from read(subject, *places)
        two.ownership.lose("s", one.hosts.owner)
        two.ownership.forget("s")
        two.now += 100.0
        write(two, "s", "2")
        one.ownership.look_for_losses()

    one.now += 100.0
    with monkeypatch.context() as patch:
        patch.setattr(one.journal, "read", overtaken)
        with pytest.raises(Held, match="ipc:///two"):
            one.ownership.acquire("s")
    before.restore(stream, one, two)
    with pytest.raises(BadRequest, match="ipc:///two"):
        one.ownership.acquire("s")
    assert content(two, "s") == line("1") + line("2")


def test_a_host_that_dies_while_it_handles_its_notes_handles_them_at_its_next_start(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "s", "1")
    two.now += 100.0
    with monkeypatch.context() as patch:
        patch.setattr(stream, "announce", lambda *_: None)
        write(two, "s", "2")

    def die(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(one.ownership, "lose", die)
        with pytest.raises(InterruptedError):
            one.ownership.look_for_losses()
    one.start()
    one.ownership.look_for_losses()
    mark = one.ownership.copies.mark("s")
    assert mark is not None
    assert mark.is_left
    assert stream.last("one", subject_of_notes("one")) is None


def test_a_takeover_that_dies_between_its_notes_leaves_one_host_that_brings_the_session(
    one: Host, two: Host, three: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    for host in (two, three):
        host.now += 100.0
        write(host, "s", host.name)
        for each in (one, two, three):
            each.ownership.look_for_losses()
    # The first one's copy counts as an old one, and its next takeover has two hosts to note.
    note_taken = MemoryJournal.note_taken
    noted: list[str] = []

    def unheard(made: MemoryJournal, *note: Any) -> None:
        if note[-1] is Kind.CHANGE:
            if noted:
                raise JournalLost(None, "no majority")
            noted.append(note[1])
        note_taken(made, *note)

    one.now += 200.0
    with monkeypatch.context() as patch:
        patch.setattr(MemoryJournal, "note_taken", unheard)
        with pytest.raises(JournalLost):
            one.ownership.acquire("s")
    assert noted
    for host in (two, three):
        host.ownership.look_for_losses()
    before.restore(stream, one, two, three)
    for host in (three, two, one):
        with suppress(BadRequest, Held):
            host.ownership.acquire("s")
    for host in (one, two, three):
        host.now += 1000.0
        assert content(host, "s") == line("1") + line("two") + line("three")


def test_a_session_whose_creation_was_refused_leaves_nothing_to_join(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "publish", lambda *_: JournalLost(None, "no majority"))
        with pytest.raises(JournalLost):
            one.open("s")
    before.restore(stream, one)
    assert one.ownership.acquire("s") is None
    assert list(one.ownership.copies.here()) == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_nothing_leaves_its_place_because_of_what_another_stream_says(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    if is_deleted:
        ClusterCommands(one).delete("s", "k", 1000.0)
        before = Copied(stream)
        ClusterCommands(one).undelete("s", "l", 1000.0)
    one.ownership.forget("s")
    # The look at the stream comes later.
    stream._messages = before._messages

    def confirm() -> None:
        raise ForeignStream(None, "it was made again")

    monkeypatch.setattr(one.ownership.journal, "confirm", confirm)
    for use in (one.ownership.acquire, one.ownership.tidy):
        with pytest.raises(ForeignStream):
            use("s")
    assert Path(one.tree, "s", "context.jsonl").read_bytes() == line("1")


def test_a_copy_that_was_left_goes_when_its_session_joins_under_another_name(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    take(one, two)
    one.ownership.look_for_losses()
    with monkeypatch.context() as patch:
        patch.setattr(stream, "announce", lambda *_: None)
        ClusterCommands(two).rename("s", "r", "k", 1000.0)
    before.restore(stream, one, two)
    assert content(two, "r") == line("1")
    assert list(one.ownership.copies.stale()) == ["s"]
    one.ownership.tidy("s")
    assert list(one.ownership.copies.here()) == []


def test_a_session_of_which_nothing_was_acknowledged_waits_until_all_hosts_are_there(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "publish", lambda *_: JournalLost(None, "no majority"))
        with pytest.raises(JournalLost):
            one.open("s")
    Path(one.tree, "s", "context.jsonl").write_bytes(line("refused"))
    write(two, "s", "1")
    before.restore(stream, one, two)
    with pytest.raises(StorageFailed, match="steno restart"):
        one.ownership.acquire("s")
    assert content(two, "s") == line("1")
    one.start()
    one.now += 200.0
    assert content(one, "s") == line("1")
    assert stream.names() == ["s"]


def test_a_host_that_left_a_session_opens_it_once_the_newest_host_joined_with_nothing_new(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    write(one, "s", "1")
    for host in (two, three):
        host.now += 100.0
        write(host, "s", host.name)
        for each in (one, two, three):
            each.ownership.look_for_losses()
    three.close()
    # The old copy has all of it, and the hosts that left it cannot know.
    Copied(stream).restore(stream, one, two, three)
    for host in (one, two):
        with pytest.raises(BadRequest, match="ipc:///three"):
            host.ownership.acquire("s")
    three.ownership.acquire("s")
    for host in (one, two, three):
        host.start()
        host.now += 1000.0
        assert content(host, "s") == line("1") + line("two") + line("three")


def test_a_session_that_did_not_join_moves_with_the_one_above_it(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    for session in ("s", "s/child"):
        write(one, session, "1")
    two.now += 100.0
    two.ownership.acquire("s")
    one.ownership.look_for_losses()
    before.restore(stream, one, two)
    content(two, "s")
    one.ownership.follow("s")
    two.start()
    two.now += 100.0
    with monkeypatch.context() as patch:
        patch.setattr(stream, "announce", lambda *_: None)
        write(two, "s/child", "another one")
        ClusterCommands(two).delete("s/child", "d", 1000)
        ClusterCommands(two).rename("s", "r", "k", 1000.0)
    one.ownership.tidy("s")
    assert content(one, "r/child") == line("1")


# --- families that were deleted and restored ------------------------------------------------------


class LostFamily:
    """A family that hosts wrote, deleted, restored and wrote again, before the stream was lost.

    Args:
        folder: where the hosts' disks are.
        steps: `write`, `delete` and `undelete`, in order.
        actors: the host of each step.
        moment: the number of steps that the old copy has.
        is_heard: the hosts hear what the others do.
    """

    def __init__(
        self, folder: Path, steps: Sequence[str], actors: Sequence[int], moment: int, *,
        is_heard: bool,
    ) -> None:  # fmt: skip
        self.stream = MemoryStream()
        self.hosts = [Host(self.stream, name, str(folder / name / "sessions")) for name in NAMES]
        self.lines = list[bytes]()
        self._steps = steps
        before = Copied(self.stream)
        with pytest.MonkeyPatch.context() as patch:
            if not is_heard:
                patch.setattr(self.stream, "announce", lambda *_: None)
                patch.setattr(MemoryJournal, "note_taken", lambda *_: None)
            for number, host in enumerate(self.hosts[each] for each in actors[: len(steps)]):
                if not is_heard:
                    host.start()
                host.now += 100.0
                self._act(host, number)
                for each in self.hosts:
                    each.close()
                    each.ownership.look_for_losses()
                if number + 1 == moment:
                    before = Copied(self.stream)
        before.restore(self.stream, *self.hosts)

    def _act(self, host: Host, number: int) -> None:
        if self._steps[number] == "write":
            for session in FAMILY:
                write(host, session, str(number))
            self.lines.append(line(str(number)))
        else:
            self._move(host, number)

    def _move(self, host: Host, number: int, now: float = 1000.0) -> None:
        commands, key = ClusterCommands(host), f"k{number}"
        act = {"delete": commands.delete, "undelete": commands.undelete}[self._steps[number]]
        commands.decided("s", key, lambda: act("s", key, now))

    def join(self, order: Sequence[int]) -> None:
        """Let the hosts join and begin again, while the client repeats the last step."""
        last = len(self._steps) - 1
        hosts = [self.hosts[number] for number in order]
        for is_joining in (True, False):
            for host in hosts:
                host.start()
                host.ownership.is_joining = is_joining
                for session in sorted(host.ownership.copies.here()):
                    with suppress(Held, StorageFailed, BadRequest):
                        host.ownership.acquire(session)
                if self._steps[last] != "write":
                    with suppress(Held, StorageFailed, BadRequest, NotFound, Exists):
                        self._move(host, last, 1500.0)
                host.close()
        answers = list[str]()
        for host in hosts:
            host.start()
            host.now += 1000.0
            for session in list(host.ownership.copies.stale()):
                host.ownership.tidy(session)
            if self._steps[last] != "write":
                try:
                    self._move(host, last, 1500.0)
                    answers.append("done")
                except (NotFound, Exists, BadRequest) as error:
                    # A host that lost the stream knows no more of the commands of others.
                    answers.append(type(error).__name__)
                host.close()
        assert "done" in answers or not answers, answers

    def judge(self) -> None:
        """All lines are there, and the family can be deleted and restored at each host."""
        is_deleted = self._steps[-1] == "delete"
        for host in self.hosts:
            host.now += 1000.0
            names = {*self.stream.names(), *self.stream.names(paths.TRASH)}
            found = {
                name: host.content(name)["context.jsonl"]
                for name in sorted(names)
                if host.ownership.acquire(name) is not None
            }
            assert all((session in found) != is_deleted for session in FAMILY), sorted(found)
            for wanted, ending in itertools.product(self.lines, ("s", "child")):
                its = [found[name] for name in found if name.endswith(ending) or "-kept-" in name]
                assert any(wanted in each for each in its), f"{host.name}: {found}"
            assert not list(Path(host.tree).rglob("quarantine")), host.name
            host.close()
        for number, host in enumerate(self.hosts):
            host.now += 1000.0
            commands = ClusterCommands(host)
            if not is_deleted:
                commands.delete("s", f"d{number}", 2000.0)
            commands.undelete("s", f"u{number}", 3000.0)
            is_deleted = False
            host.close()


@pytest.mark.parametrize("is_heard", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("actors", [(0, 1, 0, 2), (0, 1, 2, 0)])
def test_a_family_that_was_deleted_and_restored_is_whole_in_any_order(
    tmp_path: Path, actors: Sequence[int], order: Sequence[int], *, is_heard: bool
) -> None:
    for count in (2, 3, 4):
        steps = ("write", "delete", "undelete", "write")[:count]
        for moment in range(count + 1):
            lost = LostFamily(
                tmp_path / f"{count}-{moment}", steps, actors, moment, is_heard=is_heard
            )
            lost.join(order)
            lost.judge()


def test_what_is_kept_aside_at_an_id_goes_along_with_the_session_that_comes_there(
    one: Host,
) -> None:
    write(one, "s", "1")
    commands = ClusterCommands(one)
    commands.delete("s", "d", 1000.0)
    for folder in ("s", "s/child", "r"):
        kept = Path(one.tree, folder, "quarantine")
        kept.mkdir(parents=True)
        (kept / "context.jsonl.inode-1").write_bytes(line(folder))
    commands.undelete("s", "u", 1001.0)
    commands.rename("s", "r", "r", 1002.0)
    assert content(one, "r") == line("1")
    kept_now = [each.read_bytes() for each in Path(one.tree, "r").rglob("*.inode-1*")]
    assert sorted(kept_now) == [line("r"), line("s"), line("s/child")]


def delete_above(one: Host, two: Host, stream: MemoryStream) -> None:
    """Let a host delete a session while another one, which has one below it, has yet to join."""
    before = Copied(stream)
    for session in ("f", "f/other"):
        write(one, session, session)
    one.ownership.release_to("f", two.hosts.owner)
    write(two, "f", "more")
    before.restore(stream, one, two)
    content(two, "f")
    ClusterCommands(two).delete("f", "d", 1000)


def leads(stream: MemoryStream, name: str) -> bool:
    found = stream.last("", subject_of_name(name))
    return found is not None and found.kind is Kind.NAME


@pytest.mark.parametrize("is_together", [True, False])
def test_a_session_that_joins_while_the_one_above_it_is_put_away_is_at_one_place(
    one: Host,
    two: Host,
    stream: MemoryStream,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_together: bool,
) -> None:
    delete_above(one, two, stream)
    publish, tidied = MemoryJournal.publish, list[str]()

    def tidy_and_publish(journal: MemoryJournal, publications: Sequence[Publication]) -> Any:
        if publications[0].owner.host == "one" and not tidied:
            tidied.append("f")
            # The word that the session above is in the trash comes in another thread.
            thread = threading.Thread(target=one.ownership.tidy, args=["f"])
            thread.start()
            thread.join()
        return publish(journal, publications)

    monkeypatch.setattr(MemoryJournal, "publish", tidy_and_publish)
    if is_together:
        one.ownership.acquire_new(["f/other"])
    else:
        one.ownership.acquire("f/other")
    assert tidied
    for path in [*one.ownership.copies.here(), *one.ownership.copies.here(paths.TRASH)]:
        with suppress(Held):
            one.ownership.acquire(path)
    there = [name for name in stream.names() if name.endswith("/other")]
    leading = [name for name in there if leads(stream, name)]
    assert len(leading) == 1
    assert one.content(leading[0])["context.jsonl"] == line("f/other")


class Asked:
    """A lock that says when another thread asks for it while it is held."""

    def __init__(self) -> None:
        self.lock, self.in_vain = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            self.in_vain.set()
            self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_a_folder_is_not_used_at_its_old_place_while_it_is_moved(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_above(one, two, stream)
    moving, move = Asked(), one.local.move
    joining = threading.Thread(target=one.ownership.acquire_new, args=[["f/other"]])

    def move_while_one_joins(*names: Any) -> None:
        joining.start()
        assert moving.in_vain.wait(60)
        move(*names)

    monkeypatch.setattr(one.ownership.copies, "moving", moving)
    monkeypatch.setattr(one.local, "move", move_while_one_joins)
    one.ownership.tidy("f")
    joining.join()
    assert not leads(stream, "f/other")
    one.ownership.acquire(".trash/1000.d.f/other")
    assert one.content(".trash/1000.d.f/other")["context.jsonl"] == line("f/other")

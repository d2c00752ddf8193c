"""A stream that went back to an old copy: the newest files of the hosts come into it again."""

import copy
import itertools
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from steno_protocol.errors import BadRequest, Held, StenoError, StorageFailed
from stenod_cluster.journal import JournalLost, Kind
from support.cluster_commands import ClusterCommands
from support.memory_journal import MemoryStream
from support.replicated import Host, line


def write(host: Host, session: str, text: str) -> None:
    log = host.open(session).log
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
        stream.began, stream.identity = stream._sequence, "stream-2"
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
        for name in ("publish", "note_taken", "announce"):
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
                with suppress(BadRequest, StorageFailed, FileNotFoundError):
                    host.open("s", create=False)
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
    note_taken = MemoryStream.note_taken

    def noted(stream: MemoryStream, *note: Any) -> None:
        *note_, kind = note
        note_taken(stream, *note_, kinds[kind])

    monkeypatch.setattr(MemoryStream, "note_taken", noted)
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
    with pytest.raises(BadRequest, match="joined without the session, remove") as refused:
        one.ownership.acquire("s")
    mark = Path(one.tree, "s", "journal.mark")
    assert f"remove {mark} and" in refused.value.message
    mark.unlink()
    assert content(one, "s") == line("1")


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
        patched.setattr(stream, "note_taken", lambda *_: None)
        write(two, "s", "new")
    empty.restore(stream, two)
    assert content(two, "s") == line("old") + line("new")
    two.ownership.is_joining = False
    ClusterCommands(two).rename("s", "r", "k", 1000.0)
    one.start()
    for path in list(one.ownership.copies.stale()):
        one.ownership.tidy(path)
    Copied(MemoryStream()).restore(stream, one, two)
    stream.identity = "stream-3"
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
    (kept,) = Path(one.tree, "s", "quarantine").iterdir()
    assert line("new") in kept.read_bytes()


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
    stream.identity = "stream-2"
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
    stream.identity = "stream-2"
    one.start()
    assert content(one, "s") == line("1") + line("2")


def test_a_session_that_was_copied_and_then_taken_over_by_a_host_that_died_is_not_hidden(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Copied(stream)
    write(one, "s", "1")
    two.ownership.follow("s")
    two.now += 100.0
    note_taken = MemoryStream.note_taken

    def unheard(made: MemoryStream, *note: Any) -> None:
        if note[-1] is Kind.CHANGE:
            raise JournalLost(None, "no majority")
        note_taken(made, *note)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStream, "note_taken", unheard)
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

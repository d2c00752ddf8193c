"""Forks that refer to their source, and what a collection keeps of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from steno_protocol.errors import Held, NotFound
from steno_protocol.journal_entries import Append, decode_entries
from stenod.sessions import trash
from stenod.store.log import Copy
from stenod_cluster import disk, limits
from stenod_cluster.forks import Base, base_at_head
from stenod_cluster.journal import (
    Journal,
    JournalLost,
    Kind,
    Message,
    Publication,
    name_of_subject,
    subject_of_name,
)
from stenod_cluster.owned_folder import OwnedFolder
from support.cluster_commands import ClusterCommands
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host, line

LARGE = line("x" * 10_000)
"""A line that a fork does not publish again."""


@pytest.fixture
def three(stream: MemoryStream, tmp_path: Path) -> Host:
    """A host that has seen nothing."""
    return Host(stream, "three", str(tmp_path / "three" / "sessions"))


def write(host: Host, session: str, *texts: bytes) -> None:
    log = host.open(session).log
    for text in texts:
        log.append(text)
    log.sync()
    host.close()


def rewrite(host: Host, session: str, kept: bytes, text: bytes) -> None:
    log = host.open(session).log
    intent = b'{"kind":"reverted","generation":%d,"at":1.0,"details":{"next_id":0}}\n'
    log.replace([Copy(0, 0, len(kept)), text], intent % (log.generation + 1))
    host.close()


def fork(host: Host, source: str, session: str, at: str) -> None:
    try:
        ClusterCommands(host).fork(source, session, at, f"k-{session}", 1000.0)
    finally:
        host.close()


def delete(host: Host, session: str) -> str:
    """Delete a session; returns its name in the trash."""
    ClusterCommands(host).delete(session, f"d-{session}", 2000)
    return f".trash/2000.d-{session}.{session}"


def remove_for_good(host: Host, path: str) -> None:
    tree = host.disk.open_root(host.tree)
    try:
        trash.remove(host.disk, tree, path.removeprefix(".trash/"))
    finally:
        host.disk.close(tree)


def seen(host: Host, session: str) -> dict[str, bytes]:
    """A session's generations, on a host that owns it now."""
    host.now += 100.0
    host.ownership.acquire(session)
    found = host.content(session)
    return {name: data for name, data in found.items() if name.startswith("context")}


def published(stream: MemoryStream, name: str) -> int:
    """Bytes of records in the messages of a session."""
    messages = stream._messages[stream.identity_of(name)]
    bodies = [
        each.body
        for each in messages
        if isinstance(each, Message) and each.kind in {Kind.PART, Kind.CHANGE, Kind.SNAPSHOT}
    ]
    entries = [entry for body in bodies for entry in decode_entries(body)]
    return sum(len(entry.data) for entry in entries if isinstance(entry, Append))


def holds(stream: MemoryStream) -> list[str]:
    return stream.names("", ".held")


def sessions(stream: MemoryStream) -> int:
    """The number of sessions with messages."""
    return sum(name_of_subject(each) is None for each in stream.subjects(""))


def two_generations(host: Host) -> None:
    write(host, "s", LARGE, line("1"), line("2"))
    rewrite(host, "s", LARGE, line("3"))


PAST = LARGE + line("1") + line("2")


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        ("1:2", {"context_1.jsonl": PAST, "context.jsonl": LARGE + line("3")}),
        ("1:1", {"context_1.jsonl": PAST, "context.jsonl": LARGE}),
        ("0:2", {"context.jsonl": LARGE + line("1")}),
    ],
)
def test_a_fork_is_made_again_elsewhere_without_its_bytes_in_the_journal(
    one: Host, three: Host, stream: MemoryStream, at: str, wanted: dict[str, bytes]
) -> None:
    two_generations(one)
    fork(one, "s", "f", at)
    write(one, "f", line("own"))
    assert published(stream, "f") < 3000
    wanted["context.jsonl"] += line("own")
    assert seen(three, "f") == wanted
    assert seen(one, "f") == wanted


def test_a_fork_of_little_is_published_whole(one: Host, three: Host, stream: MemoryStream) -> None:
    write(one, "s", line("1"), LARGE)
    fork(one, "s", "f", "0:1")
    assert holds(stream) == []
    assert seen(three, "f") == {"context.jsonl": line("1")}


def test_what_its_source_does_later_does_not_change_a_fork(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    two_generations(one)
    fork(one, "s", "f", "1:2")
    wanted = seen(one, "f")
    ClusterCommands(one).rename("s", "t", "r", 1.0)
    one.ownership.release_to("t", two.hosts.owner)
    write(two, "t", line("4"))
    rewrite(two, "t", LARGE, line("5"))
    two.ownership.shorten("t")
    write(two, "t", line("6"))
    assert seen(three, "f") == wanted
    assert seen(three, "t")["context.jsonl"] == LARGE + line("5") + line("6")


def test_a_shortened_source_keeps_only_what_a_fork_needs(
    one: Host, three: Host, stream: MemoryStream
) -> None:
    write(one, "s", LARGE)
    fork(one, "s", "f", "0:1")
    before = len(stream._messages[stream.identity_of("s")])
    for number in range(20):
        write(one, "s", line(f"{number}"))
    one.ownership.shorten("s")
    one.ownership.shorten("s")
    after = len(stream._messages[stream.identity_of("s")])
    assert after < before + 5
    assert seen(three, "f") == {"context.jsonl": LARGE}
    assert seen(three, "s")["context.jsonl"].endswith(line("19"))


def test_the_writers_of_a_shortened_source_need_not_wait_for_what_is_removed(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "s", LARGE)
    fork(one, "s", "f", "0:1")
    write(one, "s", line("1"))
    source = one.ownership.acquire("s")
    assert source is not None
    purge: Callable[..., None] = stream.purge
    seen_free = list[bool]()

    def look(*arguments: object) -> None:
        seen_free.append(not source.publishing.locked())
        purge(*arguments)

    monkeypatch.setattr(stream, "purge", look)
    one.ownership.shorten("s")
    assert seen_free == [True]


def test_the_last_fork_frees_what_its_deleted_source_had(
    one: Host, two: Host, three: Host, stream: MemoryStream
) -> None:
    two_generations(one)
    fork(one, "s", "f", "1:2")
    fork(one, "f", "g", "1:1")
    fork(one, "s", "h", "1:2")
    for session in ("s", "f"):
        ClusterCommands(one).expire(delete(one, session))
    assert seen(three, "g")["context.jsonl"] == LARGE
    assert sessions(stream) == 4
    two.now += 100.0
    ClusterCommands(two).expire(delete(two, "g"))
    assert sessions(stream) == 2
    ClusterCommands(two).expire(delete(two, "h"))
    assert sessions(stream) == 0
    assert holds(stream) == []


def test_a_shortened_fork_lets_go_of_its_source(
    one: Host, three: Host, stream: MemoryStream
) -> None:
    two_generations(one)
    fork(one, "s", "f", "1:2")
    wanted = seen(one, "f")
    ClusterCommands(one).expire(delete(one, "s"))
    one.ownership.shorten("f")
    assert holds(stream) == []
    assert sessions(stream) == 1
    assert seen(three, "f") == wanted


def test_a_deleted_source_is_restored_beside_its_fork(one: Host, two: Host) -> None:
    two_generations(one)
    wanted = seen(one, "s")
    fork(one, "s", "f", "1:2")
    delete(one, "s")
    ClusterCommands(two).undelete("s", "u", 3000.0)
    assert seen(two, "s") == wanted
    assert seen(two, "f") == wanted


@pytest.mark.parametrize("is_ended", [False, True])
def test_the_end_of_a_fork_does_not_list_the_other_forks(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    two_generations(one)
    for session in ("f", "g", "h"):
        fork(one, "s", session, "1:2")
    source = stream.identity_of("s")
    if is_ended:
        ClusterCommands(one).expire(delete(one, "s"))
    listed: list[str | None] = []
    names: Callable[..., list[str]] = one.journal.names

    def noted(above: str | None = None, *, oldest: bool = False) -> list[str]:
        if not oldest:
            listed.append(above)
        return names(above, oldest=oldest)

    monkeypatch.setattr(one.journal, "names", noted)
    for session in ("f", "h"):
        ClusterCommands(one).expire(delete(one, session))
    assert f".held/{source}" not in listed
    ClusterCommands(one).expire(delete(one, "g"))
    assert holds(stream) == []


def test_a_daemon_goes_on_with_a_collection_that_another_one_began(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_generations(one)
    fork(one, "s", "f", "1:2")
    ClusterCommands(one).expire(delete(one, "s"))
    gone = delete(one, "f")
    purge: Callable[..., None] = stream.purge
    left = [1]

    def purge_some(*arguments: object) -> None:
        if not left[0]:
            raise OSError("died")
        left[0] -= 1
        purge(*arguments)

    monkeypatch.setattr(stream, "purge", purge_some)
    with pytest.raises(OSError, match="died"):
        ClusterCommands(one).expire(gone)
    monkeypatch.setattr(stream, "purge", purge)
    assert holds(stream)
    two.ownership.holds.collect_all()
    assert holds(stream) == []
    assert sessions(stream) == 0


@pytest.mark.parametrize("failing", ["publish", "purge"])
def test_the_trash_keeps_its_folder_until_the_cluster_has_let_the_sessions_go(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    write(one, "s", LARGE)
    write(one, "s/c", line("1"))
    gone = delete(one, "s")

    def lost(*_: object) -> list[int | OSError]:
        if failing == "purge":
            raise JournalLost(None, "no server is reached")
        return [JournalLost(None, "no server is reached")]

    with monkeypatch.context() as patched:
        patched.setattr(one.journal, failing, lost)
        with pytest.raises(JournalLost):
            remove_for_good(one, gone)
    remove_for_good(one, gone)
    assert sessions(stream) == 0
    assert not Path(one.tree, gone).exists()


def test_a_source_that_another_daemon_took_over_is_not_forked_here(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_generations(one)
    one.ownership.acquire("s")
    publish = one.journal.publish

    def take_over(publications: Sequence[Publication]) -> list[int | OSError]:
        if any(each.kind is Kind.FORK for each in publications):
            two.now += 100.0
            two.ownership.acquire("s")
            two.ownership.shorten("s")
        return publish(publications)

    monkeypatch.setattr(one.journal, "publish", take_over)
    with pytest.raises(Held) as refused:
        fork(one, "s", "f", "1:2")
    assert refused.value.endpoint == "ipc:///two"
    assert holds(stream) == []
    assert one.ownership.found("s") is None


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.DROPPED, Fault.LATE])
def test_a_fork_in_doubt_is_settled_with_its_source(
    one: Host, three: Host, stream: MemoryStream, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_generations(one)
    one.ownership.acquire("s")
    publish = one.journal.publish

    def doubt(publications: Sequence[Publication]) -> list[int | OSError]:
        if any(each.also for each in publications):
            stream.force("one", fault)
        return publish(publications)

    with monkeypatch.context() as patched:
        patched.setattr(one.journal, "publish", doubt)
        with pytest.raises(OSError):
            fork(one, "s", "f", "1:2")
    write(one, "s", line("4"))
    fork(one, "s", "f", "1:2")
    assert seen(three, "f")["context.jsonl"] == LARGE + line("3")
    assert seen(three, "s")["context.jsonl"] == LARGE + line("3") + line("4")
    assert len(holds(stream)) == 1


def test_a_collection_that_died_lets_go_of_the_source_with_the_next_one(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_generations(one)
    fork(one, "s", "f", "1:2")
    purge: Callable[..., None] = stream.purge
    left = [1]

    def purge_once(*arguments: object) -> None:
        if not left:
            raise OSError("died")
        left.pop()
        purge(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(stream, "purge", purge_once)
        with pytest.raises(OSError, match="died"):
            one.ownership.shorten("f")
    one.ownership.shorten("f")
    assert holds(stream) == []


def test_a_name_of_another_program_among_the_holds_is_left_alone(
    one: Host, stream: MemoryStream
) -> None:
    two_generations(one)
    fork(one, "s", "f", "1:2")
    one.ownership.acquire("s")
    source = stream.identity_of("s")
    foreign = [".held/x", f".held/{source}/x", f".held/{source}/x/{source}", ".held/a/1/b/c"]
    for name in foreign:
        stream.publish_foreign(subject_of_name(name))
    one.ownership.holds.collect_all()
    one.ownership.shorten("s")
    ClusterCommands(one).expire(delete(one, "f"))
    assert sorted(holds(stream)) == sorted(foreign)


def test_a_fork_that_shares_nothing_leaves_its_source_to_its_writers(
    one: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "s", line("1"), LARGE)
    source = one.ownership.acquire("s")
    assert source is not None
    publish, seen_free = one.journal.publish, list[bool]()

    def look(publications: Sequence[Publication]) -> list[int | OSError]:
        if all(each.subject != source.identity for each in publications):
            seen_free.append(not source.publishing.locked())
        return publish(publications)

    monkeypatch.setattr(one.journal, "publish", look)
    fork(one, "s", "f", "0:1")
    assert seen_free
    assert all(seen_free)


def test_a_source_that_is_being_renamed_is_forked_whole(
    one: Host, three: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "s", LARGE)

    def renamed(journal: Journal, source: OwnedFolder) -> Base:
        """The journal has the new name, and the folder follows."""
        source.path = "t"
        return base_at_head(journal, source)

    monkeypatch.setattr(disk, "base_at_head", renamed)
    fork(one, "s", "f", "0:1")
    assert holds(stream) == []
    assert seen(three, "f") == {"context.jsonl": LARGE}


def test_bytes_that_another_program_changed_in_place_are_published(
    one: Host, three: Host, stream: MemoryStream
) -> None:
    write(one, "s", LARGE, line("1"))
    file = Path(one.tree, "s", "context.jsonl")
    with file.open("r+b") as handle:
        handle.seek(100)
        handle.write(b"y")
    wanted = file.read_bytes()
    fork(one, "s", "f", "0:2")
    assert seen(three, "f") == {"context.jsonl": wanted}
    assert published(stream, "f") >= limits.JOURNAL_COPY_BYTES_MIN


# --- repeats -------------------------------------------------------------------------------------


def repeat(host: Host, source: str, session: str, at: str) -> None:
    """Serve a fork as its daemon does, which may be a repeat."""
    served, key = ClusterCommands(host), f"k-{session}"
    try:
        served.decided(session, key, lambda: served.fork(source, session, at, key, 1000.0))
    finally:
        host.close()


def test_a_fork_whose_message_comes_during_a_repeat_is_the_answer_of_that(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "s", line("1"))
    publish = one.journal.publish

    def late(publications: Sequence[Publication]) -> list[int | OSError]:
        if publications[-1].also:
            stream.force("one", Fault.LATE)
        return publish(publications)

    with monkeypatch.context() as patched:
        patched.setattr(one.journal, "publish", late)
        with pytest.raises(OSError, match="late"):
            fork(one, "s", "f", "0:1")

    def come(publications: Sequence[Publication]) -> list[int | OSError]:
        stream.settle()
        return publish(publications)

    one.start()
    publish = one.journal.publish
    monkeypatch.setattr(one.journal, "publish", come)
    repeat(one, "s", "f", "0:1")
    assert seen(one, "f") == {"context.jsonl": line("1")}


def test_a_fork_that_nobody_answered_and_that_was_deleted_is_not_made_again(
    one: Host, two: Host
) -> None:
    write(one, "s", line("1"))
    fork(one, "s", "f", "0:1")
    delete(one, "f")
    for host in (one, two):
        two.now += 100.0
        with pytest.raises(NotFound, match="was created with this key and was deleted"):
            repeat(host, "s", "f", "0:1")


def test_a_host_that_missed_the_renaming_of_its_session_answers_a_fork_in_its_place(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(one, "f", line("1"))
    two.now += 100.0
    with monkeypatch.context() as patched:
        patched.setattr(stream, "announce", lambda *_: None)
        ClusterCommands(two).rename("f", "s", "r", 1000.0)
        fork(two, "s", "f", "0:1")
    one.now += 200.0
    repeat(one, "s", "f", "0:1")
    for session in "fs":
        assert seen(one, session) == {"context.jsonl": line("1")}

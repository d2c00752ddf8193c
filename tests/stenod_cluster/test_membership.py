"""The membership of a daemon, with a journal in memory."""

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
import pytest

from steno_protocol.errors import NotFound
from steno_protocol.replies import ClusterReplica, ClusterStream
from stenod.core.manifest import Manifest
from stenod.store.posix import PosixDisk
from stenod_cluster import limits
from stenod_cluster.facts import ClusterFacts, ServerFacts, Syncing, broken_promises
from stenod_cluster.journal import Kind, Label, Owner, Publication, subject_of_name
from stenod_cluster.membership import Membership
from stenod_cluster.mirror import Mark
from support.memory_journal import MemoryJournal, MemoryStream


class LateEngine(MemoryJournal):
    """An engine that reaches its servers some time after it was made."""

    is_joining = False

    def __init__(self, stream: MemoryStream, host: str) -> None:
        super().__init__(stream, host)
        self._servers, self._name = stream, host
        stream.partition(host)

    def wait_ready(self, wait_s: float) -> None:
        """Reach the servers."""
        del wait_s
        self._servers.heal(self._name)

    def note_serving(self) -> None:
        """It serves."""

    def state(self) -> ClusterFacts:
        """Nothing is known of the servers."""
        return ClusterFacts()


def member(stream: MemoryStream, folder: Path, name: str) -> Membership:
    """A daemon that has checked its cluster, and serves."""
    root = folder / name
    root.mkdir()
    made = Membership(
        "team", LateEngine(stream, name), root, PosixDisk(), f"ipc://{root}", 2.5,
        lambda *_, **__: None,
    )  # fmt: skip
    made.check_promises(is_lazy_allowed=True)
    return made


def publish(stream: MemoryStream, owner: Membership, name: str, kind: Kind, after: int = 0) -> None:
    """Let a daemon publish a message about a name."""
    journal = MemoryJournal(stream, "publisher")
    label = Label(f"id-of-{name}", "").body()
    subject = subject_of_name(name)
    [found] = journal.publish([Publication(subject, after, owner._hosts.owner, kind, label)])
    assert isinstance(found, int)


def publish_own(stream: MemoryStream, owner: Membership, *names: str) -> None:
    """Let a daemon own sessions."""
    journal = MemoryJournal(stream, "publisher")
    for name in names:
        publish(stream, owner, name, Kind.NAME)
        own = Publication(f"id-of-{name}", 0, owner._hosts.owner, Kind.OWN, b"")
        assert isinstance(journal.publish([own])[0], int)


def test_a_new_daemon_knows_the_living_ones_before_it_serves(tmp_path: Path) -> None:
    stream = MemoryStream()
    member(stream, tmp_path, "one")
    two = member(stream, tmp_path, "two")
    assert {host.endpoint for host in two.report("", None, 0).hosts if host.alive} == {
        f"ipc://{tmp_path}/one",
        f"ipc://{tmp_path}/two",
    }


def test_a_session_that_came_from_another_daemon_is_listed_before_it_is_opened(
    tmp_path: Path,
) -> None:
    stream = MemoryStream()
    one, two = member(stream, tmp_path, "one"), member(stream, tmp_path, "two")
    owner = two._hosts.owner
    publish_own(stream, two, "demo")
    (there,), (here,) = one.others("", "", 9), two.others("", "", 9)
    assert (there.session, there.endpoint, there.is_own) == ("demo", owner.endpoint, False)
    assert (here.session, here.is_own) == ("demo", True)


def test_a_hand_over_that_is_repeated_at_the_new_owner_is_done(tmp_path: Path) -> None:
    stream = MemoryStream()
    one, two = member(stream, tmp_path, "one"), member(stream, tmp_path, "two")
    publish_own(stream, two, "demo")
    for host in (two._hosts.owner.host, two._hosts.owner.endpoint):
        two.give("demo", host)
    with pytest.raises(NotFound, match="no living daemon of the cluster"):
        one.give("demo", "ipc:///elsewhere")


def test_a_message_of_another_program_is_the_trouble_of_its_session_alone(tmp_path: Path) -> None:
    stream = MemoryStream()
    one, two = member(stream, tmp_path, "one"), member(stream, tmp_path, "two")
    publish_own(stream, one, "a", "c")
    foreign = stream.publish_foreign(subject_of_name("b"))
    stream.publish_foreign(subject_of_name("no session/\udcff"))
    assert [each.session for each in two.others("", "", 9)] == ["a", "c"]
    report = two.report("", None, 9)
    assert report.trouble == ""
    assert [each.session for each in report.sessions] == ["a", "b", "c"]
    assert [each.session for each in report.sessions if each.trouble] == ["b"]
    assert f"message {foreign} of 'b' in the journal is not steno's" in report.sessions[1].trouble


def test_a_message_of_another_program_behind_those_of_a_session_is_its_trouble(
    tmp_path: Path,
) -> None:
    stream = MemoryStream()
    one, two = member(stream, tmp_path, "one"), member(stream, tmp_path, "two")
    publish_own(stream, one, "a", "b")
    foreign = stream.publish_foreign("id-of-b")
    assert [each.session for each in two.others("", "", 9)] == ["a"]
    intact, other = two.report("", None, 9).sessions
    assert (intact.session, intact.trouble) == ("a", "")
    assert (other.session, other.host) == ("b", "")
    assert f"message {foreign} of 'id-of-b' in the journal is not steno's" in other.trouble


@pytest.mark.anyio
async def test_a_daemon_that_starts_goes_on_with_a_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = MemoryStream()
    one = member(stream, tmp_path, "one")
    publish(stream, one, ".held/i/9/i", Kind.NAME)
    collected = anyio.Event()

    async def lose(session: str) -> None:
        del session

    stale = one._ownership.copies.stale

    def stale_after() -> Iterator[str]:
        anyio.from_thread.run_sync(collected.set)
        return stale()

    monkeypatch.setattr(one._ownership.copies, "stale", stale_after)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.serve, lose)
        await collected.wait()
        tasks.cancel_scope.cancel()

    assert stream.names("", ".held") == []


@pytest.mark.anyio
async def test_a_large_session_that_is_given_delays_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = MemoryStream()
    one, two = member(stream, tmp_path, "one"), member(stream, tmp_path, "two")
    taken: list[str] = []
    small = threading.Event()

    def take(session: str, giver: Owner) -> None:
        assert giver == one._hosts.owner
        if session == "large":
            assert small.wait(60.0)
        taken.append(session)
        if session == "small":
            small.set()

    async def lose(session: str) -> None:
        del session

    monkeypatch.setattr(two._ownership, "take", take)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(two.serve, lose)
        # The giver says it again meanwhile.
        for session in ("large", "large", "small"):
            one._hosts._tell("given", session, two._hosts.owner.host)
        while len(taken) < 2:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert taken == ["small", "large"]


def test_a_list_is_stale_while_no_majority_answers(tmp_path: Path) -> None:
    stream = MemoryStream()
    one = member(stream, tmp_path, "one")
    assert not one.is_list_stale()
    stream.partition("one")
    # The last look was long ago.
    one._ownership.heard_at = -math.inf
    assert one.is_list_stale()


def test_removed_sessions_cut_no_list_short(tmp_path: Path) -> None:
    stream = MemoryStream()
    one, two = member(stream, tmp_path, "one"), member(stream, tmp_path, "two")
    publish_own(stream, one, "a", "b", "c", "d", "e")
    for name in "abc":
        last = stream.last("", subject_of_name(name))
        assert last is not None
        publish(stream, one, name, Kind.GONE, after=last.sequence)
    listed = two.others("", "", 1)
    assert [each.session for each in listed if each.endpoint] == ["d"]
    assert [each.session for each in listed if not each.endpoint] == ["a", "b", "c"]
    first, rest = two.report("", None, 1), two.report("", "d", 1)
    assert ([each.session for each in first.sessions], first.more) == (["d"], True)
    assert ([each.session for each in rest.sessions], rest.more) == (["e"], False)


def test_a_session_of_which_this_disk_has_other_files_is_in_trouble_until_they_are_compared(
    tmp_path: Path,
) -> None:
    stream = MemoryStream()
    one, two = member(stream, tmp_path, "one"), member(stream, tmp_path, "two")
    publish_own(stream, one, "both", "elsewhere", "mirrored", "old-kept-1")
    publish_own(stream, two, "own")
    for name in ("both", "mirrored", "own"):
        folder = tmp_path / "two/sessions" / name
        folder.mkdir(parents=True)
        (folder / "context.jsonl").write_text("{}\n")
    mark = Mark(3, two._hosts.owner.host, Manifest(), stream=stream.identity)
    (tmp_path / "two/sessions/mirrored/journal.mark").write_bytes(msgspec.json.encode(mark))
    troubles = {each.session: each.trouble for each in two.report("", None, 9).sessions}
    assert [name for name, trouble in troubles.items() if trouble] == ["both", "old-kept-1"]
    assert f"is ipc://{tmp_path}/one's, and this host has files of that id" in troubles["both"]
    assert "run `steno cluster join`" in troubles["both"]
    assert "records of 'old', which were not a beginning" in troubles["old-kept-1"]
    found = [each.session for each in one.report("", None, 9).sessions if each.trouble]
    assert found == ["old-kept-1"]


@pytest.mark.parametrize(("sequence", "is_listed"), [(1, False), (9, True)])
def test_a_session_that_an_old_copy_of_the_stream_says_to_be_gone_is_listed_if_it_came_back(
    tmp_path: Path, sequence: int, *, is_listed: bool
) -> None:
    stream = MemoryStream()
    one = member(stream, tmp_path, "one")
    publish(stream, one, "s", Kind.NAME)
    publish(stream, one, "s", Kind.GONE, after=1)
    folder = tmp_path / "one/sessions/s"
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_text("{}\n")
    mark = Mark(sequence, one._hosts.owner.host, Manifest(), stream="stream-0")
    (folder / "journal.mark").write_bytes(msgspec.json.encode(mark))
    # The stream says it behind the loss.
    assert [each.endpoint for each in one.others("", "", 9)] == [None]
    stream.began = 20
    assert [each.session for each in one.others("", "", 9)] == ([] if is_listed else ["s"])


ALWAYS = ClusterReplica(name="n1", leader=True, syncing=Syncing.ALWAYS)


@pytest.mark.parametrize(
    ("third", "is_kept"),
    [
        (ClusterReplica(name="n3", current=False), True),
        (ClusterReplica(name="n3", offline=True), True),
        (ClusterReplica(name="n3"), False),
        (ClusterReplica(name="n3", current=False, syncing=Syncing.LAZY), False),
    ],
)
def test_a_server_that_is_down_breaks_no_promise_and_an_unknown_one_does(
    third: ClusterReplica, is_kept: bool
) -> None:
    replicas = (ALWAYS, ClusterReplica(name="n2", syncing=Syncing.ALWAYS), third)
    facts = ClusterFacts(streams=(ClusterStream(name="s", replicas=replicas),), wanted=3)
    assert (broken_promises(facts) == []) is is_kept


def test_a_daemon_waits_until_a_silent_server_counts_as_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = (ServerFacts(trouble="it does not answer"),)
    states = [
        ClusterFacts(
            streams=(ClusterStream(name="s", replicas=(ALWAYS, replica)),), wanted=3, servers=silent
        )
        for replica in (ClusterReplica(name="n2"), ClusterReplica(name="n2", current=False))
    ]
    stream = MemoryStream()
    made = member(stream, tmp_path, "one")
    monkeypatch.setattr(limits, "SETTLE_POLL_S", 0.0)
    monkeypatch.setattr(made._engine, "state", lambda: states.pop(0))
    made.check_promises(is_lazy_allowed=False)
    assert states == []

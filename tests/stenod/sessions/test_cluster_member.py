"""A daemon that shares its sessions, as its clients see it; the cluster is scripted."""

import errno
from collections.abc import Sequence

import pytest

from steno_protocol import limits, paths
from steno_protocol.commands import (
    Append,
    Cluster,
    Delete,
    Fork,
    Gc,
    HandOver,
    Join,
    List,
    Open,
    Read,
    Rename,
    Stat,
    Subscribe,
    Timeline,
    Undelete,
    WriteSystemPrompt,
)
from steno_protocol.errors import Held
from steno_protocol.events import Gone
from steno_protocol.replies import (
    Ack,
    ClusterReport,
    Deleted,
    Done,
    ErrorReply,
    GcReport,
    Joined,
    Lines,
    Moved,
    Sessions,
    SessionStat,
    Subscribed,
    TimelineReport,
)
from stenod.sessions import moves
from stenod.sessions.cluster_member import Elsewhere
from stenod.store.disk import DiskRefused
from stenod_cluster.journal import Fenced, JournalLost, Kind, Message, Owner
from support.asking import ask, ask_for, close_all
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import SESSION
from support.simulated_disk import SimulatedDisk
from support.stored_session import fresh_key

pytestmark = pytest.mark.anyio

TREE = f"{ROOT}/{paths.SESSIONS}"
OTHER = "tcp://10.0.0.6:7117"
LINE = b'{"role":"user","content":"hi"}'


class ScriptedMember:
    """A membership that answers as a test says.

    Attributes:
        held: the sessions that another daemon owns.
        is_cut_off: nobody in the cluster answers.
        refusal: what the disk of the cluster says to who would own a session.
        is_sure: the last answer is recent.
        elsewhere: what `others` lists.
        given: the sessions that were handed over, and to whom.
        shortened: the sessions whose journal was made short.
        brought: where commands brought sessions in the cluster, by id and key.
        fetched: the sessions whose deleted ones were asked for.
        joined: the sessions that were asked to join together.
    """

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.is_cut_off = False
        self.refusal: DiskRefused | None = None
        self.is_sure = True
        self.elsewhere: list[Elsewhere] = []
        self.given: list[tuple[str, str]] = []
        self.shortened: list[str] = []
        self.brought: dict[tuple[str, str], str] = {}
        self.fetched: list[str] = []
        self.joined: list[str] = []

    def own(self, session: str, *, for_reading: bool = False) -> None:
        """See `ClusterMember`."""
        del for_reading
        if self.is_cut_off:
            raise JournalLost(None, "no server answers")
        if self.refusal is not None:
            raise self.refusal
        if session in self.held:
            raise Held("another daemon owns it", session=session, endpoint=OTHER)

    def join(self, sessions: Sequence[str]) -> list[str]:
        """See `ClusterMember`."""
        self.joined += sessions
        return [session for session in sessions if session in self.held]

    def follow(self, session: str) -> None:
        """See `ClusterMember`."""

    def is_stale(self, session: str) -> bool:
        """See `ClusterMember`."""
        if not self.is_cut_off:
            self.own(session)
        return self.is_cut_off

    def is_list_stale(self) -> bool:
        """See `ClusterMember`."""
        return not self.is_sure

    def others(self, prefix: str, after: str, limit: int) -> list[Elsewhere]:
        """See `ClusterMember`."""
        del prefix, after
        if self.is_cut_off:
            raise JournalLost(None, "no server answers")
        return self.elsewhere[:limit]

    def shorten(self, session: str) -> None:
        """See `ClusterMember`."""
        self.shortened.append(session)

    def give(self, session: str, host: str) -> None:
        """See `ClusterMember`."""
        self.given.append((session, host))
        self.held.add(session)

    def moved(self, session: str, key: str) -> str | None:
        """See `ClusterMember`."""
        if self.is_cut_off:
            raise JournalLost(None, "no server answers")
        return self.brought.get((session, key))

    def fetch_deleted(self, session: str) -> None:
        """See `ClusterMember`."""
        self.fetched.append(session)

    def report(self, prefix: str, after: str | None, limit: int) -> ClusterReport:
        """See `ClusterMember`."""
        del prefix, after, limit
        return ClusterReport(cluster="team")


@pytest.fixture
def member() -> ScriptedMember:
    return ScriptedMember()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def daemon(member: ScriptedMember, disk: SimulatedDisk) -> DaemonInProcess:
    made = DaemonInProcess(disk)
    made.registry.member = member
    return made


def append(key: str, **more: str) -> Append:
    return Append(session=SESSION, key=key, **more)  # type: ignore[arg-type]


async def written(daemon: DaemonInProcess) -> None:
    """Make a session with one record."""
    await ask(daemon, "o", Open(session=SESSION))
    assert isinstance(await ask(daemon, "a", append("k1"), LINE), Ack)


async def test_every_command_of_a_session_names_its_owner(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        await close_all(daemon)
        member.held.add(SESSION)
        for name, command in {
            "b": append("k2"), "s": Stat(session=SESSION), "r": Read(session=SESSION),
            "p": Open(session=SESSION),
        }.items():  # fmt: skip
            records = [LINE] if name == "b" else []
            refused = await ask(daemon, name, command, *records)
            assert isinstance(refused, ErrorReply), name
            assert (refused.code, refused.endpoint) == ("held", OTHER)


async def test_a_session_that_another_daemon_made_meanwhile_is_read_at_its_owner(
    daemon: DaemonInProcess, member: ScriptedMember, disk: SimulatedDisk
) -> None:
    async with daemon.running():
        disk.fail_next("open_append", errno.EIO)
        refused = await ask_for(ErrorReply, daemon, "o", Open(session=SESSION))
        member.held.add(SESSION)
        for name, command in {
            "s": Stat(session=SESSION), "r": Read(session=SESSION),
            "f": Subscribe(session=SESSION, subscription="f"), "t": Timeline(session=SESSION),
        }.items():  # fmt: skip
            refused = await ask(daemon, name, command)
            assert isinstance(refused, ErrorReply), name
            assert (refused.code, refused.endpoint) == ("held", OTHER)


REFUSALS = [
    (
        Fenced(SESSION, Message(2, Owner("b", "1", OTHER), Kind.OWN, b"", 0.0)),
        "held",
        f"the daemon at {OTHER} owns the session",
    ),
    (JournalLost(None, "no server answers"), "storage_failed", "the journal cannot be reached: no"),
]


@pytest.mark.parametrize(("refusal", "code", "text"), REFUSALS, ids=["fenced", "lost"])
async def test_a_refusal_of_the_cluster_is_no_failure_of_the_disk_to_a_reader(
    daemon: DaemonInProcess, member: ScriptedMember, refusal: DiskRefused, code: str, text: str
) -> None:
    async with daemon.running():
        member.refusal = refusal
        refused = await ask_for(ErrorReply, daemon, "s", Stat(session=SESSION))
        assert refused.code == code
        assert refused.message.startswith(text)


@pytest.mark.parametrize(("refusal", "code", "text"), REFUSALS, ids=["fenced", "lost"])
async def test_a_refusal_at_the_files_is_no_failure_of_the_disk_to_a_follower(
    daemon: DaemonInProcess,
    disk: SimulatedDisk,
    monkeypatch: pytest.MonkeyPatch,
    refusal: DiskRefused,
    code: str,
    text: str,
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise refusal

    async with daemon.running():
        await written(daemon)
        await close_all(daemon)
        monkeypatch.setattr(disk, "open_append", refuse)
        refused = await ask(daemon, "f", Subscribe(session=SESSION, subscription="f"))
        assert isinstance(refused, ErrorReply)
        assert refused.code == code
        assert refused.message.startswith(text)
        # It would stand in the log in place of what the refusal says.
        assert refusal.filename is None


@pytest.mark.parametrize("is_open", [True, False])
async def test_without_a_majority_reads_go_on_and_are_stale(
    daemon: DaemonInProcess, member: ScriptedMember, *, is_open: bool
) -> None:
    async with daemon.running():
        await written(daemon)
        if not is_open:
            await close_all(daemon)
        member.is_cut_off, member.is_sure = True, False
        stat = await ask_for(SessionStat, daemon, "s", Stat(session=SESSION))
        lines = await ask_for(Lines, daemon, "r", Read(session=SESSION))
        listed = await ask_for(Sessions, daemon, "l", List())
        assert [stat.stale, lines.stale, listed.stale] == [True, True, True]
        assert stat.head == "0:1"
        member.is_cut_off, member.is_sure = False, True
        again = await ask_for(SessionStat, daemon, "t", Stat(session=SESSION))
        assert not again.stale


async def test_without_a_majority_a_closed_session_takes_no_change(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        await close_all(daemon)
        member.is_cut_off = True
        refused = await ask_for(ErrorReply, daemon, "b", append(fresh_key()), LINE)
        assert (refused.code, refused.outcome) == ("storage_failed", "not_applied")
        assert "the journal cannot be reached" in refused.message


@pytest.mark.parametrize("kind", [Fork, Rename])
async def test_an_id_that_another_daemon_has_is_taken(
    daemon: DaemonInProcess, member: ScriptedMember, kind: type[Fork | Rename]
) -> None:
    async with daemon.running():
        await written(daemon)
        member.held.add("other")
        refused = await ask(daemon, "b", kind(session=SESSION, new_session="other", key="k2"))
        assert isinstance(refused, ErrorReply)
        assert (refused.code, refused.session, refused.endpoint) == ("exists", "other", None)
        assert OTHER in refused.message


async def test_an_open_session_that_another_daemon_took_over_unnoticed_is_not_forked(
    daemon: DaemonInProcess, member: ScriptedMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = Fork(session=SESSION, new_session="f", key=fresh_key())
    async with daemon.running():
        await written(daemon)
        member.held.add(SESSION)
        refused = await ask_for(ErrorReply, daemon, "f1", fork)
        assert (refused.code, refused.endpoint) == ("held", OTHER)
        member.held.clear()
        with monkeypatch.context() as patch:
            patch.setattr(member, "is_stale", lambda _: True)
            refused = await ask_for(ErrorReply, daemon, "f2", fork)
        assert (refused.code, refused.outcome) == ("storage_failed", "not_applied")
        assert isinstance(await ask(daemon, "f3", fork), SessionStat)


@pytest.mark.parametrize("kind", [Fork, Rename])
async def test_a_repeat_has_its_first_answer_although_another_daemon_took_the_session_over(
    daemon: DaemonInProcess, member: ScriptedMember, kind: type[Fork | Rename]
) -> None:
    async with daemon.running():
        await written(daemon)
        command = kind(session=SESSION, new_session="other", key="k2")
        first = await ask(daemon, "b", command)
        assert isinstance(first, SessionStat | Moved)
        await close_all(daemon)
        member.held.add("other")
        assert await ask(daemon, "c", command) == first


async def test_a_repeat_of_what_another_daemon_renamed_is_answered_and_recorded(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        # The session came here under its new id with its takeover.
        await ask(daemon, "o", Open(session="other"))
        member.brought[SESSION, "k2"] = "other"
        command = Rename(session=SESSION, new_session="other", key="k2", by="planner")
        for name in ("b", "c"):
            moved = await ask_for(Moved, daemon, name, command)
            assert (moved.session, moved.folder) == ("other", f"{TREE}/other")
        timeline = await ask_for(TimelineReport, daemon, "d", Timeline(session="other"))
        renamed = [each for each in timeline.entries if each.kind == "renamed"]
        assert [(each.key, each.by) for each in renamed] == [("k2", "planner")]


async def test_a_repeat_of_what_a_living_daemon_renamed_goes_there(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        member.brought[SESSION, "k2"] = "other"
        member.held.add("other")
        refused = await ask(daemon, "b", Rename(session=SESSION, new_session="other", key="k2"))
        assert isinstance(refused, ErrorReply)
        assert (refused.code, refused.endpoint) == ("held", OTHER)


async def test_a_repeat_of_what_another_daemon_deleted_names_its_trash(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        member.brought[SESSION, "k2"] = f".trash/1764000000.k2.{SESSION}"
        deleted = await ask_for(Deleted, daemon, "b", Delete(session=SESSION, key="k2"))
        assert deleted.trash == f"{TREE}/.trash/1764000000.k2.{SESSION}"
        assert deleted.expires_at == 1_764_000_000 + limits.TRASH_EXPIRY_S
        refused = await ask_for(ErrorReply, daemon, "c", Delete(session=SESSION, key="another"))
        assert refused.code == "not_found"


async def test_what_other_daemons_deleted_is_fetched_before_a_restoration(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        refused = await ask_for(ErrorReply, daemon, "u1", Undelete(session=SESSION, key="k1"))
        assert refused.code == "not_found"
        assert member.fetched == [SESSION]


async def test_a_repeat_of_what_another_daemon_restored_is_answered(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        member.brought[SESSION, "k1"] = SESSION
        moved = await ask_for(Moved, daemon, "u", Undelete(session=SESSION, key="k1"))
        assert (moved.session, member.fetched) == (SESSION, [])


def begin_move(daemon: DaemonInProcess, key: str) -> None:
    """Leave the record of a rename to `other` whose process ended before the move."""
    disk = daemon.disk
    tree = disk.open_root(TREE)
    session = disk.stat_name(tree, SESSION)
    assert session is not None
    with moves.opened(disk, tree, create=True) as found:
        assert found is not None
        record = moves.Record(1_764_000_000, key, "rename", SESSION)
        found.begin(record, moves.Move(SESSION, "other", session.inode))
    disk.close(tree)


async def test_a_begun_move_that_the_cluster_does_not_have_is_begun_again(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        begin_move(daemon, "k2")
        member.is_cut_off = True
        command = Rename(session=SESSION, new_session="other", key="k2")
        refused = await ask_for(ErrorReply, daemon, "b", command)
        assert (refused.code, refused.outcome) == ("storage_failed", "unknown")
        member.is_cut_off = False
        assert isinstance(await ask(daemon, "c", command), Moved)


async def test_a_begun_move_is_not_done_because_another_command_moved_the_folder(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        begin_move(daemon, "k2")
        # As a copy follows its session.
        tree = daemon.disk.open_root(TREE)
        await close_all(daemon)
        daemon.disk.move(tree, SESSION, tree, "other")
        daemon.disk.close(tree)
        refused = await ask(daemon, "b", Rename(session=SESSION, new_session="other", key="k2"))
        assert isinstance(refused, ErrorReply)
        assert refused.code in {"exists", "not_found"}


async def test_a_rename_is_completed_by_the_owner_of_its_session_alone(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        command = Rename(session=SESSION, new_session="other", key="k2")
        await ask(daemon, "b", command)
        await close_all(daemon)
        reopen_move(daemon)
        member.brought[SESSION, "k2"] = "other"
        member.held.add("other")
        refused = await ask_for(ErrorReply, daemon, "c", command)
        assert (refused.code, refused.endpoint) == ("held", OTHER)
        member.held.clear()
        assert isinstance(await ask(daemon, "d", command), Moved)


def reopen_move(daemon: DaemonInProcess) -> None:
    """Let the record of the one rename be that of an incomplete one."""
    disk = daemon.disk
    tree = disk.open_root(TREE)
    folder = disk.open_folder(tree, paths.MOVES)
    [name] = disk.names(folder)
    disk.rename(folder, name, name.replace(".renamed.", ".rename."))
    for handle in (folder, tree):
        disk.close(handle)


async def test_an_owner_that_is_none_any_more_names_the_new_one_to_a_follower(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        member.held.add(SESSION)
        # A follower that comes from the new owner is ahead of these files.
        ahead = Subscribe(session=SESSION, subscription="s1", after="0:9", window=1 << 20)
        refused = await ask_for(ErrorReply, daemon, "f", ahead)
        assert (refused.code, refused.endpoint) == ("held", OTHER)


async def test_a_session_that_is_handed_over_is_closed_and_its_followers_move(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        follow = Subscribe(session=SESSION, subscription="s1", after="now", window=1 << 20)
        assert isinstance(await ask(daemon, "f", follow), Subscribed)
        assert await ask(daemon, "h", HandOver(session=SESSION, host="two")) == Done()
        assert member.given == [(SESSION, "two")]
        assert daemon.registry.known(SESSION) is None
        gone = daemon.answers[b"f"][-1]
        assert isinstance(gone, Gone)
        assert gone.moved
        refused = await ask_for(ErrorReply, daemon, "b", append("k2"), LINE)
        assert refused.endpoint == OTHER


async def test_a_lost_session_ends_its_followers_as_moved(daemon: DaemonInProcess) -> None:
    async with daemon.running():
        await written(daemon)
        follow = Subscribe(session=SESSION, subscription="s1", after="now", window=1 << 20)
        await ask(daemon, "f", follow)
        await daemon.registry.lose(SESSION)
        gone = daemon.answers[b"f"][-1]
        assert isinstance(gone, Gone)
        assert gone.moved


async def test_lists_name_owners_and_leave_out_what_others_removed(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        for name in ("b", "d"):
            await ask(daemon, name, Open(session=name))
        member.elsewhere = [
            Elsewhere("a", OTHER, 5.0), Elsewhere("b", None, 6.0), Elsewhere("c", OTHER, 7.0)
        ]  # fmt: skip
        listed = await ask_for(Sessions, daemon, "l", List())
        found = [(entry.session, entry.owner) for entry in listed.sessions]
        assert found == [("a", OTHER), ("c", OTHER), ("d", None)]
        paged = await ask_for(Sessions, daemon, "m", List(limit=2))
        assert [entry.session for entry in paged.sessions] == ["a", "c"]
        assert paged.more


async def test_a_list_without_a_majority_is_stale_and_has_what_is_known(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await ask(daemon, "o", Open(session="b"))
        member.elsewhere = [Elsewhere("a", OTHER, 5.0)]
        for member.is_sure in (True, False):
            listed = await ask_for(Sessions, daemon, f"l{member.is_sure}", List())
            assert [entry.session for entry in listed.sessions] == ["a", "b"]
            assert listed.stale is not member.is_sure
        member.is_cut_off = True
        alone = await ask_for(Sessions, daemon, "m", List())
        assert ([entry.session for entry in alone.sessions], alone.stale) == (["b"], True)


async def test_gc_makes_the_journal_of_a_session_short(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    async with daemon.running():
        await written(daemon)
        for number in range(3):
            prompt = WriteSystemPrompt(session=SESSION, key=f"p{number}", prompt=f"be {number}")
            assert isinstance(await ask(daemon, f"p{number}", prompt), Ack)
        report = await ask_for(GcReport, daemon, "g", Gc(keep_generations=1))
        assert report.files > 0
        assert member.shortened == [SESSION]


@pytest.mark.parametrize("session", [SESSION, "kimi:other"])
async def test_replicated_is_refused_where_it_cannot_be(session: str) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    if session != SESSION:
        daemon.registry.member = ScriptedMember()
    async with daemon.running():
        await ask(daemon, "o", Open(session=session))
        command = Append(session=session, key="k1", durability="replicated")
        refused = await ask_for(ErrorReply, daemon, "a", command, LINE)
        assert refused.code == "bad_request"
        assert "cannot be `replicated`" in refused.message


async def test_sessions_join_together_without_those_that_need_more(
    daemon: DaemonInProcess, member: ScriptedMember
) -> None:
    member.held = {"theirs"}
    async with daemon.running():
        asked = Join(sessions=("mine", "theirs"))
        assert await ask(daemon, "j", asked) == Joined(left=["theirs"])
        assert member.joined == ["mine", "theirs"]
        for session in ("../x", "elsewhere:x"):
            name = f"j{len(session)}"
            await ask_for(ErrorReply, daemon, name, Join(sessions=("mine", session)))
        assert member.joined == ["mine", "theirs"]


async def test_replicated_is_said_to_those_who_asked_for_it(daemon: DaemonInProcess) -> None:
    async with daemon.running():
        await written(daemon)
        asked = await ask_for(Ack, daemon, "b", append("k2", durability="replicated"), LINE)
        assert asked.durability == "replicated"
        plain = await ask_for(Ack, daemon, "c", append("k3"), LINE)
        assert plain.durability == "synced"


async def test_a_daemon_without_a_cluster_says_so() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        assert await ask(daemon, "c", Cluster()) == ClusterReport()
        for asked in (HandOver(session=SESSION, host="two"), Join(sessions=(SESSION,))):
            refused = await ask_for(ErrorReply, daemon, type(asked).__name__, asked)
            assert "in no cluster" in refused.message

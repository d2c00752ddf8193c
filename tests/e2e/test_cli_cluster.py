"""`steno cluster` with a daemon that reports a cluster by a script."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from steno_protocol import commands, replies
from steno_protocol.errors import ErrorCode
from steno_protocol.limits import JOIN_SESSIONS_MAX
from steno_protocol.messages import Request
from support.command import Ran, Steno
from support.scripted_daemon import Answers, ScriptedDaemon

HERE = replies.ClusterHost(host="aa11", endpoint="ipc:///a", heard_s=0.0, alive=True)
THERE = replies.ClusterHost(host="bb22", endpoint="ipc:///b", heard_s=0.2, alive=True)


class Cluster(ScriptedDaemon):
    """A daemon with two sessions, of which its cluster has what was used.

    Attributes:
        owners: the owner of each session that the cluster has.
        here: the sessions of its root.
        elsewhere: sessions without files here.
        refused: sessions that it cannot replicate.
        troubles: the trouble of sessions.
        trouble: why it cannot list sessions.
        has_cluster: it is in a cluster.
        is_old: it is from before the command `join`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self._scripted)
        self.owners = {"demo": HERE}
        self.here = ["demo", "kimi:x", "old-1", "old-2"]
        self.elsewhere: list[str] = []
        self.refused: set[str] = set()
        self.troubles: dict[str, str] = {}
        self.trouble = ""
        self.has_cluster = True
        self.is_old = False

    def _scripted(self, request: Request) -> Answers | None:
        command = request.command
        match command:
            case commands.Cluster():
                return [(self._report(command), None)]
            case commands.HandOver():
                self.owners[command.session] = THERE
                return [(replies.Done(), None)]
            case commands.Join():
                return [(self._joined(command.sessions), None)]
            case commands.List():
                listed = [_entry(name) for name in self.here if name.startswith(command.prefix)]
                listed += [_entry(name, THERE.endpoint) for name in self.elsewhere]
                return [(replies.Sessions(sessions=listed), None)]
            case commands.Stat():
                return [(self._used(command.session, _stat_of(command.session)), None)]
            case commands.Streams():
                return [(self._used(command.session, replies.StreamList(streams=[])), None)]
            case _:
                return None

    def _report(self, command: commands.Cluster) -> replies.ClusterReport:
        if not self.has_cluster:
            return replies.ClusterReport()
        names = sorted(
            name for name in self.owners
            if name.startswith(command.prefix) and name > (command.after or "")
        )  # fmt: skip
        found = [
            replies.ClusterSession(
                session=name, host=self.owners[name].host, endpoint=self.owners[name].endpoint,
                changed_at=1.0, messages=2, trouble=self.troubles.get(name, ""),
            )
            for name in names[: command.limit]
        ]  # fmt: skip
        return replies.ClusterReport(
            cluster="team", host="aa11", endpoint="ipc:///a", server="n1", hosts=(HERE, THERE),
            sessions=tuple(found), more=len(names) > command.limit > 0, trouble=self.trouble,
        )  # fmt: skip

    def _joined(self, sessions: Sequence[str]) -> replies.Reply:
        if self.is_old:
            return replies.ErrorReply(code=ErrorCode.BAD_REQUEST, message="it has no such command")
        joined = [each for each in sessions if each not in self.refused]
        self.owners |= dict.fromkeys(joined, HERE)
        return replies.Joined(left=[each for each in sessions if each in self.refused])

    def _used(self, session: str, reply: replies.Reply) -> replies.Reply:
        if session in self.refused:
            return replies.ErrorReply(
                code=ErrorCode.STORAGE_FAILED, message="the stream is full", session=session
            )
        if session not in self.here:
            return replies.ErrorReply(
                code=ErrorCode.NOT_FOUND, message="there is no such session", session=session
            )
        self.owners.setdefault(session, HERE)
        return reply


def _stat_of(session: str, *, stale: bool = False) -> replies.SessionStat:
    return replies.SessionStat(
        session=session, head="0:1", bytes=1, generation=0, token_count=0,
        token_count_with_pending=0, n_checkpoints=0, has_system_prompt=False, created=False,
        stamp=True, folder="/x", incarnation="i", stale=stale,
    )  # fmt: skip


def _entry(session: str, owner: str | None = None) -> replies.SessionEntry:
    size = 1 if owner is None else 0
    return replies.SessionEntry(
        session=session, bytes=size, modified_at=1.0, generations=size, owner=owner
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def run(root: Path, cluster: Cluster) -> Callable[..., Ran]:
    """The command at the scripted daemon."""
    return partial(Steno(root), "--endpoint", cluster.endpoint)


def test_the_status_lists_sessions_up_to_a_limit(cluster: Cluster, run: Callable[..., Ran]) -> None:
    cluster.owners = {f"s-{number:02}": HERE for number in range(30)}
    assert run("cluster", "status").out.count("s-") == 20
    shown = run("cluster", "status", "-n", "2", "s-1", "--json").document
    assert [each["session"] for each in shown["sessions"]] == ["s-10", "s-11"]
    assert shown["more"] is True
    assert [host["host"] for host in shown["hosts"]] == ["aa11", "bb22"]


@pytest.mark.parametrize("words", [["status"], ["move", "demo", "bb22"], ["join"]])
def test_a_daemon_without_a_cluster_is_refused_with_what_to_do(
    cluster: Cluster, run: Callable[..., Ran], words: list[str]
) -> None:
    cluster.has_cluster = False
    ran = run("cluster", *words)
    assert (ran.code, "`steno cluster config` prints one" in ran.err) == (1, True)


def test_a_session_moves_once(cluster: Cluster, run: Callable[..., Ran]) -> None:
    moved = run("cluster", "move", "demo", "bb", "--json").document
    assert (moved["moved"], moved["from"], moved["to"]) == (True, "ipc:///a", "ipc:///b")
    again = run("cluster", "move", "demo", "ipc:///b")
    assert (again.code, "ipc:///b owns demo already" in again.err) == (0, True)
    asked = [each for each in cluster.requests if isinstance(each, commands.HandOver)]
    assert [(each.session, each.host) for each in asked] == [("demo", "bb22")]


def test_a_session_that_is_nowhere_does_not_move(run: Callable[..., Ran]) -> None:
    ran = run("cluster", "move", "nothing", "bb22")
    assert (ran.code, "there is no such session" in ran.err) == (4, True)


@pytest.mark.parametrize("is_old", [False, True])
def test_the_sessions_that_the_cluster_lacks_join_together_and_a_join_may_be_repeated(
    cluster: Cluster, run: Callable[..., Ran], *, is_old: bool
) -> None:
    cluster.is_old = is_old
    done = run("cluster", "join", "--json").document
    assert done == {"joined": ["old-1", "old-2"], "there": 1, "left_out": []}
    asked = [each.sessions for each in cluster.requests if isinstance(each, commands.Join)]
    assert asked == [("old-1", "old-2")]
    used = [each.session for each in cluster.requests if isinstance(each, commands.Streams)]
    assert used == (["old-1", "old-2"] if is_old else [])
    again = run("cluster", "join")
    assert (again.code, "0 sessions joined, 3 were there already" in again.err) == (0, True)


def test_many_sessions_join_in_several_requests(cluster: Cluster, run: Callable[..., Ran]) -> None:
    names = [f"s-{number:03}" for number in range(JOIN_SESSIONS_MAX + 3)]
    cluster.here = names
    assert run("cluster", "join", "--json").document["joined"] == names
    asked = [each.sessions for each in cluster.requests if isinstance(each, commands.Join)]
    assert [len(each) for each in asked] == [JOIN_SESSIONS_MAX, 3]


def test_a_session_that_cannot_join_does_not_stop_the_others(
    cluster: Cluster, run: Callable[..., Ran]
) -> None:
    cluster.refused = {"old-1"}
    ran = run("cluster", "join")
    assert ran.code == 1
    assert "old-1 did not join: the stream is full" in ran.err
    assert "1 session joined" in ran.err


def test_a_session_in_trouble_is_named_and_does_not_stop_the_others(
    cluster: Cluster, run: Callable[..., Ran]
) -> None:
    cluster.troubles = {"demo": "rename it"}
    ran = run("cluster", "join", "--json")
    assert (ran.code, ran.document) == (1, {
        "joined": ["old-1", "old-2"], "there": 0,
        "left_out": [{"session": "demo", "why": "rename it"}],
    })  # fmt: skip
    again = run("cluster", "join")
    assert again.code == 1
    assert "demo is in trouble: rename it" in again.err
    assert "0 sessions joined, 2 were there already" in again.err


def test_sessions_of_other_hosts_were_not_there_already(
    cluster: Cluster, run: Callable[..., Ran]
) -> None:
    cluster.owners |= {"theirs": THERE, "kimi": THERE}
    cluster.elsewhere = ["theirs", "kimi"]
    cluster.troubles = {"theirs": "message 6 is not steno's"}
    ran = run("cluster", "join")
    assert (ran.code, "2 sessions joined, 1 were there already" in ran.err) == (0, True)


def test_nothing_joins_if_the_cluster_lists_no_sessions(
    cluster: Cluster, run: Callable[..., Ran]
) -> None:
    cluster.owners, cluster.trouble = {}, "no server is reached"
    ran = run("cluster", "join")
    assert (ran.code, "could not be listed: no server is reached" in ran.err) == (1, True)
    joins = (commands.Join, commands.Streams)
    assert not any(isinstance(each, joins) for each in cluster.requests)


@pytest.mark.parametrize(
    "words", ["sessions", "stat demo", "show demo", "show demo --json", "read demo", "tail demo"]
)
def test_a_command_says_once_that_what_it_read_may_be_old(
    root: Path, tmp_path: Path, words: str
) -> None:
    shown: list[str] = []
    for is_stale in (False, True):
        with ScriptedDaemon(tmp_path, partial(_read, is_stale)) as daemon:
            ran = Steno(root)("--endpoint", daemon.endpoint, *words.split())
        assert ran.code == 0
        assert ran.err.count("may be older than what other hosts have") == is_stale
        shown.append(ran.out)
    assert shown[0] == shown[1] != ""


def _read(is_stale: bool, request: Request) -> Answers | None:
    """The replies to commands that read a session of one record."""
    line = b'{"role":"user","content":"hi"}\n'
    match request.command:
        case commands.List():
            return [(replies.Sessions(sessions=[_entry("demo")], stale=is_stale), None)]
        case commands.Stat():
            return [(_stat_of("demo", stale=is_stale), None)]
        case commands.Read(after=after):
            block = b"" if after == "0:1" else line
            read = replies.Lines(
                first="0:0", next="0:1", head="0:1", offset=len(line), stale=is_stale
            )
            return [(read, block)]
        case commands.Timeline():
            return [(replies.TimelineReport(entries=[], stale=is_stale), None)]
        case commands.Streams():
            return [(replies.StreamList(streams=[]), None)]
        case _:
            return None


def test_the_state_of_the_daemon_names_its_cluster(
    cluster: Cluster, run: Callable[..., Ran]
) -> None:
    status = replies.StatusReport(
        version="1", protocol=2, pid=1, root="/r", endpoint="ipc:///a", remote_endpoint=None,
        uptime_s=1.0, mounts={}, sessions_open=0, clients=1, queued=0, appended_records=0, syncs=0,
        sync_s=0.0, slowest_sync_s=0.0, dropped=0, ignored=0, draining=False,
    )  # fmt: skip
    answer = cluster.script

    def with_status(request: Request) -> Answers | None:
        is_status = isinstance(request.command, commands.Status)
        return [(status, None)] if is_status else answer(request)

    cluster.script = with_status
    assert "cluster         team; replicated" in run("status").out
    assert run("status", "--json").document["cluster"]["cluster"] == "team"
    cluster.has_cluster = False
    assert run("status", "--json").document["cluster"] is None


def test_the_files_are_written_once(root: Path, tmp_path: Path) -> None:
    steno, folder = Steno(root), tmp_path / "files"
    words = ("cluster", "config", "--nodes", "3", "--folder", str(folder))
    assert steno(*words).out.splitlines() == [
        str(folder / name) for name in ("n1.conf", "n2.conf", "n3.conf", "config.toml")
    ]
    again = steno(*words)
    assert again.code == 1
    assert "n1.conf exists" in again.err
    assert json.loads(steno("cluster", "config", "--json").out)["files"]["n1.conf"] == (
        (folder / "n1.conf").read_text()
    )


def test_replicated_is_refused_without_a_cluster(steno: Steno) -> None:
    assert steno("open", "demo").code == 0
    ran = steno("append", "demo", "hi", "--durability", "replicated", "--json")
    assert ran.error["code"] == "bad_request"
    assert "this daemon is in no cluster" in ran.error["message"]
    assert steno("stat", "demo", "--json").document["head"] == "0:0"

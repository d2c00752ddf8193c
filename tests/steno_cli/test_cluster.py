"""The parts of `steno cluster` that need no daemon: files, hosts, findings and the report."""

import io
import os
import tomllib
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

import pytest

from steno_cli.cluster.report import report_lines
from steno_cli.cluster.server_files import Plan, files_of
from steno_cli.commands import cluster
from steno_cli.commands.cluster import host_meant
from steno_cli.demo.agents import apart_from_clusters
from steno_cli.doctor.cluster import findings_about, promise
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_protocol.errors import BadRequest, NotFound, Unreachable
from steno_protocol.replies import (
    ClusterHost,
    ClusterReplica,
    ClusterReport,
    ClusterSession,
    ClusterStream,
    StreamList,
)
from steno_protocol.settings import read_settings

HERE = ClusterHost(host="aa11", endpoint="tcp://10.0.0.5:7117", heard_s=0.0, alive=True)
THERE = ClusterHost(host="ab22", endpoint="tcp://10.0.0.6:7117", heard_s=0.2, alive=True)
GONE = ClusterHost(host="cc33", endpoint="tcp://10.0.0.7:7117", heard_s=59.0, alive=False)
REPLICAS = (
    ClusterReplica(name="n1", leader=True, syncing="always"),
    ClusterReplica(name="n2", syncing="always"),
    ClusterReplica(name="n3", syncing="always"),
)
FOREIGN = ClusterSession(
    session="demo", host="", endpoint="", changed_at=0.0, messages=7,
    trouble="message 6 is not steno's: remove it",
)  # fmt: skip


def _report(**changes: object) -> ClusterReport:
    fields: dict[str, object] = {
        "cluster": "team", "host": "aa11", "endpoint": HERE.endpoint, "server": "10.0.0.1:4222",
        "hosts": (HERE, THERE, GONE),
        "streams": (ClusterStream(name="STENO_team_0", replicas=REPLICAS, sessions=3, messages=9),),
        **changes,
    }  # fmt: skip
    return ClusterReport(**fields)  # type: ignore[arg-type]


def _shown(report: ClusterReport) -> str:
    return "\n".join(report_lines(Output(io.StringIO(), io.StringIO()), report, 100.0))


# --- the files -----------------------------------------------------------------------------------


def test_the_files_of_three_servers_name_each_other_and_sync_before_an_answer() -> None:
    files = files_of(Plan("team", 3, ("10.0.0.1", "10.0.0.2", "10.0.0.3"), ("10.0.0.5",)))
    assert list(files) == ["n1.conf", "n2.conf", "n3.conf", "10.0.0.5.toml"]
    for number in (1, 2, 3):
        text = files[f"n{number}.conf"]
        assert f'listen: "10.0.0.{number}:4222"' in text
        assert f'http: "10.0.0.{number}:8222"' in text
        assert "\n  sync_interval: always\n" in text
        for other in (1, 2, 3):
            assert f'"nats://10.0.0.{other}:6222"' in text


def test_the_servers_of_one_machine_have_different_ports() -> None:
    files = files_of(Plan("team", 3))
    assert [f'listen: "127.0.0.1:{4222 + node}"' in files[f"n{node + 1}.conf"] for node in range(3)]
    servers = tomllib.loads(files["config.toml"])["replication"]["servers"]
    assert servers == [f"nats://127.0.0.1:{port}" for port in (4222, 4223, 4224)]


def test_a_daemon_accepts_the_table_of_its_host() -> None:
    text = files_of(Plan("team", 3, ("a", "b", "[::1]"), ("10.0.0.5",)))["10.0.0.5.toml"]
    settings = read_settings(text, "config.toml", {})
    assert settings.text("replication.cluster") == "team"
    assert settings.addresses("replication.servers") == (
        "nats://a:4222", "nats://b:4222", "nats://[::1]:4222",
    )  # fmt: skip
    assert settings.text("replication.advertise") == "tcp://10.0.0.5:7117"
    assert settings.text("network.listen") == "tcp://10.0.0.5:7117"
    assert not settings.is_on("replication.lazy_sync")


def test_one_server_is_said_to_survive_nothing() -> None:
    files = files_of(Plan("team", 1))
    settings = read_settings(files["config.toml"], "config.toml", {})
    assert settings.is_on("replication.lazy_sync")
    assert settings.count("replication.replicas") == 1
    assert "cluster {" not in files["n1.conf"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan("team", 2), "3 or 5 servers"),
        (Plan("team", 4), "3 or 5 servers"),
        (Plan("team", 3, ("a", "b", "c:4222")), "without a port"),
        (Plan("team", 3, hosts=('x"',)), "without a port"),
        (Plan("a.b", 3), "has to be up to 32 letters"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        files_of(plan)


# --- the hosts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["tcp://10.0.0.6:7117", "tcp://10.0.0.6", "ab22", "ab"])
def test_a_host_is_meant_by_its_endpoint_its_identity_or_a_beginning(word: str) -> None:
    assert host_meant(_report(), word) == THERE


@pytest.mark.parametrize(
    ("word", "error", "words"),
    [
        ("nowhere", NotFound, "no host of the cluster team is 'nowhere': choose from tcp://10.0"),
        ("a", NotFound, "several hosts begin with 'a'"),
        ("cc33", Unreachable, "was last heard 59 s ago"),
    ],
)
def test_a_word_that_means_no_living_host_is_refused(
    word: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        host_meant(_report(), word)


# --- findings and the report ---------------------------------------------------------------------


def test_a_healthy_cluster_has_no_findings() -> None:
    assert [*findings_about(_report())] == []
    assert promise(_report()) == "replicated: an acknowledged record is on a majority of 3 servers"


def _stream(**changes: object) -> tuple[ClusterStream, ...]:
    return (ClusterStream(name="s", **{"replicas": REPLICAS, **changes}),)  # type: ignore[arg-type]


def _without(*down: ClusterReplica) -> ClusterReport:
    """A cluster in which these replicas take the places of the last ones."""
    return _report(streams=_stream(replicas=(*REPLICAS[: 3 - len(down)], *down)))


@pytest.mark.parametrize(
    ("report", "state", "words"),
    [
        (_report(server="", trouble="refused"), "problem", "no server of the cluster is connected"),
        (_report(trouble="timed out"), "warning", "the servers of the cluster failed: timed out"),
        (_report(broken_promises=("n1 is lazy",)), "warning", "may be lost with a server: n1 is"),
        (_report(sessions=(FOREIGN,)), "problem", "session demo is in trouble: message 6 is"),
        (_report(streams=_stream(trouble="silent")), "problem", "no server answered for the stre"),
        (_report(streams=_stream(bytes=90, bytes_max=100)), "warning", "90 B of the 100 B"),
        (_without(ClusterReplica(name="n9", offline=True)), "warning", "the server n9 is down"),
        (_without(ClusterReplica(name="n9", current=False)), "warning", "the server n9 is down"),
    ],
)
def test_each_fault_of_a_cluster_is_a_finding_with_a_remedy(
    report: ClusterReport, state: str, words: str
) -> None:
    (finding,) = findings_about(report)
    assert finding.state == state
    assert words in finding.text
    assert finding.remedy
    assert words in _shown(report)


def test_without_most_servers_nothing_is_acknowledged() -> None:
    down = (ClusterReplica(name="n2", current=False), ClusterReplica(name="n3", offline=True))
    report = _without(*down)
    first, *others = findings_about(report)
    assert (first.state, first.text) == ("problem", "most servers of the stream s are down")
    assert len(others) == 2
    assert promise(report).startswith("no majority of the servers answers")


def test_a_stream_without_a_bound_is_never_nearly_full() -> None:
    assert [*findings_about(_report(streams=_stream(bytes=10**12)))] == []


def test_the_promise_is_broken_without_a_server_and_with_a_lazy_one() -> None:
    assert promise(_report(server="")).startswith("no server is connected")
    assert promise(_report(streams=_stream(trouble="silent"))).startswith("no majority")
    assert promise(_report(broken_promises=("lazy",))).startswith("not replicated safely")


def test_the_report_has_hosts_servers_and_the_owners_of_sessions() -> None:
    owned = ClusterSession(
        session="demo", host="ab22", endpoint=THERE.endpoint, changed_at=97.0, messages=7
    )
    shown = _shown(
        _report(
            sessions=(owned,), more=True, takeovers=2, fenced=3, in_doubt=1, last_takeover="demo",
            last_takeover_at=0.0, last_takeover_s=2.5,
        )
    ).splitlines()  # fmt: skip
    cells = [line.split() for line in shown]
    assert ["aa11", "this", "host", "-", "tcp://10.0.0.5:7117"] in cells
    assert ["cc33", "silent", "59", "s", "tcp://10.0.0.7:7117"] in cells
    assert "n1  STENO_team_0  leader    current  0  always" in shown
    assert "3 s ago  ab22  7  demo" in shown
    assert any(line.startswith("takeovers  2, the last of demo at ") for line in shown)
    assert "refused    3 commits of a stale owner, 1 in doubt" in shown
    assert shown[-1].startswith("more sessions follow")


def test_a_session_whose_owner_is_unknown_has_no_time_of_a_change() -> None:
    assert "-  -  7  demo" in _shown(_report(sessions=(FOREIGN,)))


def test_a_session_that_was_only_read_did_not_join_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = {"new": StreamList(streams=[]), "old": StreamList(streams=[], stale=True)}
    parts = {
        "stop_daemon": lambda _: Namespace(root=tmp_path),
        "write_request": lambda *_: None,
        "patient": lambda options: options,
        "linked": lambda _: None,
        "BlockingClient": lambda _: nullcontext(),
        "_report": lambda *_: None,
        # An old copy of the stream has both.
        "_comparison": lambda *_: cluster._Comparison(["new", "old"], [], {}),
        "answers": lambda _, asked, *__: (read[each.session] for each in asked),
    }
    for name, part in parts.items():
        monkeypatch.setattr(cluster, name, part)
    output = Output(io.StringIO(), errors := io.StringIO())
    options = Namespace(prefix="", create=False, again=True)
    assert cluster.join(options, output) == Exit.FAILED
    assert "old did not join: the daemon did not replicate it" in errors.getvalue()
    assert "new did not join" not in errors.getvalue()


def test_a_trial_joins_no_cluster_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STENO_REPLICATION_CLUSTER", "team")
    monkeypatch.setenv("STENO_LOG_LEVEL", "debug")
    with apart_from_clusters():
        assert "STENO_REPLICATION_CLUSTER" not in os.environ
        assert os.environ["STENO_LOG_LEVEL"] == "debug"
    assert os.environ["STENO_REPLICATION_CLUSTER"] == "team"

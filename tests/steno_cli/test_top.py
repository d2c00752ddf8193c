"""The activity between two reports of a daemon, and its picture."""

import io
import re
from typing import Any, cast

import anyio
import msgspec
import pytest
from rich.console import Console

from steno_cli.top.activity import SORTS, Activity, Report, activity
from steno_cli.top.screen import Screen
from steno_cli.top.source import Source
from steno_protocol.errors import BadRequest, Busy, OutcomeUnknown, ShuttingDown, Unreachable
from steno_protocol.replies import (
    ClientEntry,
    ClientsReport,
    HistogramReport,
    OpenSession,
    StatsReport,
)

DAEMON = (4711, 1000.0)
BOUNDS = [0.001, 0.01]
HOSTILE = "\x1b]0;gotcha\x07[bold red]x[/] :smile: \u202ertl\nnext"


def histogram(*counts: int, total: float = 0.0) -> HistogramReport:
    return HistogramReport(bounds=BOUNDS, counts=[*counts], total=total)


def report(
    uptime_s: float,
    *sessions: OpenSession,
    clients: tuple[ClientEntry, ...] = (),
    daemon: tuple[int, float] = DAEMON,
    **counters: object,
) -> Report:
    """A report with these counters, and all others 0."""
    plain = StatsReport(
        uptime_s=uptime_s, appended_records=0, appended_bytes=0, groups=histogram(0, 0, 0),
        sync_s=histogram(0, 0, 0), slow_syncs=0, rewrites={}, errors={}, dropped=0, lagged=0,
        ignored=0, queued=0, queued_most=0, queued_bytes=0, sessions_open=len(sessions),
        clients=len(clients), subscribers=0, open_files=0, resident_bytes=0, sessions=sessions,
    )  # fmt: skip
    stats = msgspec.structs.replace(plain, **counters)
    return Report(daemon, stats, ClientsReport(clients=[*clients]))


def ids(now: Activity) -> list[str]:
    return [row.session for row in now.sessions]


def shown(
    before: Report | None, after: Report, width: int = 80, height: int | None = 24, **more: Any
) -> list[str]:
    """The lines of a screen, with their colours."""
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=True, color_system="standard",
        markup=False, emoji=False, highlight=False,
    )  # fmt: skip
    now = activity(before, after)
    screen = {"titles": {}, "width": width, "height": height, "fitted": str, **more}
    console.print(Screen("0.1.0, pid 4711", now, after.stats, **screen))
    return file.getvalue().splitlines()


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in lines]


def test_rates_are_differences_divided_by_the_time_between_the_reports() -> None:
    before = report(10.0, appended_records=100, appended_bytes=5000, sync_s=histogram(5, 0, 0))
    after = report(
        12.0, appended_records=140, appended_bytes=9000, sync_s=histogram(103, 2, 0, total=0.05)
    )
    now = activity(before, after)
    assert (now.span_s, now.records_s, now.bytes_s) == (2.0, 20.0, 2000.0)
    assert (now.syncs.per_s, now.syncs.mean_s, now.syncs.most_s) == (50.0, 0.0005, 0.01)


def test_a_sync_beyond_all_buckets_has_no_bound() -> None:
    before, after = report(1.0), report(2.0, sync_s=histogram(0, 0, 3, total=90.0))
    now = activity(before, after)
    assert (now.syncs.most_s, now.syncs.mean_s) == (None, 30.0)
    screen = "".join(plain(shown(before, after)))
    assert "3.0/s, 30000.00 ms each, 1 % or more over 0.01 s" in screen


def test_a_first_report_and_one_of_another_daemon_have_no_rates() -> None:
    after = report(5.0, OpenSession(session="demo", appended_records=7), appended_records=7)
    earlier = report(90.0, appended_records=1000, daemon=(42, 1.0))
    for before in (None, earlier):
        now = activity(before, after)
        assert (now.span_s, now.records_s, now.sessions[0].records_s) == (None, 0.0, 0.0)
        assert now.errors == {}
        assert "no rates yet" in "".join(plain(shown(before, after)))


def test_two_reports_of_the_same_instant_have_no_rates() -> None:
    assert activity(report(5.0), report(5.0, appended_records=7)).records_s == 0.0


def test_a_session_that_was_opened_again_counts_from_zero() -> None:
    before = report(1.0, OpenSession(session="demo", appended_records=50, appended_bytes=500))
    after = report(
        2.0,
        OpenSession(session="demo", appended_records=3, appended_bytes=30),
        OpenSession(session="new", appended_records=4),
    )
    rates = {row.session: row.records_s for row in activity(before, after).sessions}
    assert rates == {"demo": 3.0, "new": 4.0}


def test_errors_are_those_of_the_interval() -> None:
    before = report(1.0, errors={"busy": 2, "conflict": 1})
    after = report(2.0, errors={"busy": 2, "conflict": 4, "not_found": 1})
    assert activity(before, after).errors == {"conflict": 3, "not_found": 1}


def test_clients_are_matched_by_their_connection() -> None:
    one = ClientEntry(name="coder", pid=1, requests=100, connection=1, subscriptions=["demo"])
    before = report(1.0, clients=(one,))
    again = msgspec.structs.replace(one, requests=110)
    other = ClientEntry(name="coder", pid=1, requests=30, connection=2, subscriptions=["demo"])
    now = activity(before, report(2.0, OpenSession(session="demo"), clients=(again, other)))
    assert [row.requests_s for row in now.clients] == [30.0, 10.0]
    assert (now.requests_s, now.sessions[0].followers) == (40.0, 2)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("rate", ["b", "c", "d", "a"]),
        ("bytes", ["c", "b", "d", "a"]),
        ("queue", ["d", "b", "c", "a"]),
        ("followers", ["a", "b", "c", "d"]),
        ("changed", ["a", "b", "c", "d"]),
        ("id", ["a", "b", "c", "d"]),
    ],
)
def test_sessions_are_in_the_wanted_order(order: str, expected: list[str]) -> None:
    sessions = (
        OpenSession(session="d", queued=5, idle_s=4.0),
        OpenSession(session="b", appended_records=9, appended_bytes=1, idle_s=2.0),
        OpenSession(session="c", appended_records=2, appended_bytes=8, idle_s=3.0),
        OpenSession(session="a", idle_s=1.0),
    )
    follower = ClientEntry(connection=1, subscriptions=["a"])
    now = activity(report(1.0), report(2.0, *sessions, clients=(follower,)), order)
    assert ids(now) == expected


def test_every_order_has_a_test() -> None:
    (mark,) = test_sessions_are_in_the_wanted_order.pytestmark  # type: ignore[attr-defined]  # of pytest
    assert {case[0] for case in mark.args[1]} == {*SORTS}


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (40, 12), (20, 5)])
def test_a_screen_fits_its_terminal(width: int, height: int) -> None:
    sessions = [OpenSession(session=f"kimi:{'0' * 32}/{n:032x}", by="agent") for n in range(100)]
    clients = tuple(ClientEntry(name=f"agent-{n}", connection=n) for n in range(100))
    now = report(1.0, *sessions, clients=clients, errors={"conflict": 3})
    titles = {each.session: "A title " * 40 for each in sessions}
    lines = plain(
        shown(None, now, width, height, titles=titles, trouble="no answer", keys="q: quit")
    )
    assert max(map(len, lines)) <= width
    if height >= 24:
        assert len(lines) <= height
        assert lines[-1].startswith("q: quit; ")
        assert f"{sum('kimi:' in line for line in lines)} of 100 sessions" in lines[-1]


def test_a_narrow_screen_shows_ids_and_rates() -> None:
    session = OpenSession(session="team/planner-1", by="agent", queued=3)
    client = ClientEntry(name="root@cli", connection=1, pid=41)
    now = report(1.0, session, clients=(client,))
    lines = plain(shown(None, now, 40, 24))
    (row,) = (line for line in lines if "team/planner-1" in line)
    assert max(map(len, lines)) <= 40
    assert "agent" not in row
    assert any(line.split() == ["SESSION", "RECORDS/S", "IDLE"] for line in lines)
    assert any(line.split()[:3] == ["CLIENT", "REQUESTS/S", "FOLLOWS"] for line in lines)


def test_no_text_of_a_client_controls_the_terminal() -> None:
    session = OpenSession(session="demo" + HOSTILE, by="by" + HOSTILE)
    client = ClientEntry(name="name" + HOSTILE, key="key" + HOSTILE, connection=1)
    now = report(1.0, session, clients=(client,), errors={"code" + HOSTILE: 1})
    titles = {session.session: "title" + HOSTILE}
    lines = shown(None, now, 400, None, titles=titles)
    text = "\n".join(plain(lines))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    for place in ("demo", "by", "name", "key", "code", "title"):
        assert f"{place}\\x1b]0;gotcha\\x07[bold red]x[/] :smile: \\u202ertl next" in text
    assert "\x1b[1;31mx" not in "".join(lines)


def test_titles_are_shown_where_there_is_room() -> None:
    now = report(1.0, OpenSession(session="demo"))
    titles = {"demo": "Fix the login"}
    assert "Fix the login" in "\n".join(plain(shown(None, now, 160, titles=titles)))
    assert "Fix the login" not in "\n".join(plain(shown(None, now, 80, titles=titles)))


class FailingClient:
    """A client whose requests end with one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def request(self, *_: object) -> None:
        raise self._error


@pytest.mark.parametrize("error", [Unreachable, OutcomeUnknown, ShuttingDown, Busy])
def test_a_daemon_that_is_away_has_no_report(error: type[Exception]) -> None:
    source = Source(cast("Any", FailingClient(error("away"))))
    assert anyio.run(source.report) is None


def test_an_older_daemon_is_to_be_restarted() -> None:
    source = Source(cast("Any", FailingClient(BadRequest("unknown field"))))
    with pytest.raises(BadRequest, match=r"older than this command.*`steno restart`"):
        anyio.run(source.report)


def test_rows_are_dim_while_the_daemon_is_away() -> None:
    now = report(1.0, OpenSession(session="demo", by="planner"))
    for trouble in ("", "no answer"):
        (row,) = [line for line in shown(None, now, trouble=trouble) if "demo" in line]
        assert ("\x1b[2m" in row or "\x1b[2;" in row) is bool(trouble)
        assert (trouble in "\n".join(plain(shown(None, now, trouble=trouble)))) is True

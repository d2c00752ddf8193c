"""The screen of an activity, drawn by rich.

Every text of a client passes through `printable` and becomes a `Text`, so that no escape sequence
and no markup in it has an effect.
"""

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple, cast

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from steno_cli.session_ids import short_ids
from steno_cli.top.activity import Activity, ClientRow, SessionRow
from steno_present.safe_text import printable
from steno_present.wording import count, duration, number, size
from steno_protocol.replies import StatsReport

_WIDE: Final = 110
"""A screen of this width also has room for titles."""

_NARROW: Final = 60
"""A screen below this width shows the ids, the rates and little else: all columns hide the ids."""

_LABEL_COLUMNS: Final = 10

_LONG_ID_CHARACTERS: Final = 36
"""Ids beyond this length are shortened; a UUID is whole."""

_QUEUE_LONG: Final = 100
"""Commands that waited for one file at once; more is worth a look."""

_CLIENTS_SHARE: Final = 3
"""The clients get the third part of the lines, and what the sessions leave over."""

_SPACES: Final = re.compile(r"\s+")

_ACTIVE_S: Final = 60.0
"""Rows without a command for longer are dim."""


class _Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: its title.
        cells: its texts, one a row.
        from_columns: screens below this width lack the column.
        ratio: its share of the room that numbers leave; 0 for numbers, which are right-aligned.
        style: of its cells.
    """

    title: str
    cells: Iterable[str]
    from_columns: int = 0
    ratio: int = 0
    style: str = ""


@dataclass(frozen=True, slots=True)
class Screen:
    """One screen; rich draws it.

    Attributes:
        daemon: the line that names the daemon.
        activity: the activity of the last interval.
        stats: the counters and sizes at its end.
        titles: the known titles of sessions.
        trouble: why the screen is not up to date; empty if it is.
        order: the order of the sessions.
        sessions_max: the number of session lines; None for as many as fit.
        keys: the help on the keys; empty without any.
        width: columns of the screen; None cuts no text.
        height: its lines; None shows all clients.
        fitted: replaces the characters that the terminal cannot show.
    """

    daemon: str
    activity: Activity
    stats: StatsReport
    titles: Mapping[str, str]
    _: KW_ONLY
    trouble: str = ""
    order: str = "rate"
    sessions_max: int | None = None
    keys: str = ""
    width: int | None
    height: int | None
    fitted: Callable[[str], str]

    @property
    def sessions(self) -> Sequence[SessionRow]:
        """The sessions that are shown."""
        return self.activity.sessions[: self._room()[0]]

    def __rich__(self) -> Group:
        sessions, clients = self._room()
        return Group(
            *(self._line(label, text) for label, text in self._header()),
            Text(),
            self._session_table(self.activity.sessions[:sessions]),
            Text(),
            self._client_table(self.activity.clients[:clients]),
            Text(),
            Text(self._footer(sessions, clients), "dim", no_wrap=True, overflow="ellipsis"),
        )

    def _room(self) -> tuple[int, int]:
        """The number of session and of client lines."""
        sessions, clients = len(self.activity.sessions), len(self.activity.clients)
        wanted = sessions if self.sessions_max is None else min(sessions, self.sessions_max)
        if self.height is None:
            return wanted, clients
        # Without the header, two titles, three empty lines and the last line.
        lines = max(2, self.height - len(self._header()) - 6)
        for_clients = min(clients, max(1, lines // _CLIENTS_SHARE))
        for_sessions = min(wanted, lines - for_clients)
        return for_sessions, min(clients, lines - for_sessions)

    def _header(self) -> list[tuple[str, str]]:
        """The labels and texts of the lines above the tables."""
        trouble = [("", self.trouble)] if self.trouble else []
        return [("stenod", self.daemon), *trouble, *_load(self.activity, self.stats)]

    def _line(self, label: str, text: str) -> Text:
        is_odd = {
            "errors": bool(self.activity.errors),
            "queue": self.stats.queued_most > _QUEUE_LONG,
        }
        style = "yellow" if is_odd.get(label) else "" if label else "bold white on red"
        return Text.assemble(
            (label.ljust(_LABEL_COLUMNS), "bold cyan"), (self._clean(text), style),
            no_wrap=True, overflow="ellipsis",
        )  # fmt: skip

    def _session_table(self, rows: Sequence[SessionRow]) -> Table:
        shorts: Mapping[str, str] = {}
        if self.width is not None and any(len(row.session) > _LONG_ID_CHARACTERS for row in rows):
            shorts = short_ids(row.session for row in self.activity.sessions)
        columns = [
            _Column(
                "SESSION", (shorts.get(row.session, row.session) for row in rows), 0, 3, "cyan"
            ),
            _Column("RECORDS/S", (_rate(row.records_s) for row in rows)),
            _Column("BYTES/S", (size(round(row.bytes_s)) for row in rows), _NARROW),
            _Column("QUEUED", (number(row.queued) for row in rows), _NARROW),
            _Column("FOLLOWERS", (number(row.followers) for row in rows), _NARROW),
            _Column("IDLE", (_idle(row.idle_s) for row in rows)),
            _Column("WRITTEN BY", (row.by or "-" for row in rows), _NARROW, 2, "green"),
            _Column("TITLE", (self.titles.get(row.session, "") for row in rows), _WIDE, 5),
        ]
        are_dim = [row.idle_s > _ACTIVE_S for row in rows]
        return self._table(columns, are_dim, expand=self.width is not None)

    def _client_table(self, rows: Sequence[ClientRow]) -> Table:
        """The table of the clients, with the names of their keys if there are any."""
        pids = ("?" if row.pid is None else str(row.pid) for row in rows)
        columns = [
            _Column("CLIENT", (row.name or "?" for row in rows), 0, 2, "green"),
            _Column("PID", pids, _NARROW),
            _Column("REQUESTS/S", (_rate(row.requests_s) for row in rows)),
            _Column("FOLLOWS", (number(row.follows) for row in rows)),
            _Column("FOR", (_connected(row.connected_s) for row in rows), _NARROW),
            _Column("DROPPED", (number(row.dropped) for row in rows), _NARROW),
        ]
        if any(row.key for row in rows):
            columns.append(_Column("KEY", (row.key or "-" for row in rows), 0, 1))
        return self._table(columns, [False for _ in rows], expand=False)

    def _table(self, columns: Iterable[_Column], are_dim: Iterable[bool], *, expand: bool) -> Table:
        table = Table(
            box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=expand, header_style="bold"
        )  # fmt: skip
        shown = [each for each in columns if self.width is None or self.width >= each.from_columns]
        for column in shown:
            table.add_column(
                column.title, style=column.style, ratio=column.ratio or None, no_wrap=True,
                justify="left" if column.ratio else "right", overflow="ellipsis",
            )  # fmt: skip
        for is_dim, *cells in zip(are_dim, *(each.cells for each in shown), strict=True):
            texts = [Text(self._clean(cell)) for cell in cells]
            # Rows of a daemon that does not answer are old.
            table.add_row(*texts, style="dim" if is_dim or self.trouble else None)
        return table

    def _footer(self, sessions: int, clients: int) -> str:
        now = self.activity
        parts = [
            self.keys,
            f"{number(sessions)} of {count(len(now.sessions), 'session')} by {self.order}",
            f"{number(clients)} of {count(len(now.clients), 'client')}",
            "no rates yet" if now.span_s is None else f"rates of {now.span_s:.1f} s",
        ]
        return "; ".join(filter(None, parts))

    def _clean(self, text: str) -> str:
        return self.fitted(_SPACES.sub(" ", printable(text, one_line=True)))


def new_console() -> Console:
    """The console of this process; it interprets nothing in a text."""
    stdout = cast("object", sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")
    return Console(markup=False, emoji=False, highlight=False)


def _load(now: Activity, stats: StatsReport) -> Iterator[tuple[str, str]]:
    memory, files = size(stats.resident_bytes), count(stats.open_files, "open file")
    yield "up for", f"{duration(stats.uptime_s)}, {memory} of memory, {files}"
    appended = count(stats.appended_records, "record")
    bytes_s = size(round(now.bytes_s))
    yield "appends", f"{_rate(now.records_s)} records/s, {bytes_s}/s; {appended} since the start"
    yield "syncs", _syncs(now, stats)
    queued, queued_bytes = count(stats.queued, "command"), size(stats.queued_bytes)
    yield "queue", f"{queued}, {queued_bytes}; {number(stats.queued_most)} for the busiest file"
    growing = number(sum(row.records_s > 0 for row in now.sessions))
    writers = count(sum(each.writers for each in stats.sessions), "writer")
    yield "sessions", f"{number(stats.sessions_open)} open, {growing} growing, {writers}"
    clients, followed = number(stats.clients), count(stats.subscribers, "subscription")
    asked, dropped = _rate(now.requests_s), count(stats.dropped, "message")
    yield "clients", f"{clients}, {followed}, {asked} requests/s, {dropped} dropped"
    errors = f"{_by_code(now.errors)} now; " if now.errors else ""
    yield "errors", f"{errors}{_by_code(stats.errors) or 'none'} since the start"


def _syncs(now: Activity, stats: StatsReport) -> str:
    slow = f"{number(stats.slow_syncs)} slow since the start"
    if now.syncs.mean_s is None:
        return f"none now; {slow}"
    most = f"1 % or more over {stats.sync_s.bounds[-1]:g} s"
    if now.syncs.most_s is not None:
        most = f"99 % within {1000 * now.syncs.most_s:g} ms"
    return f"{_rate(now.syncs.per_s)}/s, {1000 * now.syncs.mean_s:.2f} ms each, {most}; {slow}"


def _by_code(errors: Mapping[str, int]) -> str:
    return ", ".join(f"{number(errors[code])} {code}" for code in sorted(errors))


def _rate(per_s: float) -> str:
    """A rate, with a digit after the point if it is small.

    >>> _rate(0.0), _rate(0.52), _rate(1204.4)
    ('0', '0.5', '1 204')
    """
    if 0 < per_s < 10:
        return f"{max(per_s, 0.1):.1f}"
    return number(round(per_s))


def _idle(seconds: float) -> str:
    """A time span in its largest unit.

    >>> _idle(0.2), _idle(75), _idle(90000)
    ('0 s', '1 min', '1 d')
    """
    for unit_s, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{int(seconds / unit_s)} {name}"
    return f"{int(seconds)} s"


def _connected(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else _idle(seconds)

"""The picture of an activity, drawn by rich.

Every text of a client passes through `printable` and becomes a `Text`, so that no escape sequence
and no markup in it has an effect.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from steno_cli.short_ids import short_ids
from steno_cli.top.activity import Activity, ClientRow, SessionRow
from steno_present.safe_text import printable
from steno_present.wording import count, duration, number, size

_WIDE_COLUMNS: Final = 110
"""A screen of this width also has room for titles."""

_NARROW_COLUMNS: Final = 60
"""A screen below this width shows the ids, the rates and little else: all columns hide the ids."""

_LABEL_COLUMNS: Final = 10

_CLIENTS_SHARE: Final = 3
"""The clients get the third part of the lines, and what the sessions leave over."""

_SPACES: Final = re.compile(r"\s+")

_ACTIVE_S: Final = 60.0
"""Rows without a command for longer are dim."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The contents of one screen.

    Attributes:
        daemon: the line that names the daemon.
        activity: the activity of the last interval.
        titles: the known titles of sessions.
        trouble: why the screen is not up to date; empty if it is.
        order: the order of the sessions.
        sessions_max: the number of session lines; None for as many as fit.
        keys: the help on the keys; empty without any.
    """

    daemon: str
    activity: Activity
    titles: Mapping[str, str]
    trouble: str = ""
    order: str = "rate"
    sessions_max: int | None = None
    keys: str = ""


def room(frame: Frame, height: int | None) -> tuple[int, int]:
    """The number of session and of client lines on a screen of this height; None for all."""
    sessions, clients = len(frame.activity.sessions), len(frame.activity.clients)
    wanted = sessions if frame.sessions_max is None else min(sessions, frame.sessions_max)
    if height is None:
        return wanted, clients
    # Without the header, two titles, three empty lines and the last line.
    lines = max(2, height - len(_header(frame)) - 6)
    for_clients = min(clients, max(1, lines // _CLIENTS_SHARE))
    for_sessions = min(wanted, lines - for_clients)
    return for_sessions, min(clients, lines - for_sessions)


def picture(
    frame: Frame, width: int | None, height: int | None, fitted: Callable[[str], str]
) -> RenderableType:
    """The screen of a frame.

    Args:
        frame: its contents.
        width: columns of the screen; None cuts no text.
        height: its lines; None shows all clients.
        fitted: replaces the characters that the terminal cannot show.
    """
    sessions, clients = room(frame, height)
    draw = _Pen(fitted, frame, width)
    parts: list[RenderableType] = [draw.line(label, text) for label, text in _header(frame)]
    parts += [Text(), draw.sessions(frame.activity.sessions[:sessions])]
    parts += [Text(), draw.clients(frame.activity.clients[:clients])]
    parts += [
        Text(),
        Text(_footer(frame, sessions, clients), "dim", no_wrap=True, overflow="ellipsis"),
    ]
    return Group(*parts)


def _header(frame: Frame) -> list[tuple[str, str]]:
    """The labels and texts of the lines above the tables."""
    lines = [("stenod", frame.daemon)]
    if frame.trouble:
        lines.append(("", frame.trouble))
    lines += _load(frame.activity)
    return lines


def _load(now: Activity) -> Iterator[tuple[str, str]]:
    stats = now.stats
    memory, files = size(stats.resident_bytes), count(stats.open_files, "open file")
    yield "up for", f"{duration(stats.uptime_s)}, {memory} of memory, {files}"
    appended = count(stats.appended_records, "record")
    bytes_s = size(round(now.bytes_s))
    yield "appends", f"{_rate(now.records_s)} records/s, {bytes_s}/s; {appended} since the start"
    yield "syncs", _syncs(now)
    queued, queued_bytes = count(stats.queued, "command"), size(stats.queued_bytes)
    yield "queue", f"{queued}, {queued_bytes}; {number(stats.queued_most)} for the busiest file"
    is_open, writers = number(stats.sessions_open), count(now.writers, "writer")
    yield "sessions", f"{is_open} open, {number(now.writing)} growing, {writers}"
    clients, followed = number(stats.clients), count(stats.subscribers, "subscription")
    asked, dropped = _rate(now.requests_s), count(stats.dropped, "message")
    yield "clients", f"{clients}, {followed}, {asked} requests/s, {dropped} dropped"
    errors = f"{_by_code(now.errors)} now; " if now.errors else ""
    yield "errors", f"{errors}{_by_code(stats.errors) or 'none'} since the start"


def _syncs(now: Activity) -> str:
    slow = f"{number(now.stats.slow_syncs)} slow since the start"
    if now.syncs.mean_s is None or now.syncs.most_s is None:
        return f"none now; {slow}"
    most = f"99 % within {1000 * now.syncs.most_s:g} ms"
    if isinf(now.syncs.most_s):
        most = f"1 % or more over {now.stats.sync_s.bounds[-1]:g} s"
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


def _footer(frame: Frame, sessions: int, clients: int) -> str:
    now = frame.activity
    parts = [
        frame.keys,
        f"{number(sessions)} of {count(len(now.sessions), 'session')} by {frame.order}",
        f"{number(clients)} of {count(len(now.clients), 'client')}",
        "no rates yet" if now.span_s is None else f"rates of {now.span_s:.1f} s",
    ]
    return "; ".join(part for part in parts if part)


class _Pen:
    """Draws the parts of a frame."""

    def __init__(self, fitted: Callable[[str], str], frame: Frame, width: int | None) -> None:
        self._fitted = fitted
        self._frame = frame
        self._is_wide = width is None or width >= _WIDE_COLUMNS
        self._is_narrow = width is not None and width < _NARROW_COLUMNS
        self._is_cut = width is not None

    def line(self, label: str, text: str) -> Text:
        """A line of the header."""
        shown = Text(no_wrap=True, overflow="ellipsis")
        shown.append(label.ljust(_LABEL_COLUMNS), "bold cyan")
        shown.append(self._clean(text), self._style(label))
        return shown

    def _style(self, label: str) -> str:
        now = self._frame.activity
        if not label:
            return "bold white on red"
        if (label == "errors" and now.errors) or (label == "queue" and now.stats.queued_most > 100):
            return "yellow"
        return ""

    def sessions(self, rows: Sequence[SessionRow]) -> Table:
        """The table of the sessions."""
        table = self._table(expand=self._is_cut)
        _add_flexible(table, "SESSION", 3, "cyan")
        numbers = ["RECORDS/S", "IDLE"]
        if not self._is_narrow:
            numbers[1:1] = ["BYTES/S", "QUEUED", "FOLLOWERS"]
        self._add_numbers(table, numbers)
        texts = [] if self._is_narrow else ["WRITTEN BY"]
        if texts:
            _add_flexible(table, "WRITTEN BY", 2, "green")
        if self._is_wide:
            texts.append("TITLE")
            _add_flexible(table, "TITLE", 5)
        shorts = self._shorts(rows)
        for row in rows:
            cells = {
                "SESSION": shorts.get(row.session, row.session),
                "RECORDS/S": _rate(row.records_s),
                "BYTES/S": size(round(row.bytes_s)),
                "QUEUED": number(row.queued),
                "FOLLOWERS": number(row.followers),
                "IDLE": _idle(row.idle_s),
                "WRITTEN BY": row.by or "-",
                "TITLE": self._frame.titles.get(row.session, ""),
            }
            shown = [cells[title] for title in ("SESSION", *numbers, *texts)]
            self._add(table, shown, is_dim=row.idle_s > _ACTIVE_S)
        return table

    def _shorts(self, rows: Sequence[SessionRow]) -> Mapping[str, str]:
        """The short ids among all open sessions, where there is no room for whole ones."""
        if not self._is_cut or not any(len(row.session) > 36 for row in rows):
            return {}
        return short_ids(row.session for row in self._frame.activity.sessions)

    def clients(self, rows: Sequence[ClientRow]) -> Table:
        """The table of the clients, with the names of their keys if there are any."""
        has_keys = any(row.key for row in rows)
        table = self._table(expand=False)
        _add_flexible(table, "CLIENT", 2, "green")
        numbers = ["REQUESTS/S", "FOLLOWS"]
        if not self._is_narrow:
            numbers = ["PID", *numbers, "FOR", "DROPPED"]
        self._add_numbers(table, numbers)
        keys = ["KEY"] if has_keys else []
        if has_keys:
            _add_flexible(table, "KEY", 1)
        for row in rows:
            seconds = row.connected_s
            cells = {
                "CLIENT": row.name or "?",
                "PID": "?" if row.pid is None else str(row.pid),
                "REQUESTS/S": _rate(row.requests_s),
                "FOLLOWS": number(row.follows),
                "FOR": duration(seconds) if seconds >= 10 else _idle(seconds),
                "DROPPED": number(row.dropped),
                "KEY": row.key or "-",
            }
            self._add(table, [cells[title] for title in ("CLIENT", *numbers, *keys)])
        return table

    def _add_numbers(self, table: Table, titles: Sequence[str]) -> None:
        for title in titles:
            table.add_column(title, justify="right", no_wrap=True)

    def _table(self, *, expand: bool) -> Table:
        return Table(
            box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=expand, header_style="bold"
        )  # fmt: skip

    def _add(self, table: Table, cells: Sequence[str], *, is_dim: bool = False) -> None:
        texts = [Text(self._clean(cell)) for cell in cells]
        # Rows of a daemon that does not answer are old.
        table.add_row(*texts, style="dim" if is_dim or self._frame.trouble else None)

    def _clean(self, text: str) -> str:
        return self._fitted(_SPACES.sub(" ", printable(text, one_line=True)))


def _add_flexible(table: Table, title: str, ratio: int, style: str = "") -> None:
    """Add a column that gets a share of the room that the others leave."""
    table.add_column(title, style=style, ratio=ratio, no_wrap=True, overflow="ellipsis")

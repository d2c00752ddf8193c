"""What runs now and what ran today, by project and program.

A look takes the list of the sessions that every page shares. It reads the origin, the last lines
and the tokens only of sessions that were written lately, each again only after a change, and a
bounded number of them: the next look goes on.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from steno import Client
from steno.values import Record
from steno_agents.ledger import AWAY
from steno_agents.origin import Origin
from steno_present.contract import origin as origin_document
from steno_protocol._json import is_array, is_object
from steno_protocol.errors import StenoError
from steno_protocol.positions import Position
from steno_protocol.replies import SessionEntry
from steno_redact.records import masked_entry, masked_record
from steno_redact.redactor import Redactor
from steno_view.limits import (
    LAST_LINES_MAX,
    ORIGINS_A_LOOK_MAX,
    RUNNING_MAX,
    RUNNING_S,
    TODAY_MAX,
    WORDS_CHARS_MAX,
)
from steno_view.origins import Origins
from steno_view.pulse import Pulse
from steno_view.spending import DaySum, SpendingService


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a session.

    Attributes:
        stamp: what changes with the session.
        role: who said the last words.
        words: their beginning.
        failed: the number of failed calls among the last lines.
        error: the beginning of the last one's result.
    """

    stamp: tuple[float, int]
    role: str = ""
    words: str = ""
    failed: int = 0
    error: str = ""


class Dashboard:
    """The first page of a viewer."""

    def __init__(
        self,
        client: Client,
        pulse: Pulse,
        origins: Origins,
        spending: SpendingService,
        redactor: Redactor,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._pulse = pulse
        self._origins = origins
        self._spending = spending
        self._redactor = redactor
        self._clock = clock
        self._ends: dict[str, _End] = {}

    async def look(self) -> dict[str, Any]:
        """The sessions that run, each below its session if it is a subagent's, and today's sums.

        Raises:
            StenoError: the daemon does not answer.
        """
        now = self._clock()
        entries = {each.session: each for each in await self._pulse.sessions()}
        newest = sorted(entries.values(), key=lambda each: each.modified_at, reverse=True)
        running = [each for each in newest if now - each.modified_at < RUNNING_S]
        shown = running[:RUNNING_MAX]
        day = datetime.fromtimestamp(now).astimezone()
        midnight = day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        today = [each for each in newest if each.modified_at >= midnight]
        spent = await self._spending.day(today[:TODAY_MAX], day.date().isoformat())
        for each in shown:
            await self._read_end(each)
        self._ends = {each.session: self._ends[each.session] for each in shown
                      if each.session in self._ends}  # fmt: skip
        is_complete = await self._read_origins([*shown, *today[:TODAY_MAX]])
        return {
            "running": self._families(shown, entries, spent.tokens),
            "not_shown": len(running) - len(shown),
            "projects": self._projects(today[:TODAY_MAX], {e.session for e in running}, spent),
            "today": {
                "sessions": len(today),
                "tokens": spent.total,
                "cost": spent.cost,
                "currency": self._redactor.text(spent.currency),
                "is_complete": spent.is_complete and is_complete and len(today) <= TODAY_MAX,
            },
        }

    # --- what is read -----------------------------------------------------------------------------

    async def _read_end(self, entry: SessionEntry) -> None:
        """Read the last lines of a session, unless it is as it was."""
        stamp = entry.modified_at, entry.bytes
        known = self._ends.get(entry.session)
        if known is not None and known.stamp == stamp:
            return
        session = self._client.session(entry.session)
        try:
            head = Position.parse((await session.stat()).head)
            start = Position(head.generation, max(0, head.line - LAST_LINES_MAX))
            records = [
                masked_record(self._redactor, each) async for each in session.records(start, head)
            ]
        except AWAY:
            raise
        except StenoError:
            # It was deleted or renamed meanwhile, or it is damaged, which its own page says.
            records = []
        self._ends[entry.session] = _end_of(stamp, records)

    async def _read_origins(self, entries: Sequence[SessionEntry]) -> bool:
        """Read the origins of some sessions; returns whether all of them are known."""
        rest = ORIGINS_A_LOOK_MAX
        for entry in entries:
            if self._origins.is_known(entry.session):
                continue
            if not rest:
                return False
            rest -= 1
            try:
                await self._origins.get(entry.session)
            except AWAY:
                raise
            except StenoError:
                continue
        return True

    # --- what is shown ----------------------------------------------------------------------------

    def _families(
        self,
        running: Sequence[SessionEntry],
        entries: Mapping[str, SessionEntry],
        tokens: Mapping[str, int],
    ) -> list[dict[str, Any]]:
        """The sessions that run, with the subagents of each; a session that waits for them, too."""
        families: dict[str, list[SessionEntry]] = {}
        for each in running:
            top = self._above(each.session, entries)
            families.setdefault(top, [])
            if top != each.session:
                families[top].append(each)
        return [
            {
                **self._session(entries[top], tokens),
                "subagents": [self._session(each, tokens) for each in below],
            }
            for top, below in families.items()
        ]

    def _above(self, session: str, entries: Mapping[str, SessionEntry]) -> str:
        """The session whose subagent one is, as far up as there is one; itself otherwise."""
        found = session
        for above in self._ancestors(session):
            if above in entries:
                found = above
        return found

    def _ancestors(self, session: str) -> Iterator[str]:
        above = session
        while "/" in above:
            above = above.rpartition("/")[0]
            yield above
        origin = self._origins.known(session)
        if origin is not None and origin.parent is not None:
            yield f"{session.rpartition('/')[0]}/{origin.parent}"

    def _session(self, entry: SessionEntry, tokens: Mapping[str, int]) -> dict[str, Any]:
        """A session as the page shows it."""
        masked = masked_entry(self._redactor, entry)
        origin = self._origins.known(entry.session)
        end = self._ends.get(entry.session, _End((0.0, 0)))
        return {
            "session": entry.session,
            "title": masked.title,
            "modified_at": entry.modified_at,
            "live": entry.session in self._pulse.followed(),
            "project": _project(masked, origin, self._redactor),
            "origin": origin_document(origin),
            "role": end.role,
            "words": end.words,
            "failed": end.failed,
            "error": end.error,
            "tokens": tokens.get(entry.session),
        }

    def _projects(
        self, today: Sequence[SessionEntry], running: set[str], spent: DaySum
    ) -> list[dict[str, Any]]:
        """The sessions of today, added up by project and program."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in today:
            origin = self._origins.known(entry.session)
            masked = masked_entry(self._redactor, entry)
            project = _project(masked, origin, self._redactor)
            program = "steno" if origin is None else origin.program
            group = found.setdefault(
                (project, program),
                {
                    "project": project, "program": program, "sessions": 0, "running": 0,
                    "tokens": 0, "modified_at": entry.modified_at, "latest": entry.session,
                },
            )  # fmt: skip
            group["sessions"] += 1
            group["running"] += entry.session in running
            group["tokens"] += spent.tokens.get(entry.session, 0)
        return list(found.values())


def _project(entry: SessionEntry, origin: Origin | None, redactor: Redactor) -> str:
    """The directory of a session; the mount of one without; empty if nothing names it."""
    if origin is not None:
        return origin.work_dir or ""
    if entry.work_dir:
        return redactor.text(entry.work_dir)
    mount, colon, _ = entry.session.partition(":")
    return f"{mount}:" if colon else ""


def _end_of(stamp: tuple[float, int], records: Sequence[Record]) -> _End:
    """What the last lines of a session say."""
    role = words = error = ""
    failed = 0
    for each in records:
        record = each.record
        text = _text_of(record.get("content"))
        if record.get("role") in {"user", "assistant"} and text:
            role, words = record["role"], _cut(text)
        elif record.get("role") == "tool" and record.get("is_error") is True:
            failed, error = failed + 1, _cut(text)
    return _End(stamp, role, words, failed, error)


def _text_of(content: object) -> str:
    """The texts of a message, without its thoughts and images."""
    if isinstance(content, str):
        return content
    parts = content if is_array(content) else ()
    texts = (part.get("text") for part in parts if is_object(part) and part.get("type") == "text")
    return " ".join(each for each in texts if isinstance(each, str))


def _cut(text: str) -> str:
    """The beginning of a text on one line."""
    flat = " ".join(text[: 8 * WORDS_CHARS_MAX].split())
    return flat if len(flat) <= WORDS_CHARS_MAX else f"{flat[:WORDS_CHARS_MAX].rstrip()}…"

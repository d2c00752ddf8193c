"""The rollouts of Codex beside one of them: a fork continues another session in its own file."""

import os
import re
import weakref
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path, PurePath
from typing import Any, Final

from steno_agents.codex import Codex
from steno_agents.json_lines import lenient_object
from steno_agents.transcript import text_field
from steno_follow import compressed
from steno_follow.limits import TRANSCRIPT_LINE_BYTES_MAX
from steno_follow.source_tree import SourceTree
from steno_protocol.errors import StenoError

_FOLDERS: Final = ("sessions", "archived_sessions")
"""Codex's folders of rollouts, side by side."""

_ABOVE_MAX: Final = 4
"""From the folder of a day to `sessions`."""

_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class Rollouts:
    """Finds a rollout by the session that it has.

    Args:
        file: the path of a rollout: others are searched in its folder, and in Codex's folders if it
            lies in one of them.
    """

    def __init__(self, file: Path) -> None:
        above = [file.parent, *file.parent.parents][: _ABOVE_MAX + 1]
        home = next((each.parent for each in above if each.name in _FOLDERS), None)
        tops = [] if home is None else [home / each for each in _FOLDERS]
        self._tops = [file.parent, *tops]

    def __call__(self, session: str) -> "Rollout | None":
        """Return the rollout of a session; None if there is none that can be read."""
        if not _ID.fullmatch(session):
            return None
        for path in self._named(session):
            with suppress(OSError, StenoError):
                found = Rollout(path)
                if found.session == session:
                    return found
        return None

    def _named(self, session: str) -> Iterator[Path]:
        """The files whose names have the id."""
        ends = tuple(f"-{session}.jsonl{more}" for more in ("", compressed.SUFFIX))
        for top in self._tops:
            # Links are not followed, and not read.
            for folder, _, names in os.walk(top):
                yield from (Path(folder, name) for name in names if name.endswith(ends))


class Rollout:
    """An open rollout, closed when nothing refers to it any more.

    Attributes:
        session: the id of its session.

    Raises:
        OSError: it cannot be read.
        StenoError: it is no regular file, or is compressed and cannot be read.
    """

    def __init__(self, path: Path) -> None:
        with closing(SourceTree(path.parent)) as folder:
            content = folder.open(PurePath(path.name))
        with compressed.seekable(content, path) as file:
            self._handle = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._handle)
        self.session: str | None = None
        for _, record in self.records():
            if text_field(record, "type") == "session_meta":
                head = Codex()
                head.scan(0, record)
                self.session = head.session
                break

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The records of whole lines with their offsets."""
        with open(self._handle, "rb", closefd=False) as file:  # no path
            file.seek(0)
            offset = 0
            while line := file.readline(TRANSCRIPT_LINE_BYTES_MAX):
                record = lenient_object(line)
                if record is not None:
                    yield offset, record
                offset += len(line)

    def record(self, place: int) -> dict[str, Any] | None:
        """The record of the line at an offset."""
        with open(self._handle, "rb", closefd=False) as file:  # no path
            file.seek(place)
            return lenient_object(file.readline(TRANSCRIPT_LINE_BYTES_MAX))

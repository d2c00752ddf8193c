"""Where sessions come from, for the commands that show or choose them by their program."""

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from steno import BlockingClient, BlockingSession
from steno_cli.arguments import argument
from steno_cli.connection import local_root
from steno_protocol import paths
from steno_protocol.errors import NotFound
from steno_protocol.replies import SessionEntry

if TYPE_CHECKING:
    from steno_agents.origin import Origin
    from steno_redact.redactor import Redactor

_OWN: Final = "steno"
"""The name of the sessions that come from no other program."""

_NOTES: Final = "source"

_SUBAGENTS: Final = "/subagents/"
"""In the ids of subagents."""


def _programs(text: str) -> tuple[str, ...]:
    """The type of --program: short names of programs."""
    from steno_agents.detection import FORMATS  # noqa: PLC0415
    from steno_agents.origin import format_named  # noqa: PLC0415

    found: list[str] = []
    for name in text.split(","):
        given = name.strip()
        program = _OWN if given.lower() == _OWN else format_named(given)
        if program is None:
            known = ", ".join([*(each.stream for each in FORMATS), _OWN])
            raise argparse.ArgumentTypeError(f"there is no program {given!r}: use {known}")
        found.append(program)
    return tuple(found)


program_option = argument(
    "--program", dest="programs", metavar="NAME", type=_programs, default=(),
    help="only sessions of these programs: claude-code,codex ... or steno",
)  # fmt: skip


def origin_of(session: BlockingSession, redactor: "Redactor | None" = None) -> "Origin | None":
    """Return where a session comes from; None if it is steno's own."""
    if not any(each.name == _NOTES for each in session.streams()):
        return None
    # Imported here: most sessions are steno's own, and the readers of all programs are many.
    from steno_agents.origin import read_origin  # noqa: PLC0415

    found = read_origin(session)
    return found if found is None or redactor is None else found.masked(redactor.text)


class Programs:
    """Chooses sessions by the program that they come from.

    The file of a transcript in a session's folder decides. Where the folder is on another machine,
    the label of the import does, or the beginning of the id.

    Args:
        client: of the daemon.
        names: the wanted programs; empty for all.
    """

    def __init__(self, client: BlockingClient, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._of = program_of(client) if self._names else _own

    def chosen(self, entries: Iterable[SessionEntry]) -> Iterator[SessionEntry]:
        """The sessions among some that come from a wanted program."""
        return (each for each in entries if not self._names or self._of(each) in self._names)

    def latest(self, client: BlockingClient) -> str:
        """The session that was changed last; those of subagents are parts of others.

        Raises:
            NotFound: there is none.
        """
        whole = (each for each in client.sessions() if _SUBAGENTS not in each.session)
        found = max(self.chosen(whole), key=_changed, default=None)
        if found is None:
            raise NotFound(
                f"no session comes from {' or '.join(sorted(self._names))}: `steno sessions` lists"
                " all, and `steno import` or `steno watch` brings those of other programs"
            )
        return found.session


def program_of(client: BlockingClient) -> Callable[[SessionEntry], str]:
    """What tells the short name of the program of a session."""
    from steno_agents.detection import FORMATS  # noqa: PLC0415

    formats = [each.stream for each in FORMATS]
    files = local_root(client)

    def by_label(entry: SessionEntry) -> str:
        named = [*entry.labels, entry.session.partition("/")[0]]
        return next((each for each in formats if each in named), _OWN)

    def by_file(entry: SessionEntry) -> str:
        mount, segments = paths.split_session(entry.session)
        if mount is not None:
            return _OWN
        assert files is not None
        folder = Path(files, paths.SESSIONS, *segments)
        return next((each for each in formats if _has(folder, _file_of(each))), _OWN)

    return by_label if files is None else by_file


def _file_of(program: str) -> str:
    return paths.stream_file(program)


def _has(folder: Path, name: str) -> bool:
    return any((folder / each).exists() for each in (name, paths.compressed_file(name)))


def _own(_: SessionEntry) -> str:
    return _OWN


def _changed(entry: SessionEntry) -> tuple[float, str]:
    return entry.modified_at, entry.session


def rows_of(origin: "Origin | None") -> list[tuple[str, str]]:
    """What people read of an origin: names and values, only what is known."""
    if origin is None:
        return []
    states = {"deleted": origin.is_gone, "kept with masks": origin.is_masked}
    what = ", ".join(each for each, is_so in states.items() if is_so)
    path = f"{origin.path} ({what})" if origin.path and what else origin.path
    rows = (
        ("program", origin.program),
        ("file", path),
        ("directory", origin.work_dir),
        ("branch", origin.branch),
        ("model", origin.model),
        ("resume", origin.resume),
    )
    return [(name, value) for name, value in rows if value]

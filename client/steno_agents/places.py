"""The folders in which the programs keep their transcripts."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

_PLACES: Final = (
    ("CLAUDE_CONFIG_DIR", ".claude", ("projects",)),
    ("CODEX_HOME", ".codex", ("sessions", "archived_sessions")),
    ("QWEN_HOME", ".qwen", ("projects",)),
    (None, ".gemini", ("tmp",)),
    ("PI_CODING_AGENT_DIR", ".pi/agent", ("sessions",)),
    (None, ".kimi-code", ("sessions",)),
    (None, ".copilot", ("session-state",)),
)
"""A variable that moves the folder of a program, that folder below the home, and what is in it."""

_DATABASE: Final = ("XDG_DATA_HOME", ".local/share", "opencode/opencode.db")
"""The same for the database of opencode."""

VARIABLES: Final = (
    *(variable for variable, _, _ in _PLACES if variable is not None),
    _DATABASE[0],
)
"""The variables that move folders."""


def places_of(home: PurePath, environ: Mapping[str, str]) -> list[PurePath]:
    """Return the folders of all programs, whether they exist or not.

    >>> [str(each) for each in places_of(PurePath("/srv/me"), {"CODEX_HOME": "/srv/codex"})][:3]
    ['/srv/me/.claude/projects', '/srv/codex/sessions', '/srv/codex/archived_sessions']
    """
    return [
        PurePath(given) / name if (given := environ.get(variable or "")) else home / own / name
        for variable, own, names in _PLACES
        for name in names
    ]


def database_of(home: PurePath, environ: Mapping[str, str]) -> PurePath:
    """Return the database of opencode, whether it exists or not.

    >>> str(database_of(PurePath("/srv/me"), {}))
    '/srv/me/.local/share/opencode/opencode.db'
    """
    variable, own, name = _DATABASE
    given = environ.get(variable)
    return PurePath(given) / name if given else home / own / name

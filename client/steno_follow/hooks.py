"""What the hooks of other agents give to `steno hooks run`, and the transcript that it names.

The JSON is an agent's, and what it names may be anything: only a transcript below the folder of its
program is followed.
"""

import os
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path, PurePath
from typing import IO, Any, Final

from steno import BlockingClient
from steno.values import decode_object
from steno_agents.writers.programs import WRITERS
from steno_follow.limits import (
    HOOK_ATTEMPTS_MAX,
    HOOK_FOLDERS_MAX,
    HOOK_INPUT_BYTES_MAX,
    HOOK_INPUT_S,
    HOOK_RETRY_S,
    HOOK_SETTLE_S,
)
from steno_follow.masking import writing_redactor
from steno_follow.search import find_one
from steno_follow.source_tree import SourceTree
from steno_follow.taking_in import Importer
from steno_protocol import paths
from steno_protocol.errors import Busy

_THREAD: Final = re.compile(r"[0-9a-fA-F-]{8,64}")


def transcript_of(program: str, given: bytes) -> Path | None:
    """Return the transcript that the JSON of a hook names; None if it names none that is there.

    Args:
        program: one of those with hooks.
        given: what the program gave to the hook.
    """
    fields = decode_object(given) or {}
    home = WRITERS[program].home
    moved = os.environ.get(home.variable)
    folder = Path(moved) if moved else Path.home() / home.default
    with suppress(OSError, ValueError):
        found = _FINDERS[program](fields, folder.resolve(strict=True))
        return found if found is not None and found.is_file() else None
    return None


def _of_claude_code(fields: Mapping[str, Any], home: Path) -> Path | None:
    """The file that Claude Code names; links on the way to it are followed before it is checked."""
    named = fields.get("transcript_path")
    if not isinstance(named, str) or not named.endswith(".jsonl"):
        return None
    path = Path(named).resolve(strict=True)
    return path if path.is_relative_to(home / "projects") else None


def _of_codex(fields: Mapping[str, Any], home: Path) -> Path | None:
    """The rollout of a thread, in the folder of the last days."""
    thread = fields.get("thread-id")
    if not isinstance(thread, str) or _THREAD.fullmatch(thread) is None:
        return None
    for day in _days(home / "sessions"):
        for path in day.glob(f"rollout-*-{thread}.jsonl"):
            return path
    return None


def _days(sessions: Path) -> Iterator[Path]:
    """The folders of days, the latest first, up to a bound."""
    days = sorted(sessions.glob("[0-9]*/[0-9]*/[0-9]*"), reverse=True)
    return iter(days[:HOOK_FOLDERS_MAX])


_FINDERS: Final[Mapping[str, Callable[[Mapping[str, Any], Path], Path | None]]] = {
    "claude-code": _of_claude_code,
    "codex": _of_codex,
}


def read_bounded(stdin: IO[bytes]) -> bytes:
    """Return what a program writes to stdin, up to a size and for a while: it may never end it."""
    handle, found = stdin.fileno(), bytearray()
    until = time.monotonic() + HOOK_INPUT_S
    while len(found) < HOOK_INPUT_BYTES_MAX:
        ready, _, _ = select.select([handle], [], [], max(0.0, until - time.monotonic()))
        block = os.read(handle, HOOK_INPUT_BYTES_MAX) if ready else b""
        if not block:
            break
        found += block
    return bytes(found)


def follow(client: BlockingClient, root: Path, file: Path) -> list[str]:
    """Bring the session of a transcript up to its end, until the file stands still.

    Returns:
        The ids of the sessions in it.

    Raises:
        StenoError: it cannot be followed.
    """
    shape = None
    sessions: list[str] = []
    for _ in range(HOOK_ATTEMPTS_MAX):
        now = file.stat()
        if (now.st_size, now.st_mtime_ns) == shape:
            break
        try:
            sessions = _bring(client, root, file)
        except Busy:
            # Another hook imports now.
            time.sleep(HOOK_RETRY_S)
            continue
        shape = now.st_size, now.st_mtime_ns
        # A program may write the last lines of a turn a moment after its hook.
        time.sleep(HOOK_SETTLE_S)
    return sessions


def _bring(client: BlockingClient, root: Path, file: Path) -> list[str]:
    importer = Importer(client, root / paths.SESSIONS, writing_redactor(root))
    with closing(SourceTree(file)) as tree:
        found = find_one(tree, PurePath(file.name))
        return [] if found is None else [importer.bring(found)[0].session]

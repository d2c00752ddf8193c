"""The ids of sessions that come from transcripts."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

from steno_agents.claude_code import ClaudeCode
from steno_agents.transcript import ForeignTranscript
from steno_follow import compressed
from steno_follow.recognition import first_objects
from steno_follow.source_tree import SourceTree
from steno_protocol import limits

_SUBAGENTS: Final = "subagents"
"""Claude Code's folder of a session's subagents, beside the session's file."""

_DIGEST_CHARS: Final = 12
"""Characters of a digest at the end of a name that was cut: no two names of a user are alike."""

_COPY_DIGEST_CHARS: Final = 8
"""The same of the path of a copy."""

SUFFIX: Final = ".jsonl"


def stem(name: str) -> str:
    """Return the name of a transcript without its endings."""
    return name.removesuffix(compressed.SUFFIX).removesuffix(SUFFIX)


def session_of(
    tree: SourceTree, inside: PurePath, kind: type[ForeignTranscript], prefix: str | None = None
) -> str:
    """Return the id of a transcript: it depends on its place, not on the folder of the import.

    Args:
        tree: the folder of the import.
        inside: the place of the file in it.
        kind: its format.
        prefix: the beginning of the id; None is the name of the program.

    Raises:
        OSError: it cannot be read.
    """
    start = kind.stream if prefix is None else prefix.rstrip("/")
    path = tree.path(inside)
    if kind is ClaudeCode:
        return _fitted([start, *_claude_segments([*path.parts[1:-1], stem(path.name)])])
    if segments := kind.path_segments(path.parts):
        return _fitted([start, *segments])
    return f"{start}/{_session_in(tree, inside, kind) or stem(path.name)}"


def identity_of(tree: SourceTree, inside: PurePath, kind: type[ForeignTranscript]) -> str:
    """Return what a transcript is, wherever it lies.

    Raises:
        OSError: it cannot be read.
    """
    if kind.is_named_by_file:
        # The folder is that of a place, and the records name the session that a copy was made of.
        return f"{kind.stream}/{_session_in(tree, inside, kind)}/{stem(inside.name)}"
    return session_of(tree, inside, kind)


def family_of(identity: str) -> str:
    """Return what a file that was renamed has in common with the one that it was."""
    return "/".join(identity.split("/")[:2])


def _session_in(tree: SourceTree, inside: PurePath, kind: type[ForeignTranscript]) -> str | None:
    """The id that the program gave to the session, from the first records that have it."""
    transcript = kind()
    with compressed.plain(tree.open(inside), tree.path(inside)) as content:
        for place, record in enumerate(first_objects(content)):
            transcript.scan(place, record)
            if transcript.session is not None:
                break
    return transcript.session


def _claude_segments(parts: Sequence[str]) -> list[str]:
    """The part of a path that names a transcript of Claude Code.

    <project>/<session>.jsonl, <project>/<session>/subagents/<agent>.jsonl, and the agents of a
    workflow some folders below `subagents`.
    """
    above = [at for at, part in enumerate(parts[:-1]) if part == _SUBAGENTS]
    begin = max(0, above[-1] - 2) if above else -2
    # A project's folder begins with the dash of its first slash, and a segment may not.
    return [part.lstrip("-") or "root" for part in parts[begin:]]


def _fitted(segments: list[str]) -> str:
    """A session id of segments; long ones keep their beginning and get a digest of the whole."""
    longest = limits.SESSION_SEGMENT_CHARS_MAX
    cut = [_cut(each, longest) for each in segments]
    over = len("/".join(cut)) - limits.SESSION_ID_CHARS_MAX
    if over > 0:
        at = max(range(len(cut)), key=lambda each: len(cut[each]))
        cut[at] = _cut(segments[at], max(len(cut[at]) - over, _DIGEST_CHARS))
    return "/".join(cut)


def _cut(segment: str, size: int) -> str:
    if len(segment) <= size:
        return segment
    digest = hashlib.sha256(os.fsencode(segment)).hexdigest()[:_DIGEST_CHARS]
    return f"{segment[: max(0, size - _DIGEST_CHARS - 1)]}-{digest}".lstrip("-")


def id_of_copy(session: str, file: Path) -> str:
    """Return the id of a file whose own id another file has, which is still there."""
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:_COPY_DIGEST_CHARS]
    start = session[: limits.SESSION_ID_CHARS_MAX - _COPY_DIGEST_CHARS - 1]
    *above, last = start.split("/")
    last = last[: limits.SESSION_SEGMENT_CHARS_MAX - _COPY_DIGEST_CHARS - 1]
    return "/".join([*above, f"{last}-{digest}"])

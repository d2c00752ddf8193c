"""What a folder has for an import: transcripts of other agents, and sessions."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Final

from steno_agents.detection import BESIDE, FORMATS, guessed
from steno_agents.opencode import DATABASE
from steno_follow import compressed
from steno_follow.foreign_source import ForeignSource
from steno_follow.naming import SUFFIX, session_of
from steno_follow.recognition import detected, first_objects
from steno_follow.session_folders import ImportSource, check_session_id, find_sessions
from steno_follow.source_tree import Entry, SourceTree, Walk, database_at
from steno_protocol import paths
from steno_protocol.errors import BadRequest, NotFound, StenoError

Source = ImportSource | ForeignSource

_ENDINGS: Final = (SUFFIX, SUFFIX + compressed.SUFFIX)

_LOOKED_AT_OBJECTS: Final = 64
"""Records of an unknown file that are compared with the forms of other programs."""


def _why_unknown(guess: str | None) -> str:
    """The reason why a file that no reader understands is left out.

    Args:
        guess: the name of the program that most likely wrote it; None if nothing suggests one.
    """
    known = ", ".join(each.program for each in FORMATS)
    what = (
        "its records are those of no agent that steno knows"
        if guess is None
        else f"it looks like a transcript of {guess}, which steno cannot read"
    )
    return f"{what}; it reads those of {known}, and session folders of kimi-cli"


@dataclass(slots=True)
class Found:
    """The transcripts of other agents in a folder.

    Attributes:
        sources: those that can be imported.
        nameless: those whose path is no session id.
        contexts: files whose lines are the messages of kimi-cli.
        left_out: files and folders that were not read, with the reason.
    """

    sources: list[ForeignSource] = field(default_factory=list[ForeignSource])
    nameless: list[Path] = field(default_factory=list[Path])
    contexts: set[PurePath] = field(default_factory=set[PurePath])
    left_out: list[tuple[Path, str]] = field(default_factory=list[tuple[Path, str]])


@contextmanager
def source_tree(given: Path) -> Generator[SourceTree]:
    """What the user gave as a folder of files: a database's sessions become files of one."""
    database = database_at(given, DATABASE)
    with ExitStack() as opened:
        folder = given
        if database is not None:
            # Imported here: no other import needs SQLite.
            from steno_follow.opencode_database import as_transcripts  # noqa: PLC0415

            folder = opened.enter_context(as_transcripts(database))
        yield opened.enter_context(closing(SourceTree(folder, database and database.resolve())))


def find_all(tree: SourceTree, given: str | None) -> tuple[list[Source], list[tuple[Path, str]]]:
    """Find the sessions and the transcripts of other agents in a folder.

    Args:
        tree: the folder, or its one file.
        given: the id of the one session, or the prefix of the ids; None without any.

    Returns:
        What can be imported, and the paths of the others with the reason.

    Raises:
        NotFound: the folder has none.
        BadRequest: it has only files that no reader understands, or the id is not possible.
    """
    foreign = find_foreign(tree, given)
    sources: list[Source] = [*foreign.sources]
    nameless = [(path, path) for path in foreign.nameless]
    left_out = foreign.left_out
    has_none = not (sources or nameless or left_out)
    if tree.only is None or has_none:
        try:
            own, own_nameless = find_sessions(tree, given, foreign.contexts)
        except NotFound:
            if has_none:
                raise
        else:
            sources = [*own, *sources]
            nameless = [*((path.parent, path) for path in own_nameless), *nameless]
    left_out += [
        (path, f"its path {shown} is no session id: `steno import PATH ID` gives it one")
        for path, shown in nameless
    ]
    if not sources and len(left_out) == 1 and not nameless:
        path, why = left_out[0]
        raise BadRequest(f"{path} is not imported: {why}")
    return sources, left_out


def find_foreign(tree: SourceTree, prefix: str | None) -> Found:
    """Find the transcripts of other agents in a folder.

    Args:
        tree: the folder, or its one file; folders below it are searched, except those of sessions.
        prefix: the prefix of the ids, or the id of the one file; None is the name of the program.

    Raises:
        BadRequest, ImpossibleId: the prefix is no session id.
    """
    if prefix is not None:
        check_session_id(prefix)
    found = Found()
    walk = Walk(tree)
    for inside in [PurePath(tree.only)] if tree.only is not None else _files(walk):
        try:
            _look(tree, inside, prefix, found)
        except StenoError as error:
            found.left_out.append((tree.path(inside), error.message))
        except OSError as error:
            why = f"it cannot be read: {error.strerror or error}"
            found.left_out.append((tree.path(inside), why))
    found.left_out += walk.left_out
    return found


def why_no_context(tree: SourceTree, inside: PurePath) -> str | None:
    """Return why a context file is not one of kimi-cli; None if it may be.

    Raises:
        OSError: it cannot be read.
    """
    with tree.open(inside) as content:
        first = list(islice(first_objects(content), _LOOKED_AT_OBJECTS))
    if not first or any(isinstance(each.get("role"), str) for each in first):
        return None
    guesses = (guess for each in first if (guess := guessed(each)) is not None)
    return _why_unknown(next(guesses, None))


def find_one(tree: SourceTree, inside: PurePath) -> ForeignSource | None:
    """Return the transcript in a file; None if no reader understands it yet.

    Raises:
        BadRequest: it looks like a transcript that no reader will understand.
        OSError, StenoError: it cannot be read.
    """
    found = Found()
    _look(tree, inside, None, found)
    for _, why in found.left_out:
        raise BadRequest(why)
    return next(iter(found.sources), None)


def _look(tree: SourceTree, inside: PurePath, prefix: str | None, found: Found) -> None:
    """Find out what a file is."""
    with compressed.plain(tree.open(inside), tree.path(inside)) as content:
        objects = first_objects(content)
        first = list(islice(objects, _LOOKED_AT_OBJECTS))
        is_context = bool(first) and all(isinstance(each.get("role"), str) for each in first)
        detection = detected(first)
        if detection.format is None and not is_context and detection.guess is None:
            detection = detected(chain(first, objects))
    kind = detection.format
    if kind is None:
        if is_context:
            found.contexts.add(inside)
        elif detection.guess is not None:
            found.left_out.append((tree.path(inside), _why_unknown(detection.guess)))
        return
    is_named = tree.only is not None and prefix is not None
    session = prefix if is_named and prefix else session_of(tree, inside, kind, prefix)
    try:
        paths.split_session(session)
    except BadRequest:
        found.nameless.append(tree.path(inside))
    else:
        found.sources.append(ForeignSource(session, tree, inside, kind))


def _files(walk: Walk) -> Iterator[PurePath]:
    """The files with lines of JSON that belong to no session folder, those above first."""
    waiting = [PurePath()]
    while waiting:
        folder = waiting.pop()
        files, below = perhaps_transcripts(walk.below(folder))
        yield from (folder / name for name in files)
        waiting += [folder / name for name in reversed(below)]


_COMPANIONS: Final = frozenset(name for each in FORMATS for name in each.companions)


def perhaps_transcripts(entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """Return the files of a folder that may be transcripts, and the folders to search."""
    shown = [each for each in entries if not each.name.startswith(".")]
    names = {each.name for each in shown if not each.is_folder}
    if paths.CONTEXT in names:
        return [], []
    files = [name for name in sorted(names - BESIDE) if name.endswith(_ENDINGS)]
    return files, [each.name for each in shown if each.is_folder and each.name not in _COMPANIONS]

"""One file or folder brought into a root up to its present end.

A new session is copied to a folder aside in the tree of the root and synced; the daemon, the only
writer of sessions, moves it to its place by one rename. Appends would give checkpoints new ids,
lose damaged lines, and could stop in the middle. A session of kimi-cli or steno that exists is
compared: if it begins as the source does, it was imported before. A transcript of another agent
that exists is followed up to its end.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from steno import BlockingClient
from steno.local import sync_folder
from steno_follow.aside import folder_aside, nest_in
from steno_follow.first_import import PASSES, rewritten, write_session
from steno_follow.following import Follower
from steno_follow.foreign_source import ForeignSource
from steno_follow.known_files import KnownFiles
from steno_follow.masking import mask_files, writing_redactor
from steno_follow.naming import id_of_copy
from steno_follow.outcomes import Followed, Imported, Outcome
from steno_follow.search import Source, why_no_context
from steno_follow.session_folders import ImportSource, check_same, copy_session
from steno_follow.source_notes import AnotherCopy, mark_gone
from steno_follow.source_tree import SourceTree
from steno_follow.work_dirs import note_work_dirs
from steno_protocol import paths
from steno_protocol.commands import TakeIn
from steno_protocol.errors import BadRequest, OutcomeUnknown, StenoError, TooLarge
from steno_protocol.replies import SessionStat
from steno_redact.records import masked_bytes
from steno_redact.redactor import Redactor

Look = Callable[[ForeignSource, Redactor | None], Followed]


class Shown(Protocol):
    """Where the progress of a copy is shown."""

    def __call__(self, more: int, text: str = "") -> None:
        """Add bytes that were copied."""


class Unanswered(StenoError):
    """The daemon did not say whether it took a session in; it is there whole or not at all."""


def work_bytes(source: Source) -> int:
    """Return the bytes that a copy reads, for its progress."""
    try:
        if isinstance(source, ForeignSource):
            return PASSES * source.tree.size(source.inside)
        return source.work_bytes()
    except (OSError, TooLarge):
        # The copy reports it.
        return 0


@contextmanager
def importing(client: BlockingClient, root: Path) -> Generator["Importer"]:
    """An importer into a root; no other import works on it until the block ends.

    Raises:
        Busy: another import is running.
        BadRequest: the patterns of the root's masks are not valid.
    """
    tree, redactor_for = root / paths.SESSIONS, writing_redactor(root)
    with folder_aside(tree) as aside:
        yield Importer(client, tree, redactor_for, aside)


class Importer:
    """Brings sessions and transcripts into one root; an import and a watch do so alike.

    Args:
        client: of the daemon of the root, on this machine.
        tree: the folder of its sessions.
        redactor_for: what masks a session as it is written, by its id.
        aside: the folder of unfinished copies; None for one at a time, as a session is new.

    Attributes:
        known: the files that are sessions there.
    """

    def __init__(
        self,
        client: BlockingClient,
        tree: Path,
        redactor_for: Callable[[str], Redactor | None],
        aside: Path | None = None,
    ) -> None:
        self.known: KnownFiles = KnownFiles(tree)
        self._client = client
        self._tree = tree
        self._redactor_for = redactor_for
        self._aside = aside

    def bring(
        self,
        source: Source,
        *,
        is_named: bool = False,
        show: Shown | None = None,
        bytes_max: int | None = None,
        look: Look | None = None,
    ) -> tuple[Source, Outcome]:
        """Bring one session up to the end of its source.

        Args:
            source: the session or transcript.
            is_named: the user gave its id, or a prefix of it.
            show: where the bytes are shown.
            bytes_max: about the bytes of a new transcript that are taken at once; None for all.
            look: follows one that is there; None for a follower of its own.

        Returns:
            The source with the id that the session has, and what was done.

        Raises:
            OSError: a file cannot be read or written.
            StenoError: the daemon refused it.
        """
        bring = partial(self._bring, show=show, bytes_max=bytes_max, look=look or self._look)
        if is_named or not isinstance(source, ForeignSource):
            return source, bring(source)
        source = replace(source, session=self.known.session_of(source))
        try:
            return source, bring(source)
        except AnotherCopy:
            source = replace(source, session=id_of_copy(source.session, source.file))
            return source, bring(source)

    def mark_gone(self, tree: SourceTree) -> Iterator[str]:
        """Mark the sessions whose files were in a folder and are no more; yields their ids."""
        for each in [] if tree.only is not None else self.known.all():
            is_gone = not each.note.is_gone and tree.is_gone(Path(each.note.path))
            if is_gone and mark_gone(self._client, each.session, each.note.path):
                yield each.session

    def note_work_dirs(self, folder: Path, imported: Iterable[Source]) -> None:
        """Note the work directories of the sessions of kimi-cli among those that were imported.

        Raises:
            OSError: a file cannot be written; the sessions stay imported.
        """
        assert self._aside is not None
        own = [source for source in imported if isinstance(source, ImportSource)]
        with nest_in(self._aside) as nest:
            note_work_dirs(folder, own, self._tree, nest)

    def _look(self, source: ForeignSource, redactor: Redactor | None) -> Followed:
        return Follower(self._client, source, redactor).look()

    def _bring(
        self, source: Source, *, show: Shown | None, bytes_max: int | None, look: Look
    ) -> Outcome:
        redactor = self._redactor_for(source.session)
        if _is_there(source, self._tree, redactor):
            if not isinstance(source, ForeignSource):
                return Followed(source.session)
            followed = look(source, redactor)
            self.known.learn(source.session, str(source.file))
            return followed
        aside = folder_aside(self._tree) if self._aside is None else nullcontext(self._aside)
        with aside as folder:
            found = take_in(self._client, source, folder, redactor, show, bytes_max)
        if isinstance(source, ForeignSource):
            self.known.learn(source.session, str(source.file))
        return found


def take_in(
    client: BlockingClient,
    source: Source,
    aside: Path,
    redactor: Redactor | None,
    show: Shown | None = None,
    bytes_max: int | None = None,
) -> Imported:
    """Make a session of a source that is none yet.

    Raises:
        Busy: the source was rewritten meanwhile.
        OSError: a file cannot be read or written.
        StenoError: the daemon refused it.
    """
    with nest_in(aside) as nest:
        found = _prepare(source, nest / paths.PREPARED, show, redactor, bytes_max)
        _take_in(client, source, nest.name)
    return found


def _is_there(source: Source, tree: Path, redactor: Redactor | None) -> bool:
    """Whether a session was imported before, now durable.

    Raises:
        BadRequest: its context is that of another program.
        Exists: another session has the id.
    """
    if isinstance(source, ImportSource):
        why = why_no_context(source.tree, source.context)
        if why is not None:
            raise BadRequest(f"{source.tree.path(source.context)} is not imported: {why}")
    _, segments = paths.split_session(source.session)
    target = tree.joinpath(*segments)
    if not target.exists():
        return False
    if isinstance(source, ForeignSource):
        # The daemon syncs what it reads, and the names above with the first append.
        return True
    check_same(source, target, redactor)
    # The daemon that took it in may have died before the names on its path were synced.
    for folder in target.parents:
        sync_folder(folder)
        if folder == tree.parent:
            break
    return True


def _prepare(
    source: Source,
    copy: Path,
    show: Shown | None,
    redactor: Redactor | None,
    bytes_max: int | None,
) -> Imported:
    """Copy one session to a new folder, masked and synced.

    Raises:
        Busy: it was rewritten while it was copied.
        OSError: it could not be copied.
    """

    def add(more: int) -> None:
        if show is not None:
            show(more, source.session)

    copy.mkdir(mode=0o700)
    before, found = source.shape(), Imported()
    if isinstance(source, ForeignSource):
        mask = None if redactor is None else partial(masked_bytes, redactor)
        found = write_session(source, copy, add, mask, bytes_max)
        sync_folder(copy)
    else:
        copy_session(source, copy, add)
    if source.shape() != before:
        raise rewritten(source.folder, source.session)
    if redactor is not None:
        mask_files(redactor, copy)
    return found


def _take_in(client: BlockingClient, source: Source, key: str) -> None:
    """Let the daemon move the prepared folder of a key to its place.

    Raises:
        Exists: another session has the id now.
        Unanswered: it may be in its place.
        StenoError: the daemon refused it.
    """
    try:
        client.request(TakeIn(session=source.session, key=key), SessionStat)
    except OutcomeUnknown as error:
        raise Unanswered(
            f"{source.session} is in the root as a whole, or not at all ({error.message}): import"
            f" {source.origin} again",
            session=source.session,
        ) from error

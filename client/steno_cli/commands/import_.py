"""`steno import`: session folders imported byte for byte.

A session is copied to a folder aside in the tree of the root and synced; the daemon, the only
writer of sessions, moves it to its place by one rename. Appends would give checkpoints new ids,
lose damaged lines, and could stop in the middle. A session that exists is compared: if it begins as
the source does, it was imported before.

    sessions/.imports/<key>/            locked by this process; the key of the daemon's command
    sessions/.imports/<key>/session/    the copy, which the daemon locks as it moves it
"""

import fcntl
import os
import shlex
import shutil
from argparse import Namespace
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from itertools import accumulate, chain
from pathlib import Path, PurePath
from typing import BinaryIO

from steno import BlockingClient
from steno.local import make_private, sync_file, sync_folder
from steno.parts import new_key
from steno_agents.opencode import DATABASE as OPENCODE
from steno_cli.arguments import Subcommands, command, optional_argument, path_text
from steno_cli.connection import connected, local_root
from steno_cli.exits import Exit
from steno_cli.foreign_sources import (
    EmptyTranscript,
    ForeignSource,
    LineLength,
    find_foreign,
    unknown_context,
    whole_lines,
)
from steno_cli.import_sources import ImportSource, damaged_lines, find
from steno_cli.redaction import mask_files, writing_redactor
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.source_tree import SourceTree, database_at
from steno_cli.work_dirs import note_work_dirs
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, number, size
from steno_protocol import limits, paths
from steno_protocol.commands import TakeIn
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Exists,
    NotFound,
    OutcomeUnknown,
    StenoError,
    TooLarge,
)
from steno_protocol.replies import SessionStat
from steno_redact.records import is_same_line
from steno_redact.redactor import Redactor

Source = ImportSource | ForeignSource


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "import", run,
        "FOLDER is a session folder, a tree of session folders such as kimi-cli's, or a file"
        " <uuid>.jsonl in kimi-cli's old format. The import of a session is atomic; a session that"
        " was imported before is skipped, so the command can be repeated. The work directories in"
        " kimi-cli's kimi.json are imported too; `steno sessions` shows them. FOLDER may also be or"
        " contain transcripts of Claude Code (~/.claude/projects) or rollouts of Codex"
        " (~/.codex/sessions): the branch with the last record becomes the context, other branches"
        " and what a compaction replaced become past generations, and the file is kept byte for"
        " byte in a stream of the session. FOLDER is only read, links in it are passed over. The"
        " root must be on this machine.",
        example="steno import ~/.kimi/sessions kimi\nsteno import ~/copy demo-2\n"
        "steno import ~/.claude/projects",
    )  # fmt: skip
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=path_text,
        help="a session folder, a tree of them, or one old file",
    )
    optional_argument(
        parser, "session", str,
        "the id of the session, or a prefix for the ids of a tree (default: the folder name for a"
        " session, no prefix for a tree, the program's name for transcripts of other agents)",
    )  # fmt: skip
    parser.add_argument(
        "--replace",
        action="store_true",
        help="import a transcript of another agent again that was continued since its import; the"
        " session of the first import goes to the trash",
    )
    parser.set_defaults(changes=True, makes_root=True)


class NotCopied(StenoError):
    """A session could not be copied; nothing of it is in the root."""


class Unanswered(StenoError):
    """The daemon did not say whether it took a session in; it is there whole or not at all."""


def run(options: Namespace, output: Output) -> int:
    """Import every session of a folder; report failures and continue."""
    with _transcripts(Path(options.folder)) as folder, closing(SourceTree(folder)) as tree:
        return _run(options, output, tree)


def _transcripts(given: Path) -> AbstractContextManager[Path]:
    """The folder to import: the given one, or the sessions of a database as files."""
    database = database_at(given, OPENCODE)
    if database is None:
        return nullcontext(given)
    # Imported here: no other import needs SQLite.
    from steno_cli.opencode_database import as_transcripts  # noqa: PLC0415

    return as_transcripts(database)


def _run(options: Namespace, output: Output, source_tree: SourceTree) -> int:
    found, left_out = _find(source_tree, options.session)
    for path, why in left_out:
        _print_left_out(output, None, path, why)
    refused = len(left_out)
    imported: list[Source] = []
    with connected(options) as client, Progress(output, "importing") as progress:
        tree = _local_root(client) / paths.SESSIONS
        redactor_for = writing_redactor(tree.parent)
        with _folder_aside(tree) as aside:
            sizes = [_work_bytes(source) for source in found]
            progress.expect(sum(sizes))
            begins = accumulate(sizes[:-1], initial=0)
            for source, begin in zip(progress.over(found), begins, strict=False):
                # The one before was perhaps not copied: it failed, or was imported before.
                progress.add(begin - progress.done_bytes)
                try:
                    redactor = redactor_for(source.session)
                    if options.replace:
                        _remove_outdated(client, source, tree, redactor)
                    is_new = _import_one(client, source, tree, aside, progress, redactor)
                except StenoError as error:
                    if len(found) + len(left_out) == 1:
                        raise
                    progress.make_room()
                    _print_left_out(output, source.session, source.origin, error.message)
                    # A program that ended before the first message left nothing to import.
                    refused += not (isinstance(error, EmptyTranscript) and error.is_known)
                    continue
                progress.make_room()
                imported.append(source)
                _print_result(output, client, source, was_there=not is_new)
            own = [source for source in imported if isinstance(source, ImportSource)]
            with _nest(aside) as nest:
                note_work_dirs(Path(options.folder), own, tree, nest)
    if refused:
        output.say(f"{count(refused, 'session')} of {number(len(found) + len(left_out))} left out")
    return Exit.DONE if imported and not refused else Exit.FAILED


def _find(tree: SourceTree, given: str | None) -> tuple[list[Source], list[tuple[Path, str]]]:
    """The sessions and the transcripts of other agents in a folder.

    Returns:
        What can be imported, and the paths of the others with the reason.

    Raises:
        NotFound: the folder has none.
        BadRequest: it has only files that no reader understands.
    """
    foreign = find_foreign(tree, given)
    sources: list[Source] = [*foreign.sources]
    nameless = foreign.nameless
    guessed = [(each.path, each.why) for each in foreign.unknown if each.guess is not None]
    left_out = [*foreign.left_out, *guessed]
    has_none = not (sources or nameless or left_out)
    if tree.only is None or has_none:
        try:
            own, own_nameless = find(tree, given, foreign.contexts)
        except NotFound:
            if has_none:
                raise
        else:
            sources, nameless = [*own, *sources], [*own_nameless, *nameless]
    left_out += [(path.parent, f"its path {path} is no session id") for path in nameless]
    if not sources and len(left_out) == 1 and not nameless:
        path, why = left_out[0]
        raise BadRequest(f"{path} is not imported: {why}")
    return sources, left_out


def _work_bytes(source: Source) -> int:
    try:
        return source.work_bytes()
    except (OSError, TooLarge):
        # The copy reports it.
        return 0


def _remove_outdated(
    client: BlockingClient, source: Source, tree: Path, redactor: Redactor | None
) -> None:
    """Move the session of an earlier import to the trash, if its source was continued since."""
    _, segments = paths.split_session(source.session)
    folder = tree.joinpath(*segments)
    if isinstance(source, ForeignSource) and source.compare(folder, redactor):
        client.delete(source.session)


def _local_root(client: BlockingClient) -> Path:
    """The root of the daemon, which must run on this machine.

    Raises:
        BadRequest: it runs on another machine.
    """
    root = local_root(client)
    if root is None:
        raise BadRequest(
            f"the root {client.welcome.root} is not on this machine: copy the folder to the"
            " machine where the daemon runs, and run the import there"
        )
    return root


@contextmanager
def _folder_aside(tree: Path) -> Generator[Path]:
    """The folder of unfinished copies; removes those of an import that was killed.

    It is in the tree, so that a rename stays in its file system.

    Raises:
        Busy: another import is running.
    """
    aside = tree / paths.IMPORTS
    make_private(aside)
    handle = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another import into {tree} is running: wait until it is done") from None
        _empty(aside)
        try:
            yield aside
        finally:
            _empty(aside)
    finally:
        os.close(handle)


def _empty(aside: Path) -> None:
    for path in aside.iterdir():
        _discard(path)


@contextmanager
def _nest(aside: Path) -> Generator[Path]:
    """A new folder named by a key, locked so that the daemon does not remove it."""
    while True:
        nest = aside / new_key()
        nest.mkdir(mode=0o700)
        # A daemon that starts may have removed it before it was locked.
        with suppress(FileNotFoundError), _locked(nest) as is_locked:
            if is_locked and nest.exists():
                try:
                    yield nest
                finally:
                    _discard(nest)
                return


def _discard(nest: Path) -> None:
    """Remove a folder with an unfinished copy, unless the daemon moves the copy to its place now.

    It removes the rest itself, at the next start and daily.
    """
    with suppress(FileNotFoundError):
        copy = nest / paths.PREPARED
        if not copy.is_dir():
            shutil.rmtree(nest)
            return
        with _locked(copy) as is_locked:
            if is_locked:
                shutil.rmtree(nest)


@contextmanager
def _locked(folder: Path) -> Generator[bool]:
    """Lock a folder until the block ends; False if another process has it locked."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _import_one(
    client: BlockingClient,
    source: Source,
    tree: Path,
    aside: Path,
    progress: Progress,
    redactor: Redactor | None,
) -> bool:
    try:
        if _is_there(source, tree, redactor):
            return False
        with _nest(aside) as nest:
            _prepare(source, nest / paths.PREPARED, progress, redactor)
            _take_in(client, source, nest.name)
        return True
    except OSError as error:
        raise NotCopied(
            f"{error.filename or source.folder} cannot be copied ({error.strerror or error}):"
            " nothing of the session was kept; remove the cause and import it again",
            session=source.session,
        ) from error


def _is_there(source: Source, tree: Path, redactor: Redactor | None) -> bool:
    """Whether a session was imported before, now durable.

    Raises:
        BadRequest: its context is that of another program.
        Exists: another session has the id.
    """
    if isinstance(source, ImportSource):
        unknown = unknown_context(source.tree, source.context)
        if unknown is not None:
            raise BadRequest(f"{unknown.path} is not imported: {unknown.why}")
    _, segments = paths.split_session(source.session)
    target = tree.joinpath(*segments)
    if not target.exists():
        return False
    _check_same(source, target, redactor)
    # The daemon that took it in may have died before the names on its path were synced.
    for folder in target.parents:
        sync_folder(folder)
        if folder == tree.parent:
            break
    return True


def _prepare(source: Source, copy: Path, progress: Progress, redactor: Redactor | None) -> None:
    """Copy one session to a new folder, masked and synced.

    Raises:
        Busy: it was rewritten while it was copied.
        OSError: it could not be copied.
    """
    copy.mkdir(mode=0o700)
    before = source.shape()
    _copy(source, copy, progress)
    if source.shape() != before:
        raise Busy(
            f"{source.folder} was rewritten while it was copied: import it again while the"
            " program that owns it is idle",
            session=source.session,
        )
    if redactor is not None:
        mask_files(redactor, copy)


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


def _check_same(source: Source, target: Path, redactor: Redactor | None) -> None:
    """Return if the existing session begins as the source does.

    Raises:
        Exists: it does not, or a transcript of another agent was continued since its import.
    """
    if isinstance(source, ForeignSource):
        _check_unchanged(source, target, redactor)
        return
    contexts = [
        path
        for path in sorted(target.glob("context*.jsonl"))
        if path.name == paths.CONTEXT or paths.generation_of(path.name) is not None
    ]
    if not any(_begins_with(path, source, redactor) for path in contexts):
        raise Exists(
            f"another session is at {target}, or this one was continued since its import:"
            " import it under another id",
            session=source.session,
        )


def _check_unchanged(source: ForeignSource, target: Path, redactor: Redactor | None) -> None:
    added = source.compare(target, redactor)
    if added is None:
        raise Exists(
            f"another session is at {target}, or {source.file} was rewritten since its import:"
            " import it under another id",
            session=source.session,
        )
    if added:
        raise Exists(
            f"{source.file} has {size(added)} more than at its import: `steno import --replace"
            f" {shlex.quote(str(source.file))} {source.session}` imports it again",
            session=source.session,
        )


def _begins_with(path: Path, source: ImportSource, redactor: Redactor | None) -> bool:
    """Whether a file begins with the whole lines of a context; an empty one only if both are.

    Opening for writing truncates a partial line.
    """
    with source.tree.open(source.context) as wanted, path.open("rb") as file:
        lines = whole_lines(wanted, source.origin, [])
        first = next(lines, None)
        if first is None:
            return path.stat().st_size == 0
        return all(is_same_line(redactor, file.readline(), line) for line in chain([first], lines))


def _copy(source: Source, folder: Path, progress: Progress) -> None:
    if isinstance(source, ForeignSource):
        _convert(source, folder, progress)
        return
    folders = {folder}
    for inside, below, is_folder in source.files():
        target = folder / below
        if is_folder:
            # A folder comes before its files.
            target.mkdir(mode=0o700)
            folders.add(target)
            continue
        # A daemon reads the lines of these files, and keeps one at a time in memory.
        line = LineLength(source.tree.path(inside)) if _has_lines(below) else None
        with source.tree.open(inside) as old, _new(target) as new:
            while block := old.read(limits.COPY_BYTES):
                if line is not None:
                    line.feed(block)
                new.write(block)
                progress.add(len(block), source.session)
            new.flush()
            sync_file(new.fileno())
            stat = os.fstat(old.fileno())
        os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for each in folders:
        sync_folder(each)


def _has_lines(below: PurePath) -> bool:
    return len(below.parts) == 1 and below.suffix == ".jsonl"


def _convert(source: ForeignSource, folder: Path, progress: Progress) -> None:
    source.write(folder, lambda more: progress.add(more, source.session))
    sync_folder(folder)


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _print_result(
    output: Output, client: BlockingClient, source: Source, *, was_there: bool
) -> None:
    stat = client.stat(source.session)
    damaged = sum(damaged_lines(Path(stat.folder, name)) for name in (paths.CONTEXT, paths.WIRE))
    foreign = source if isinstance(source, ForeignSource) else None
    if output.as_json:
        damaged += len(foreign.undecoded) if foreign else 0
        output.document(contract.imported(stat, source.origin, damaged, was_there))
    else:
        output.write(printable(stat.session))
        if was_there:
            output.say(f"{stat.session} was imported before and is unchanged")
        elif damaged:
            what = "line is no record" if damaged == 1 else "lines are no records"
            output.say(f"{number(damaged)} {what} in {stat.session}: kept, and skipped by readers")
    if foreign:
        _print_histories(output, foreign)
        _print_not_converted(output, foreign)


def _print_histories(output: Output, source: ForeignSource) -> None:
    """Print how many histories beside the live one a transcript has, and where they are."""
    for counted in source.counted:
        named = {
            ("other branch", "other branches"): counted.branches,
            ("history before a compaction", "histories before a compaction"): counted.compactions,
            ("history with withdrawn turns", "histories with withdrawn turns"): counted.rolled_back,
        }
        past = sum(named.values())
        if past:
            what = ", ".join(
                f"{number(each)} {one if each == 1 else more}"
                for (one, more), each in named.items()
                if each
            )
            where = "generation 0" if past == 1 else f"generations 0 to {past - 1}"
            output.say(
                f"{source.session} also has {what}, as {where}:"
                f" `steno show {source.session} --generation {past - 1}`"
            )
        if counted.unread:
            output.say(
                f"{number(counted.unread)} more past histories of {source.session} are kept in its"
                " stream only"
            )


def _print_not_converted(output: Output, source: ForeignSource) -> None:
    """Print how much of a transcript is not in the context of its session."""
    if source.skipped:
        left_out = count(len(source.skipped), "message")
        output.say(f"{left_out} of {source.session} too long for a record, kept in its stream only")
    for counted in source.counted:
        if counted.elsewhere:
            output.say(
                f"{source.session} is a fork, and its beginning is elsewhere: the file of session"
                f" {counted.elsewhere} is not beside it"
            )
        if counted.salvaged:
            records = count(counted.salvaged, "record")
            output.say(f"{records} of {source.session} saved from damaged lines")
        if counted.odd:
            messages = count(counted.odd, "message")
            form = f"in a form of {source.format.program} that steno does not know"
            output.say(f"{messages} of {source.session} {form}, kept in its stream only")
    if source.undecoded:
        lines = count(len(source.undecoded), "line")
        what = "is no JSON object" if len(source.undecoded) == 1 else "are no JSON objects"
        output.say(f"{lines} of {source.session} {what}, kept in its stream only")
    for left in source.unfinished:
        output.say(
            f"the last line of {source.origin} ({number(left)} bytes) has no end and is left out;"
            " once it is whole, --replace takes it"
        )


def _print_left_out(output: Output, session: str | None, folder: Path, why: str) -> None:
    if output.as_json:
        output.document(contract.left_out(session, folder, why))
    else:
        output.say(f"{session or folder} is left out: {why}")

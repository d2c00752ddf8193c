"""`steno import`: session folders imported byte for byte.

A session is copied to a folder aside in the tree of the root, synced, and moved to its place by one
rename. Appends would give checkpoints new ids, lose damaged lines, and could stop in the middle. A
session that exists is compared: if it begins as the source does, it was imported before.
"""

import fcntl
import os
import shlex
import shutil
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import accumulate
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final

from steno._connect.folders import make_private, sync_folder
from steno._redaction.redactor import Redactor
from steno._sync.client import BlockingClient
from steno.cli.arguments import Subcommands, command, optional_argument, path_text
from steno.cli.connection import connected, local_root
from steno.cli.destination import put_in_place
from steno.cli.exits import Exit
from steno.cli.foreign_sources import ForeignSource, find_foreign
from steno.cli.import_sources import ImportSource, damaged_lines, find
from steno.cli.redaction import mask_files, writing_redactor
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.progress import Progress
from steno.cli.render.wording import count, number, size
from steno.cli.work_dirs import note_work_dirs
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, Busy, Exists, NotFound, StenoError

Source = ImportSource | ForeignSource

_ASIDE: Final = ".imports"
"""The folder of unfinished copies, in the tree itself: a rename stays in its file system."""


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "import", run,
        "FOLDER is a session folder, a tree of session folders such as kimi-cli's, or a file"
        " <uuid>.jsonl in kimi-cli's old format. The import of a session is atomic; a session that"
        " was imported before is skipped, so the command can be repeated. The work directories in"
        " kimi-cli's kimi.json are imported too; `steno sessions` shows them. FOLDER may also be or"
        " contain transcripts of Claude Code (~/.claude/projects) or rollouts of Codex"
        " (~/.codex/sessions): the conversation becomes the context, and the file is kept byte for"
        " byte in a stream of the session. FOLDER is only read. The root must be on this machine.",
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


def run(options: Namespace, output: Output) -> int:
    """Import every session of a folder; report failures and continue."""
    found, nameless = _find(Path(options.folder), options.session)
    for path in nameless:
        _print_left_out(output, None, path.parent, f"its path {path} is no session id")
    refused = len(nameless)
    imported: list[Source] = []
    with connected(options) as client, Progress(output, "importing") as progress:
        tree = _local_root(client) / paths.SESSIONS
        redactor = writing_redactor(tree.parent)
        with _folder_aside(tree) as aside:
            sizes = [source.work_bytes() for source in found]
            progress.expect(sum(sizes))
            begins = accumulate(sizes[:-1], initial=0)
            for source, begin in zip(progress.over(found), begins, strict=False):
                # The one before was perhaps not copied: it failed, or was imported before.
                progress.add(begin - progress.done_bytes)
                try:
                    if options.replace:
                        _remove_outdated(client, source, tree)
                    is_new = _import_one(source, tree, aside, progress, redactor)
                except StenoError as error:
                    if len(found) + len(nameless) == 1:
                        raise
                    progress.make_room()
                    _print_left_out(output, source.session, source.origin, error.message)
                    refused += 1
                    continue
                progress.make_room()
                imported.append(source)
                _print_result(output, client, source, was_there=not is_new)
            own = [source for source in imported if isinstance(source, ImportSource)]
            note_work_dirs(Path(options.folder), own, tree, aside)
    if refused:
        output.say(f"{count(refused, 'session')} of {number(len(found) + len(nameless))} left out")
    return Exit.FAILED if refused else Exit.DONE


def _find(folder: Path, given: str | None) -> tuple[list[Source], list[Path]]:
    """The sessions and the transcripts of other agents in a folder, and those without an id.

    Raises:
        NotFound: the folder has none.
    """
    foreign, nameless = find_foreign(folder, given)
    if not (foreign or nameless):
        sources, nameless = find(folder, given)
        return [*sources], nameless
    if not folder.is_file():
        with suppress(NotFound):
            own, own_nameless = find(folder, given)
            return [*own, *foreign], [*own_nameless, *nameless]
    return [*foreign], nameless


def _remove_outdated(client: BlockingClient, source: Source, tree: Path) -> None:
    """Move the session of an earlier import to the trash, if its source was continued since."""
    _, segments = paths.split_session(source.session)
    if isinstance(source, ForeignSource) and source.compare(tree.joinpath(*segments)):
        client.delete(source.session)


def _local_root(client: BlockingClient) -> Path:
    """The root of the daemon, which must run on this machine.

    Raises:
        BadRequest: it runs on another machine.
    """
    root = local_root(client)
    if root is None:
        raise BadRequest(
            f"the root {client.welcome.root} is not on this machine: run the import where the"
            " daemon runs"
        )
    return root


@contextmanager
def _folder_aside(tree: Path) -> Generator[Path]:
    """A folder of this import in the tree; removes the files of an import that was killed.

    Raises:
        Busy: another import is running.
    """
    aside = tree / _ASIDE
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


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path)


def _import_one(
    source: Source, tree: Path, aside: Path, progress: Progress, redactor: Redactor | None
) -> bool:
    try:
        return _copy_into_place(source, tree, aside, progress, redactor)
    except OSError as error:
        raise NotCopied(
            f"{error.filename or source.folder} cannot be copied ({error.strerror or error}):"
            " nothing of the session was kept; remove the cause and import it again",
            session=source.session,
        ) from error


def _copy_into_place(
    source: Source, tree: Path, aside: Path, progress: Progress, redactor: Redactor | None
) -> bool:
    """Copy one session and move it to its place; False if it exists already.

    Raises:
        Exists: another session has the id.
        Busy: it was rewritten while it was copied.
        OSError: it could not be copied; nothing of it is visible.
    """
    _, segments = paths.split_session(source.session)
    target = tree.joinpath(*segments)
    if target.exists():
        _check_same(source, target)
        # The process that imported it may have died before its name was synced.
        _make_folders(target.parent, tree)
        sync_folder(target.parent)
        return False
    copy = aside / "session"
    copy.mkdir(mode=0o700)
    try:
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
        _make_folders(target.parent, tree)
        put_in_place(copy, target)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return True


def _check_same(source: Source, target: Path) -> None:
    """Return if the existing session begins as the source does.

    Raises:
        Exists: it does not, or a transcript of another agent was continued since its import.
    """
    if isinstance(source, ForeignSource):
        _check_unchanged(source, target)
        return
    contexts = [
        path
        for path in sorted(target.glob("context*.jsonl"))
        if path.name == paths.CONTEXT or paths.generation_of(path.name) is not None
    ]
    if not any(_begins_with(path, source.context) for path in contexts):
        raise Exists(
            f"another session is at {target}, or this one was continued since its import:"
            " import it under another id",
            session=source.session,
        )


def _check_unchanged(source: ForeignSource, target: Path) -> None:
    added = source.compare(target)
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


def _begins_with(path: Path, beginning: Path) -> bool:
    """Whether a file begins with the whole lines of another; an empty one only if both are."""
    left = _whole_lines_bytes(beginning)
    if not left:
        return path.stat().st_size == 0
    with path.open("rb") as file, beginning.open("rb") as wanted:
        while left:
            step = min(left, limits.COPY_BYTES)
            if file.read(step) != wanted.read(step):
                return False
            left -= step
    return True


def _whole_lines_bytes(path: Path) -> int:
    """The length of the whole lines: opening for writing truncates a partial one."""
    if not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.rfind(b"\n") + 1


def _copy(source: Source, folder: Path, progress: Progress) -> None:
    if isinstance(source, ForeignSource):
        _convert(source, folder, progress)
        return
    folders = {folder}
    for file, inside in source.files():
        target = folder / inside
        if file.is_dir():
            # A folder comes before its files.
            target.mkdir(mode=0o700)
            folders.add(target)
            continue
        with file.open("rb") as old, _new(target) as new:
            while block := old.read(limits.COPY_BYTES):
                new.write(block)
                progress.add(len(block), source.session)
            new.flush()
            os.fsync(new.fileno())
        stat = file.stat()
        os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for each in folders:
        sync_folder(each)


def _convert(source: ForeignSource, folder: Path, progress: Progress) -> None:
    source.write(folder, lambda more: progress.add(more, source.session))
    sync_folder(folder)


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _make_folders(folder: Path, tree: Path) -> None:
    """Create and sync the folders above a session, also those of an import that was killed."""
    make_private(folder)
    for each in (folder, *folder.parents):
        sync_folder(each.parent)
        if each == tree:
            return


def _print_result(
    output: Output, client: BlockingClient, source: Source, *, was_there: bool
) -> None:
    stat = client.stat(source.session)
    damaged = sum(damaged_lines(Path(stat.folder, name)) for name in (paths.CONTEXT, paths.WIRE))
    foreign = source if isinstance(source, ForeignSource) else None
    if output.as_json:
        damaged += len(foreign.undecoded) if foreign else 0
        output.document(contract.imported(stat, source.origin, damaged, was_there))
        return
    output.write(printable(stat.session))
    if was_there:
        output.say(f"{stat.session} was imported before and is unchanged")
    elif damaged:
        what = "line is no record" if damaged == 1 else "lines are no records"
        output.say(f"{number(damaged)} {what} in {stat.session}: kept, and skipped by readers")
    if foreign:
        _print_not_converted(output, foreign)


def _print_not_converted(output: Output, source: ForeignSource) -> None:
    """Print how much of a transcript is not in the context of its session."""
    if source.skipped:
        left_out = count(len(source.skipped), "message")
        output.say(f"{left_out} of {source.session} too long for a record, kept in its stream only")
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

"""The subcommand `import`: session folders from outside, each taken in whole or not at all.

The files are copied aside in the root's own tree, synced, and moved to their place by one rename;
to the daemon it is a session that was always there. Nothing goes through an append: that would
give checkpoints new ids, lose what is no record, and could stop in the middle. A session that lies
there already is compared: when it began as this one does, it was imported before.
"""

import fcntl
import os
import shutil
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final

from steno._connect.folders import make_private, sync_folder
from steno._sync.client import BlockingClient
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.progress import Progress
from steno.cli.render.wording import count, number, size
from steno.cli.transfer.destination import put_in_place
from steno.cli.transfer.import_sources import ImportSource, damaged_lines, find
from steno.cli.transfer.local_root import local_root
from steno.cli.transfer.work_dirs import note_work_dirs
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, Busy, Exists, StenoError

_ASIDE: Final = ".imports"
"""Where copies are made, in the tree itself: a rename does not leave its file system."""


class NotTaken(StenoError):
    """A session could not be copied; nothing of it is in the root."""


def import_sessions(options: Namespace, output: Output) -> int:
    """Import every session of a folder; report failures and continue."""
    found, nameless = find(Path(options.folder), options.session)
    for path in nameless:
        _print_left_out(output, None, path.parent, f"the path {path} makes no session id")
    refused = len(nameless)
    taken_in: list[ImportSource] = []
    with connected(options) as client, Progress(output, "importing") as progress:
        tree = _local_root(client) / paths.SESSIONS
        with _services(tree) as aside:
            for foundling in progress.over(found):
                try:
                    taken = _taken_in(foundling, tree, aside, progress)
                except StenoError as error:
                    if len(found) + len(nameless) == 1:
                        raise
                    progress.make_room()
                    folder = foundling.context.parent
                    _print_left_out(output, foundling.session, folder, error.message)
                    refused += 1
                    continue
                progress.make_room()
                taken_in.append(foundling)
                _print_result(output, client, foundling, was_there=not taken)
            note_work_dirs(Path(options.folder), taken_in, tree, aside)
    if refused:
        output.say(f"{count(refused, 'session')} of {number(len(found) + len(nameless))} left out")
    return Exit.FAILED if refused else Exit.DONE


def _local_root(client: BlockingClient) -> Path:
    """The root of the daemon, which has to run on this machine.

    Raises:
        BadRequest: it runs on another one.
    """
    root = local_root(client)
    if root is None:
        raise BadRequest(
            f"the root {client.welcome.root} is not on this machine: run the import where the"
            " daemon runs"
        )
    return root


@contextmanager
def _services(tree: Path) -> Generator[Path]:
    """A folder of our own in the tree; what an import that was killed left there is removed.

    Raises:
        Busy: another import is at work.
    """
    aside = tree / _ASIDE
    make_private(aside)
    handle = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another import into {tree} is at work: wait until it is done") from None
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


def _taken_in(foundling: ImportSource, tree: Path, aside: Path, progress: Progress) -> bool:
    try:
        return _take_in(foundling, tree, aside, progress)
    except OSError as error:
        raise NotTaken(
            f"{error.filename or foundling.folder} cannot be copied ({error.strerror or error}):"
            " nothing of the session was kept; import it again once that is mended",
            session=foundling.session,
        ) from error


def _take_in(foundling: ImportSource, tree: Path, aside: Path, progress: Progress) -> bool:
    """Copy one session and put it in its place; False when it was there already.

    Raises:
        Exists: something else lies there.
        Busy: it was rewritten while it was copied.
        OSError: it could not be copied; nothing of it is to be seen.
    """
    _, segments = paths.split_session(foundling.session)
    target = tree.joinpath(*segments)
    if target.exists():
        _check_same(foundling, target)
        # The process that put it there may have died before its name was synced.
        _make_folders(target.parent, tree)
        sync_folder(target.parent)
        return False
    copy = aside / "session"
    copy.mkdir(mode=0o700)
    try:
        before = foundling.shape()
        _copy(foundling, copy, progress)
        if foundling.shape() != before:
            raise Busy(
                f"{foundling.folder} was rewritten while it was copied: import it again when the"
                " program that owns it rests",
                session=foundling.session,
            )
        _make_folders(target.parent, tree)
        put_in_place(copy, target)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return True


def _check_same(foundling: ImportSource, target: Path) -> None:
    """Return when what lies at the place began as this session does."""
    contexts = [
        path
        for path in sorted(target.glob("context*.jsonl"))
        if path.name == paths.CONTEXT or paths.generation_of(path.name) is not None
    ]
    if not any(_begins_with(path, foundling.context) for path in contexts):
        raise Exists(
            f"another session lies at {target}, or this one has gone on since it was imported:"
            " import it under another id",
            session=foundling.session,
        )


def _begins_with(path: Path, beginning: Path) -> bool:
    """Whether a file begins with the whole lines of another; with none of them only if both are."""
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
    """The length of a file's whole lines: an opening for writing keeps no partial one."""
    if not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.rfind(b"\n") + 1


def _copy(foundling: ImportSource, folder: Path, progress: Progress) -> None:
    copied = 0
    folders = {folder}
    for source, inside in foundling.files():
        target = folder / inside
        if source.is_dir():
            # A folder comes before what lies in it.
            target.mkdir(mode=0o700)
            folders.add(target)
            continue
        with source.open("rb") as old, _new(target) as new:
            while block := old.read(limits.COPY_BYTES):
                new.write(block)
                copied += len(block)
                progress.show(f"{printable(foundling.session)}, {size(copied)}")
            new.flush()
            os.fsync(new.fileno())
        stat = source.stat()
        os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for each in folders:
        sync_folder(each)


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _make_folders(folder: Path, tree: Path) -> None:
    """Make the folders above a session, and have them on the disk, those of the dead, too."""
    make_private(folder)
    for each in (folder, *folder.parents):
        sync_folder(each.parent)
        if each == tree:
            return


def _print_result(
    output: Output, client: BlockingClient, foundling: ImportSource, *, was_there: bool
) -> None:
    stat = client.stat(foundling.session)
    damaged = sum(damaged_lines(Path(stat.folder, name)) for name in (paths.CONTEXT, paths.WIRE))
    if output.as_json:
        output.document(contract.imported(stat, foundling.context.parent, damaged, was_there))
        return
    output.write(printable(stat.session))
    if was_there:
        output.say(f"{stat.session} was imported before, and stays as it is")
    elif damaged:
        what = "line is no record" if damaged == 1 else "lines are no records"
        output.say(f"{number(damaged)} {what} in {stat.session}: kept, and passed over by readers")


def _print_left_out(output: Output, session: str | None, folder: Path, why: str) -> None:
    if output.as_json:
        output.document(contract.left_out(session, folder, why))
    else:
        output.say(f"{session or folder} is left out: {why}")

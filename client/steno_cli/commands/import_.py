"""`steno import`: session folders imported byte for byte, and transcripts followed to their end."""

from argparse import SUPPRESS, Namespace
from pathlib import Path

from steno import BlockingClient
from steno_cli.arguments import argument, command, default, flag, optional_argument, path_text
from steno_cli.connection import connected, own_root
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_follow.first_import import EmptyTranscript
from steno_follow.foreign_source import ForeignSource
from steno_follow.outcomes import Followed, Imported, Outcome, notes_of
from steno_follow.search import Source, find_all, source_tree
from steno_follow.session_folders import ImpossibleId, damaged_lines
from steno_follow.source_tree import SourceTree
from steno_follow.taking_in import Importer, importing, work_bytes
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, number
from steno_protocol import paths
from steno_protocol.errors import StenoError


@command(
    "import",
    "FOLDER is a session folder, a tree of session folders such as kimi-cli's, or one file:"
    " JSON Lines that `steno export` wrote, or <uuid>.jsonl in kimi-cli's old format. The"
    " import of a session is atomic; a session that was imported before is skipped, so the"
    " command can be repeated. The work directories in kimi-cli's kimi.json are imported"
    " too; `steno sessions` shows them. FOLDER may also be or contain transcripts of Claude"
    " Code (~/.claude/projects) or rollouts of Codex (~/.codex/sessions): the branch with"
    " the last record becomes the context, other branches and what a compaction replaced"
    " become past generations, and the file is kept byte for byte in a stream of the"
    " session. A transcript that has grown is imported up to its new end, and one that was"
    " rewritten begins anew, with past generations of what it had; `steno watch` does so all"
    " the time. FOLDER is only read, links in it are passed over. The root must be on this"
    " machine.",
    argument(
        "folder", metavar="FOLDER", type=path_text,
        help="a session folder, a tree of them, or one old file",
    ),
    optional_argument(
        "session", str,
        "the id of the session, or a prefix for the ids of a tree (default: the folder name for a"
        " session, no prefix for a tree, the program's name for transcripts of other agents)",
    ),
    flag("--replace", help=SUPPRESS),
    default(changes=True, makes_root=True),
    example="steno import ~/.kimi/sessions kimi\nsteno import ~/copy demo-2\n"
    "steno import ~/.claude/projects",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Import every session of a folder; report failures and continue.

    Raises:
        WrongUsage: --replace was given, which earlier versions had.
    """
    if options.replace:
        raise WrongUsage(
            "--replace is not needed any more: `steno import` appends what a transcript has more,"
            " and keeps what was rewritten as past generations; leave it out"
        )
    with source_tree(Path(options.folder)) as tree:
        return _run(options, output, tree)


def _run(options: Namespace, output: Output, folder: SourceTree) -> int:
    try:
        found, left_out = find_all(folder, options.session)
    except ImpossibleId as error:
        raise WrongUsage(error.message) from None
    for path, why in left_out:
        _print_left_out(output, None, path, why)
    refused = len(left_out)
    imported: list[Source] = []
    with (
        connected(options) as client,
        Progress(output, "importing") as progress,
        importing(client, own_root(client)) as importer,
    ):
        # What fails, or was imported before, is not copied.
        for source in progress.over_bytes(found, [*map(work_bytes, found)]):
            try:
                placed, done = _bring(
                    importer, source, progress, is_named=options.session is not None
                )
            except StenoError as error:
                if len(found) + len(left_out) == 1:
                    raise
                progress.make_room()
                _print_left_out(output, source.session, source.origin, error.message)
                # A program that ended before the first message left nothing to import.
                refused += not (isinstance(error, EmptyTranscript) and error.is_known)
                continue
            progress.make_room()
            imported.append(placed)
            _print_result(output, client, placed, done)
        for session in importer.mark_gone(folder):
            output.say(f"{session} is kept, and its transcript was deleted")
        importer.note_work_dirs(Path(options.folder), imported)
    if refused:
        output.say(f"{count(refused, 'session')} of {number(len(found) + len(left_out))} left out")
    return Exit.DONE if imported and not refused else Exit.FAILED


class _NotCopied(StenoError):
    """A session could not be copied; nothing of it is in the root."""


def _bring(
    importer: Importer, source: Source, progress: Progress, *, is_named: bool
) -> tuple[Source, Outcome]:
    try:
        return importer.bring(source, is_named=is_named, show=progress.add)
    except OSError as error:
        raise _NotCopied(
            f"{error.filename or source.folder} cannot be copied ({error.strerror or error}):"
            " nothing of the session was kept; remove the cause and import it again",
            session=source.session,
        ) from error


def _print_result(output: Output, client: BlockingClient, source: Source, done: Outcome) -> None:
    stat = client.stat(source.session)
    damaged = sum(damaged_lines(Path(stat.folder, name)) for name in (paths.CONTEXT, paths.WIRE))
    if output.as_json:
        damaged += done.undecoded if isinstance(done, Imported) else done.damaged_count
        output.document(contract.imported(stat, source.origin, damaged, _state_of(done)))
    else:
        output.write(printable(stat.session))
        if isinstance(done, Followed) and not done.has_changed:
            output.say(f"{stat.session} was imported before and is unchanged")
        elif damaged:
            what = "line is no record" if damaged == 1 else "lines are no records"
            output.say(f"{number(damaged)} {what} in {stat.session}: kept, and skipped by readers")
    if isinstance(source, ForeignSource):
        for text in notes_of(done, source):
            output.say(text)


def _state_of(done: Outcome) -> contract.ImportState:
    if isinstance(done, Imported):
        return "imported"
    if done.was_rewritten:
        return "rewritten"
    return "grown" if done.has_changed else "there"


def _print_left_out(output: Output, session: str | None, folder: Path, why: str) -> None:
    message = f"{session or folder} is left out: {why}"
    output.answer(contract.left_out(session, folder, why), message=message)

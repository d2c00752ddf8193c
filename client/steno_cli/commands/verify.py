"""`steno verify`: damage in sessions and transcripts."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from steno import BlockingClient
from steno_cli.arguments import argument, command, flag, path_text
from steno_cli.connection import linked
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.repair.checking import (
    described,
    list_sessions,
    patient,
    verify_sessions,
)
from steno_cli.repair.transcripts import LocalFolder, Transcripts, transcripts_at
from steno_cli.session_files import size_of
from steno_cli.session_ids import is_session_id
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count
from steno_protocol import paths
from steno_protocol.checks import Check, check_file, check_session
from steno_protocol.damage import Finding
from steno_protocol.errors import BadRequest, StenoError
from steno_protocol.line_schemas import schema_of
from steno_protocol.replies import Verification


@command(
    "verify",
    "The daemon checks a session while it keeps writing. Any other TARGET is the path of a"
    " JSONL file or a folder of JSONL files, of any program; it needs no daemon. Nothing is"
    " changed. Exits with 7 if something is damaged; a note, such as decreasing timestamps or a"
    " call without a result, is not damage.",
    argument(
        "targets", metavar="TARGET", nargs="*", type=path_text,
        help="a session id, or the path of a file or folder",
    ),
    flag("--all", help="check every session of the daemon"),
    example="steno verify demo\nsteno verify --all\nsteno verify ./transcripts notes.jsonl",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Check sessions and paths, and print the findings."""
    if options.all == bool(options.targets):
        raise WrongUsage("name sessions, files or folders, or give --all for every session")
    results = _Results(output)
    paths = [target for target in options.targets if not is_session_id(target)]
    sessions = [target for target in options.targets if is_session_id(target)]
    if sessions or options.all:
        _verify_sessions(options, sessions, results)
    for path in paths:
        _verify_path(path, results)
    return results.exit


class Checked(NamedTuple):
    """The result of one check.

    Attributes:
        report: the findings.
        where: the session or folder of the files in the findings.
        path: the file or folder that was checked, None for a session.
        program: the program that wrote the file, None for a session, or if nothing shows it.
    """

    report: Verification
    where: str
    path: str | None
    program: str | None = None


class _Results:
    """The results of the checks, and the exit code."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._damage = 0
        self._has_failed = False

    @property
    def exit(self) -> int:
        if self._damage:
            return Exit.DAMAGED
        return Exit.FAILED if self._has_failed else Exit.DONE

    def report(self, found: Checked, target: str) -> None:
        """Print the result for a session, folder or file that the command line names `target`."""
        report, path = found.report, found.path
        self._damage += report.damage
        if self.output.as_json:
            self.output.document(contract.checked(report, path, found.program))
            return
        for finding in report.findings:
            line = self.output.addressed(described(finding, found.where, target))
            self.output.write(printable(line, one_line=True))
        self.output.flush()
        program = f" ({found.program})" if found.program else ""
        self.output.say(_summary(report, f"{path or found.where}{program}"))

    def failed(self, error: StenoError) -> None:
        """Print that one of several could not be checked."""
        self._has_failed = True
        self.output.error(error)


def _check_local(found: Transcripts, progress: Progress) -> Iterator[Checked]:
    """Check the files of a folder."""

    def show(more_bytes: int) -> None:
        progress.add(more_bytes, str(found.folder))

    with closing(LocalFolder(found.folder)) as folder:
        names = list(found.names)
        if found.is_session and (found.is_whole or paths.CONTEXT in names):
            check = Check(show)
            beside = {paths.WIRE, *(name for name in found.names if paths.stream_of(name))}
            repairable = frozenset(beside) if found.is_owned else None
            generation = check_session(check, folder, sizes={}, repairable=repairable)
            report = check.report(None, generation)
            yield Checked(report, str(found.folder), str(found.folder), found.program_of(""))
            # An unreadable file has a finding.
            checked = {each.file for each in check.files} | {each.file for each in check.findings}
            names = [name for name in names if name not in checked]
        for name in names:
            check = Check(show)
            schema = schema_of(name, in_session=found.is_session)
            is_beside = name == paths.WIRE or paths.stream_of(name) is not None
            is_repairable = not found.is_owned or is_beside
            try:
                check_file(check, name, folder.blocks(name), schema, remedies=is_repairable)
            except PermissionError as error:
                # The file may be in order.
                raise BadRequest(
                    f"{found.folder / name} cannot be read: {error.strerror}; check its owner and"
                    " permissions"
                ) from error
            except OSError as error:
                check.add(
                    name, Finding("unreadable", f"it cannot be read: {error.strerror or error}")
                )
            path = str(found.folder / name)
            yield Checked(check.report(None), str(found.folder), path, found.program_of(name))


def _summary(report: Verification, where: str) -> str:
    records = sum(file.records for file in report.files)
    found = f"{count(report.damage, 'damaged place')}" if report.damage else "no damage"
    notes = f", {count(report.notes, 'note')}" if report.notes else ""
    files = count(len(report.files), "file")
    return f"{where}: {count(records, 'record')} in {files}, {found}{notes}"


def _verify_sessions(options: Namespace, sessions: list[str], results: _Results) -> None:
    # The daemon checks one session without a word on how far it is: the time so far is shown.
    doing = f"checking {sessions[0]}" if len(sessions) == 1 else "checking"
    link = linked(patient(options))
    with BlockingClient(link) as client, Progress(results.output, doing) as progress:
        if options.all:
            found, lost = list_sessions(client)
            sessions = sorted([*found, *lost])
        reports = verify_sessions(client, link, sessions)
        for session in progress.over(sessions):
            progress.show(session if len(sessions) > 1 else "")
            report = next(reports)
            if isinstance(report, StenoError):
                if not options.all:
                    raise report
                results.failed(report)
                continue
            progress.make_room()
            results.report(Checked(report, session, None), session)


def _verify_path(path: str, results: _Results) -> None:
    with Progress(results.output, "checking") as progress:
        everything = [*transcripts_at(path)]
        files = (found.folder / name for found in everything for name in found.names)
        progress.expect(sum(map(size_of, files)))
        for found in everything:
            for result in _check_local(found, progress):
                progress.make_room()
                results.report(result, path)

"""The subcommand `verify`: damage in sessions and transcripts, with its place."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from steno._sync.client import BlockingClient
from steno.cli.command_limits import VERIFY_TIMEOUT_S
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.progress import Progress
from steno.cli.render.wording import count, size
from steno.cli.transcripts.find import LocalFolder, Transcripts, is_session_id, transcripts_at
from steno_protocol import paths
from steno_protocol.checks import Check, check_file, check_session
from steno_protocol.commands import List, Verify
from steno_protocol.damage import Finding
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.line_schemas import schema_of
from steno_protocol.replies import CheckFinding, Sessions, Verification


def verify(options: Namespace, output: Output) -> int:
    """Check sessions and paths, and say what was found."""
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
    """What was found.

    Attributes:
        where: what the names of files stand below: a session or a folder.
        path: the file or folder that was checked, None for a session.
    """

    report: Verification
    where: str
    path: str | None


class _Results:
    """The reported findings so far, and their exit code."""

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
        """One session, folder or file, which the command line called `target`."""
        report, path = found.report, found.path
        self._damage += report.damage
        if self.output.as_json:
            self.output.document(contract.checked(report, path))
            return
        for finding in report.findings:
            self.output.write(printable(described(finding, found.where, target), one_line=True))
        self.output.flush()
        self.output.say(_summary(report, path or found.where))

    def failed(self, error: StenoError) -> None:
        """One of several could not be checked; the others are."""
        self._has_failed = True
        self.output.error(error)


def _check_local(found: Transcripts, progress: Progress) -> Iterator[Checked]:
    """What is found in the files of a folder."""
    checked_bytes = 0

    def show(more_bytes: int) -> None:
        nonlocal checked_bytes
        checked_bytes += more_bytes
        progress.show(f"{size(checked_bytes)} of {found.folder}")

    with closing(LocalFolder(found.folder)) as folder:
        names = list(found.names)
        if found.is_session and (found.is_whole or paths.CONTEXT in names):
            check = Check(show)
            repairable = frozenset({paths.WIRE}) if found.is_owned else None
            generation = check_session(check, folder, sizes={}, repairable=repairable)
            report = check.report(None, generation)
            yield Checked(report, str(found.folder), str(found.folder))
            # The unreadable file was reported.
            looked_at = {each.file for each in check.files} | {each.file for each in check.findings}
            names = [name for name in names if name not in looked_at]
        for name in names:
            check = Check(show)
            schema = schema_of(name, in_session=found.is_session)
            is_repairable = not found.is_owned or name == paths.WIRE
            try:
                check_file(check, name, folder.blocks(name), schema, remedies=is_repairable)
            except OSError as error:
                check.add(
                    name, Finding("unreadable", f"it cannot be read: {error.strerror or error}")
                )
            path = str(found.folder / name)
            yield Checked(check.report(None), str(found.folder), path)


def verify_session(client: BlockingClient, session: str) -> Verification:
    """What the daemon finds in a session."""
    try:
        return client.request(Verify(session=session), Verification)[0]
    except NotFound as error:
        if session in _sessions(client, session)[1]:
            return _without_context(session)
        if Path(session).exists():
            message = f"there is no such session; as a path it is ./{session}"
            raise NotFound(message, session=session) from error
        raise


def _sessions(client: BlockingClient, prefix: str = "") -> tuple[list[str], list[str]]:
    """The sessions with a prefix, and those of which only older generations are there."""
    found: list[str] = []
    lost: list[str] = []
    more = True
    while more:
        wanted = List(prefix=prefix, after=found[-1] if found else "")
        page = client.request(wanted, Sessions)[0]
        found += [entry.session for entry in page.sessions]
        lost += page.without_context
        more = page.more
    return found, lost


def _without_context(session: str) -> Verification:
    """The report on a session that lost its present generation, which no daemon looks into."""
    what = (
        "it is not there, so the session has no present: move the newest context_N.jsonl here to"
        " go on from it"
    )
    check = Check()
    check.add(paths.CONTEXT, Finding("no_context", what))
    return check.report(session)


def patient(options: Namespace) -> Namespace:
    """The options, with the time that looking through a large session may take."""
    if options.timeout is None:
        options.timeout = VERIFY_TIMEOUT_S
    return options


def described(finding: CheckFinding, where: str, repair: str) -> str:
    """One line about a finding: where it is, what it is, what to do."""
    line = f":{finding.line}" if finding.line else ""
    place = f" (byte {finding.offset}, {count(finding.bytes, 'byte')})" if finding.bytes else ""
    note = "" if finding.damage else "note: "
    return f"{where}/{finding.file}{line}: {note}{finding.what}{place}{_advice(finding, repair)}"


def _advice(finding: CheckFinding, repair: str) -> str:
    match finding.remedy:
        case "cut":
            return f"; `steno repair {repair}` leaves it out"
        case "split":
            return f"; `steno repair {repair}` puts whole records on lines of their own"
        case "end":
            return f"; `steno repair {repair}` ends it"
        case "replace":
            return f"; `steno repair {repair} --apply` keeps it aside and begins a new one"
        case "opening":
            return "; the next command that writes keeps a copy and cuts it"
        case _ if finding.damage:
            return "; it stays as it is"
        case _:
            return ""


def _summary(report: Verification, where: str) -> str:
    records = sum(file.records for file in report.files)
    found = f"{count(report.damage, 'damaged place')}" if report.damage else "no damage"
    notes = f", {count(report.notes, 'note')}" if report.notes else ""
    files = count(len(report.files), "file")
    return f"{where}: {count(records, 'record')} in {files}, {found}{notes}"


def _verify_sessions(options: Namespace, sessions: list[str], results: _Results) -> None:
    with connected(patient(options)) as client, Progress(results.output, "checking") as progress:
        if options.all:
            found, lost = _sessions(client)
            sessions = sorted([*found, *lost])
        for session in progress.over(sessions):
            try:
                report = verify_session(client, session)
            except StenoError as error:
                if not options.all:
                    raise
                results.failed(error)
                continue
            progress.make_room()
            results.report(Checked(report, session, None), session)


def _verify_path(path: str, results: _Results) -> None:
    with Progress(results.output, "checking") as progress:
        for found in transcripts_at(path):
            for checked in _check_local(found, progress):
                progress.make_room()
                results.report(checked, path)

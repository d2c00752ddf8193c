"""Damage in sessions: the check by the daemon, and findings in words."""

import zlib
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from steno import BlockingClient
from steno.parts import BlockingLink
from steno.values import decode_line
from steno_cli.command_limits import (
    CALLS_READ_BYTES_MAX,
    VERIFICATIONS_AHEAD_MAX,
    VERIFY_TIMEOUT_S,
)
from steno_cli.connection import answers, pages
from steno_cli.session_files import SessionFiles
from steno_present.open_calls import OpenCall, OpenCalls, open_calls
from steno_present.wording import count
from steno_protocol import paths
from steno_protocol.blocks import split_lines
from steno_protocol.checks import Check
from steno_protocol.commands import List, Verify
from steno_protocol.damage import Finding
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.limits import FINDINGS_LISTED_MAX
from steno_protocol.positions import Position
from steno_protocol.replies import CheckedFile, CheckFinding, Verification
from steno_search.prefilter import Prefilter

_HAS_CALLS = Prefilter(b"tool", ignore_case=False)
"""Every call of a tool and every result has the word in its JSON, as in `tool_use`."""


def verify_session(client: BlockingClient, session: str) -> Verification:
    """Let the daemon check a session.

    Raises:
        NotFound: there is no such session.
    """
    try:
        return client.request(Verify(session=session), Verification)[0]
    except NotFound as error:
        return _not_found(client, session, error)


def verify_sessions(
    client: BlockingClient, link: BlockingLink, sessions: Sequence[str]
) -> Iterator[Verification | StenoError]:
    """The report on each session, with its calls that have no result, or why there is none.

    The daemon checks the next sessions while a report is used.
    """
    files = SessionFiles(client)
    asked = (Verify(session=session) for session in sessions)
    reports = answers(link, asked, Verification, VERIFICATIONS_AHEAD_MAX)
    for session, report in zip(sessions, reports, strict=True):
        try:
            if isinstance(report, NotFound):
                yield _with_open_calls(client, files, _not_found(client, session, report))
            elif isinstance(report, StenoError):
                yield report
            else:
                yield _with_open_calls(client, files, report)
        except StenoError as error:
            yield error


def _not_found(client: BlockingClient, session: str, error: NotFound) -> Verification:
    if session in list_sessions(client, session)[1]:
        return _without_context(session)
    if Path(session).exists():
        message = f"there is no such session; a path needs ./ before it: ./{session}"
        raise NotFound(message, session=session) from error
    raise error


def _with_open_calls(
    client: BlockingClient, files: SessionFiles, report: Verification
) -> Verification:
    """The report on a session with a note for each call that has no result."""
    assert report.session is not None
    calls = _calls_in_file(files, report)
    if calls is None:
        try:
            calls = open_calls(client.session(report.session).records())
        except NotFound:
            # It has no present generation, which is a finding of its own.
            return report
    notes = open_call_findings(calls)
    listed = [*report.findings, *notes][:FINDINGS_LISTED_MAX]
    return msgspec.structs.replace(report, findings=listed, notes=report.notes + len(notes))


def _calls_in_file(files: SessionFiles, report: Verification) -> list[OpenCall] | None:
    """The calls in the bytes that the daemon checked; None if they cannot be had from the file."""
    checked = next((each for each in report.files if each.file == paths.CONTEXT), None)
    data = None if checked is None else _checked_bytes(files, report, checked)
    if data is None:
        return None
    calls = OpenCalls()
    # Only a file without damage: other lines are skipped by readers, some of them here only.
    is_sound = not any(each.file == paths.CONTEXT for each in report.findings)
    for number, line in enumerate(split_lines(data)):
        if _HAS_CALLS.may_match(line):
            cursor = Position(report.generation, number)
            if is_sound:
                calls.add_line(cursor, line)
            elif (record := decode_line(cursor, line)) is not None:
                calls.add(record)
    return calls.calls()


def _checked_bytes(files: SessionFiles, report: Verification, checked: CheckedFile) -> bytes | None:
    if checked.bytes > CALLS_READ_BYTES_MAX or report.session is None:
        return None
    try:
        file = files.open_context(report.session)
        if file is None:
            return None
        with file:
            data = file.read(checked.bytes)
    except OSError:
        return None
    # The same bytes: another program may have changed the file, or a rewrite replaced it.
    return data if zlib.crc32(data) == checked.crc else None


def open_call_findings(calls: Iterable[OpenCall]) -> list[CheckFinding]:
    """Calls without a result as notes of a check."""
    return [
        CheckFinding(
            file=paths.CONTEXT,
            kind="open_call",
            what=f"the call {call.id} of {call.name} has no result",
            damage=False,
            line=call.cursor.line + 1,
            records=1,
            remedy="close",
        )
        for call in calls
    ]


def list_sessions(client: BlockingClient, prefix: str = "") -> tuple[list[str], list[str]]:
    """The sessions with a prefix, and those that have only past generations."""
    found: list[str] = []
    lost: list[str] = []
    for page in pages(client, List(prefix=prefix)):
        found += [entry.session for entry in page.sessions]
        lost += page.without_context
    return found, lost


def _without_context(session: str) -> Verification:
    """The report on a session without a present generation, which the daemon cannot open."""
    what = (
        "it is missing, so the session has no present generation: move the newest"
        " context_N.jsonl here to continue from it"
    )
    check = Check()
    check.add(paths.CONTEXT, Finding("no_context", what))
    return check.report(session)


def patient(options: Namespace) -> Namespace:
    """The options, with a timeout for work on all bytes of large sessions."""
    if options.timeout is None:
        options.timeout = VERIFY_TIMEOUT_S
    return options


def described(finding: CheckFinding, where: str, repair: str) -> str:
    """A finding on one line: its place, its text and its remedy."""
    line = f":{finding.line}" if finding.line else ""
    place = f" (byte {finding.offset}, {count(finding.bytes, 'byte')})" if finding.bytes else ""
    note = "" if finding.damage else "note: "
    return f"{where}/{finding.file}{line}: {note}{finding.what}{place}{_advice(finding, repair)}"


def _advice(finding: CheckFinding, repair: str) -> str:
    match finding.remedy:
        case "cut":
            return f"; `steno repair {repair}` removes it"
        case "split":
            return f"; `steno repair {repair}` puts whole records on lines of their own"
        case "end":
            return f"; `steno repair {repair}` ends it"
        case "replace":
            return f"; `steno repair {repair} --apply` renames it and begins a new one"
        case "close":
            return f"; unless it still runs, `steno repair {repair} --close-calls` closes it"
        case "opening":
            return "; the next command that writes keeps a copy and truncates it"
        case _ if finding.damage:
            return "; it stays as it is"
        case _:
            return ""

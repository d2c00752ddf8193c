"""Damage in sessions: the check by the daemon, and findings in words."""

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import msgspec

from steno import BlockingClient
from steno_cli.command_limits import VERIFY_TIMEOUT_S
from steno_present.open_calls import OpenCall, open_calls
from steno_present.wording import count
from steno_protocol import paths
from steno_protocol.checks import Check
from steno_protocol.commands import List, Verify
from steno_protocol.damage import Finding
from steno_protocol.errors import NotFound
from steno_protocol.limits import FINDINGS_LISTED_MAX
from steno_protocol.replies import CheckFinding, Sessions, Verification


def verify_session(client: BlockingClient, session: str) -> Verification:
    """Let the daemon check a session.

    Raises:
        NotFound: there is no such session.
    """
    try:
        return client.request(Verify(session=session), Verification)[0]
    except NotFound as error:
        if session in list_sessions(client, session)[1]:
            return _without_context(session)
        if Path(session).exists():
            message = f"there is no such session; a path needs ./ before it: ./{session}"
            raise NotFound(message, session=session) from error
        raise


def with_open_calls(client: BlockingClient, report: Verification) -> Verification:
    """The report on a session with a note for each call that has no result."""
    assert report.session is not None
    try:
        calls = open_calls(client.session(report.session).records())
    except NotFound:
        # It has no present generation, which is a finding of its own.
        return report
    notes = open_call_findings(calls)
    listed = [*report.findings, *notes][:FINDINGS_LISTED_MAX]
    return msgspec.structs.replace(report, findings=listed, notes=report.notes + len(notes))


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
    more = True
    while more:
        request = List(prefix=prefix, after=found[-1] if found else "")
        page = client.request(request, Sessions)[0]
        found += [entry.session for entry in page.sessions]
        lost += page.without_context
        more = page.more
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
    """The options, with a timeout for the check of a large session."""
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

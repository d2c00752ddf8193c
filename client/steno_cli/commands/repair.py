"""`steno repair`: the repair of a session, a file or a folder."""

import shlex
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from steno_cli.arguments import argument, command, default, flag, key_option, path_text, why_option
from steno_cli.closing import close_calls
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.repair import repair_in_place
from steno_cli.repair.checking import described, open_call_findings, patient, verify_session
from steno_cli.repair.transcripts import LocalFolder, Transcripts, transcripts_at
from steno_cli.session_files import size_of
from steno_cli.session_ids import is_session_id
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count
from steno_protocol import paths
from steno_protocol.checks import Check, check_file, edits_of
from steno_protocol.commands import Open
from steno_protocol.damage import Edit
from steno_protocol.errors import BadRequest, StenoError
from steno_protocol.line_schemas import LineSchema, schema_of
from steno_protocol.positions import Position
from steno_protocol.replies import CheckFinding, SessionStat

_BY_REPAIR: Final = frozenset({"cut", "split", "end"})

_BY_OPENING: Final = "opening"

_BY_REPLACING: Final = "replace"


@command(
    "repair",
    "Whole records stay in order, each on its own line; other bytes are left out. Without"
    " --apply, nothing is changed. The daemon repairs a session: the damaged file stays as a"
    " past generation, and a damaged state.json stays beside the new one. A file is repaired"
    " in place, and a copy of the original stays beside it. --close-calls"
    " appends a result to each call of a tool that has none, because the program ended before"
    " it: the result says that the call was interrupted. A call that still runs is open, too:"
    " use it where no program works. It changes nothing if another writer was faster.",
    argument(
        "target", metavar="TARGET", type=path_text,
        help="a session id, or the path of a file or folder",
    ),
    flag("--apply", help="carry the repair out (default: only show it)"),
    flag(
        "--close-calls",
        help="append a result to each call that has none, and repair nothing else",
    ),
    why_option,
    key_option(),
    default(changes=False),
    example="steno repair demo\nsteno repair demo --apply\nsteno repair demo --close-calls\n"
    "steno repair ./notes.jsonl --apply",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Repair a session through its daemon, or a file or folder in place."""
    if options.close_calls:
        return _close_calls(options, output)
    if is_session_id(options.target):
        return _repair_session(options, output)
    return _repair_path(options, output)


def _repair_session(options: Namespace, output: Output) -> int:
    session: str = options.target
    with connected(patient(options)) as client:
        with Progress(output, f"checking {session}"):
            report = verify_session(client, session)
        if options.apply:
            # Crash recovery repairs the tail; a repair does not.
            opening = Open(session=session, create=False, by=client.name)
            client.request(opening, SessionStat)
        remedies = {*_BY_REPAIR, _BY_OPENING, _BY_REPLACING}
        found = [each for each in report.findings if each.remedy in remedies]
        is_rewrite = any(each.remedy in _BY_REPAIR for each in found)
        is_state_damaged = any(each.remedy == _BY_REPLACING for each in found)
        ack = None
        if options.apply and is_rewrite:
            with Progress(output, "repairing"):
                ack = client.session(session).repair(report, why=options.why, key=options.key)
        if options.apply and is_state_damaged:
            client.session(session).describe(replace_damaged=True)
    is_applied = bool(options.apply and found)
    if output.as_json:
        kept_in, head = (None, None) if ack is None else (str(ack.rotated), str(ack.head))
        output.document(
            contract.repaired(session, None, found, applied=is_applied, kept_in=kept_in, head=head)
        )
        return Exit.DONE
    _print_result(output, session, report.findings, found)
    if ack is not None:
        output.write(str(ack.head))
        output.say(f"{session} is repaired; the damaged file is {ack.rotated}")
    elif is_applied and any(each.remedy == _BY_OPENING for each in found):
        output.say(f"{session} is repaired; the removed bytes are in its folder {paths.QUARANTINE}")
    elif not is_applied:
        _print_undone(output, session, found)
    if is_applied and is_state_damaged:
        kept = paths.damaged_state_file(1)
        output.say(
            f"{session} has a new {paths.STATE}, and the damaged one is {kept} beside it (or the"
            " highest number there): set title, labels and archive again"
        )
    return Exit.DONE


def _close_calls(options: Namespace, output: Output) -> int:
    if options.apply or options.why is not None:
        raise WrongUsage("--close-calls appends to a session: leave --apply and --why out")
    if not is_session_id(options.target):
        raise WrongUsage("--close-calls appends to a session: give its id instead of a path")
    session: str = options.target
    with connected(patient(options)) as client:
        closed, ack = close_calls(client.session(session), options.key)
    if output.as_json:
        head = None if ack is None else str(ack.head)
        findings = open_call_findings(closed)
        output.document(
            contract.repaired(
                session, None, findings, applied=ack is not None, kept_in=None, head=head
            )
        )
        return Exit.DONE
    if ack is None:
        output.say(f"{session}: every call has a result")
        return Exit.DONE
    for number, call in enumerate(closed):
        place = Position(ack.first.generation, ack.first.line + number)
        output.write(printable(f"{place}  {call.name}, called at {call.cursor}", one_line=True))
    output.say(
        f"{count(len(closed), 'call')} of {session} got a result that says that it was interrupted"
    )
    return Exit.DONE


class _Plan(NamedTuple):
    """The repair of one file.

    Attributes:
        findings: all findings of the check.
        repaired: the findings that the repair removes.
        edits: the changes to the file.
        original: the file that was checked.
    """

    findings: list[CheckFinding]
    repaired: list[CheckFinding]
    edits: list[Edit]
    original: repair_in_place.Original


def _repair_path(options: Namespace, output: Output) -> int:
    has_failed = False
    for found in transcripts_at(options.target):
        for name in found.names:
            try:
                _repair_file(options, output, found, name)
            except StenoError as error:
                if len(found.names) == 1:
                    raise
                has_failed = True
                output.error(error)
    return Exit.FAILED if has_failed else Exit.DONE


def _repair_file(options: Namespace, output: Output, found: Transcripts, name: str) -> None:
    path = found.folder / name
    program = found.program_of(name)
    named = f"{path} ({program})" if program else str(path)
    with closing(LocalFolder(found.folder)) as folder:
        if options.apply:
            repair_in_place.lock(folder, found.folder)
        with Progress(output, "checking") as progress:
            # It is read twice.
            progress.expect(2 * size_of(path))
            plan = _plan(folder, found, name, progress)
        if plan.edits:
            _check_not_owned(found, name)
        kept = None
        if options.apply and plan.edits:
            repair_in_place.check_at_rest(plan.original, path)
            with Progress(output, "repairing"):
                kept = repair_in_place.replace_file(folder, path, plan.original, plan.edits)
    if output.as_json:
        kept_in = None if kept is None else str(found.folder / kept)
        output.document(
            contract.repaired(
                None,
                str(path),
                plan.repaired,
                applied=kept is not None,
                kept_in=kept_in,
                head=None,
                program=program,
            )
        )
        return
    _print_result(output, str(found.folder), plan.findings, plan.repaired)
    if kept is not None:
        output.write(printable(str(found.folder / kept)))
        output.say(f"{named} is repaired; the original is {kept}, beside it")
    else:
        _print_undone(output, named, plan.repaired)


def _plan(folder: LocalFolder, found: Transcripts, name: str, progress: Progress) -> _Plan:
    """Read a file twice: for the findings, and for the edits."""
    original = repair_in_place.original_of(folder, name)

    def schema() -> LineSchema:
        return schema_of(name, in_session=found.is_session)

    def blocks() -> Iterator[bytes]:
        for block in folder.blocks(name):
            progress.add(len(block), name)
            yield block

    check = Check()
    check_file(check, name, blocks(), schema())
    scanner, edits = edits_of(blocks(), schema())
    repaired = [each for each in check.findings if each.remedy in _BY_REPAIR]
    return _Plan(check.findings, repaired, edits, original._replace(size=scanner.size))


def _check_not_owned(found: Transcripts, name: str) -> None:
    """Refuse to change a file of a session of steno: its timeline contains positions in it."""
    is_recorded = name in (paths.CONTEXT, paths.TIMELINE) or paths.generation_of(name) is not None
    if found.is_owned and is_recorded:
        raise BadRequest(
            f"{found.folder / name} belongs to a session of a steno daemon, and its timeline"
            f" contains positions in it: {_right_repair(found)}"
        )


def _right_repair(found: Transcripts) -> str:
    """How the daemon repairs the session of a folder; root and session come from its path."""
    for above in found.folder.parents:
        if above.name == paths.SESSIONS and (above.parent / paths.LOCK).exists():
            session = found.folder.relative_to(above)
            words = ["steno", "repair", "--root", str(above.parent), str(session)]
            return f"`{shlex.join(words)}` repairs it"
    return "`steno repair SESSION` with its root or mount repairs it"


def _print_result(
    output: Output, where: str, findings: list[CheckFinding], repaired: list[CheckFinding]
) -> None:
    for finding in findings:
        if finding in repaired:
            line = f":{finding.line}" if finding.line else ""
            place = f"{where}/{finding.file}{line}"
            output.write(printable(f"{place}: {finding.what}: {_done(finding)}", one_line=True))
        elif finding.damage:
            output.say(described(finding, where, where))


def _done(finding: CheckFinding) -> str:
    match finding.remedy:
        case "split":
            return "its whole record stays" if finding.records == 1 else "each gets its own line"
        case "end":
            return "it gets its newline"
        case "opening":
            return "a copy goes to quarantine/, and it is truncated"
        case "replace":
            return f"it stays as {paths.STATE}.damaged-N, and a new one begins"
        case _:
            return f"{count(finding.bytes, 'byte')} from byte {finding.offset} on are removed"


def _print_undone(output: Output, where: str, repaired: list[CheckFinding]) -> None:
    if repaired:
        places_found = count(len(repaired), "place")
        output.say(f"{where}: {places_found} to repair; nothing was changed, --apply does it")
    else:
        output.say(f"{where}: there is nothing to repair")

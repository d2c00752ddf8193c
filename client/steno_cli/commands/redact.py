"""`steno redact`: the secrets that exports and the viewer mask, in a session or a text."""

import json
from argparse import Namespace
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from steno import BlockingClient
from steno.values import decode_object
from steno_cli.arguments import command, default, flag, optional_argument
from steno_cli.configuration import redactor_of
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.records import report_damaged
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.stdin import is_typed, text_or_stdin
from steno_present import contract
from steno_present.safe_text import printable
from steno_redact.patterns import BUILT_IN
from steno_redact.redactor import Finding, Redactor


class Place(NamedTuple):
    """Where a finding is: a file of the session, or what describes it, and a position there."""

    file: str
    at: str


@command(
    "redact",
    "Prints each secret of a session, or of the text on stdin, with its place and the name of"
    " its pattern, masked. Changes nothing. The patterns are those of steno and of the table"
    " [redact] in config.toml. Exits with 4 if nothing is found.",
    optional_argument("session", str, "a session id or a unique prefix (default: stdin)"),
    default(by_prefix=True),
    flag("--patterns", help="only list the patterns that are in force"),
    example="steno redact demo\nsteno redact < notes.txt\nsteno redact --patterns",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Print the findings, or the patterns."""
    redactor = redactor_of(options)
    if options.patterns:
        return _list(redactor, output)
    if options.session is None:
        if is_typed():
            raise WrongUsage("name a session, or give a text on stdin")
        text = text_or_stdin(Namespace(text="-"), "text")
        return _print(None, _in_text(redactor, text), output)
    with connected(options) as client, Progress(output, "searching") as progress:
        reading = _Reading(client, options.session, redactor, progress)
        code = _print(options.session, reading.findings(), output)
    report_damaged(output, reading.damaged)
    return code


class _Reading:
    """The findings of one session.

    Attributes:
        damaged: skipped lines that were no records.
    """

    def __init__(
        self, client: BlockingClient, session: str, redactor: Redactor, progress: Progress
    ) -> None:
        self._session = client.session(session)
        self._redactor = redactor
        self._progress = progress
        self._read = 0
        self.damaged = 0

    def findings(self) -> Iterator[tuple[Place, Finding]]:
        """The findings with their places: what describes the session, then each of its files."""
        stat = self._session.stat()
        yield from self._in(Place("title", ""), stat.title)
        yield from self._in(Place("labels", ""), list(stat.labels))
        records = self._session.records(until=stat.head)
        for record in records:
            yield from self._in(Place("context", str(record.cursor)), record.record, record.raw)
        events = self._session.wire_records()
        for event in events:
            value = decode_object(event.raw)
            yield from self._in(Place("wire", str(event.cursor)), value, event.raw)
        self.damaged = records.damaged + events.damaged
        for info in self._session.streams():
            stream = self._session.stream(info.name).records(until=info.head)
            for each in stream:
                value = json.loads(each.data)
                yield from self._in(Place(info.name, str(each.cursor)), value, each.data)
            self.damaged += stream.damaged

    def _in(self, place: Place, value: object, raw: bytes = b"") -> Iterator[tuple[Place, Finding]]:
        self._read += len(raw)
        self._progress.show_bytes(self._read, None)
        for finding in self._redactor.findings(value):
            self._progress.make_room()
            yield place, finding


def _in_text(redactor: Redactor, text: str) -> Iterator[tuple[Place, Finding]]:
    """The findings of a text, by line; lines that are JSON objects are searched as such."""
    lines = [(number, line, _document(line)) for number, line in enumerate(text.split("\n"), 1)]
    for is_plain, group in groupby(lines, key=lambda each: each[2] is None):
        block = list(group)
        if not is_plain:
            for number, _, value in block:
                for finding in redactor.findings(value):
                    yield Place("stdin", str(number)), finding
            continue
        # Together: a private key has several lines.
        joined = "\n".join(line for _, line, _ in block)
        for start, finding in redactor.located(joined):
            yield Place("stdin", str(block[0][0] + joined.count("\n", 0, start))), finding


def _document(line: str) -> object:
    try:
        value = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value


def _print(session: str | None, findings: Iterator[tuple[Place, Finding]], output: Output) -> int:
    has_findings = False
    for place, finding in findings:
        has_findings = True
        if output.as_json:
            at = place.at or None
            output.document(
                contract.finding(session, place.file, at, finding.name, finding.preview)
            )
            continue
        # The context is the file that one usually reads.
        words = [session or "", "" if place.file == "context" else place.file, place.at]
        where = output.style("  ".join([*(each for each in words if each), finding.name]), "dim")
        output.write(f"{where}  {printable(finding.preview, one_line=True)}")
    return Exit.DONE if has_findings else Exit.NOT_FOUND


def _list(redactor: Redactor, output: Output) -> int:
    own = [name for name in redactor.names if not redactor.is_built_in(name)]
    rows = [(name, "config.toml") for name in own]
    rows += [
        (name, "built-in" if redactor.is_built_in(name) else "built-in, off")
        for name in BUILT_IN
        if name not in own
    ]
    for name, source in rows:
        output.answer({"name": name, "source": source}, f"{name:<20} {source}")
    return Exit.DONE

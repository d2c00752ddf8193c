"""The subcommand `export`: a session as Markdown, as JSON, or as a folder of kimi-cli's."""

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from steno._sync.client import BlockingSession
from steno.cli.commands.read import tell_damaged
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.markdown import Markdown, head_of
from steno.cli.render.output import Output, printable
from steno.cli.render.progress import Progress
from steno.cli.render.wording import size
from steno.cli.transfer.destination import new_file, new_folder
from steno.cli.transfer.kimi_folder import write_session
from steno_protocol.replies import SessionStat


def export(options: Namespace, output: Output) -> int:
    """Write a session down in the format that is asked for."""
    if options.format is None:
        options.format = "json" if output.as_json else "markdown"
    if options.output == "-" and options.format != "kimi":
        options.output = None
    if options.format == "markdown" and output.as_json and options.output is None:
        raise WrongUsage(
            "--json and --format markdown are two formats: give one, or say with -o where the"
            " Markdown goes",
            session=options.session,
        )
    if options.format == "kimi":
        return _export_folder(options, output)
    return _export_text(options, output, is_json=options.format == "json")


# --- text ----------------------------------------------------------------------------------------


def _export_text(options: Namespace, output: Output, *, is_json: bool) -> int:
    with connected(options) as client, Progress(output, "exporting") as progress:
        session = client.session(options.session)
        stat = session.stat()
        pieces = _Pieces(session, stat, progress)
        lines = pieces.json() if is_json else pieces.markdown()
        if options.output is None:
            for line in lines:
                progress.make_room()
                output.write(line if is_json or not output.is_terminal else printable(line))
        else:
            _write_file(Path(options.output), lines)
    if options.output is not None:
        _print_result(options, output, Path(options.output))
    tell_damaged(output, pieces.damaged)
    return Exit.DONE


class _Pieces:
    """What an export consists of, as it is read."""

    def __init__(self, session: BlockingSession, stat: SessionStat, progress: Progress) -> None:
        self._session = session
        self._stat = stat
        self._progress = progress
        self._read = 0
        self.damaged = 0

    def markdown(self) -> Iterator[str]:
        """The conversation for people, line by line."""
        yield from head_of(self._stat)
        rendering = Markdown()
        records = self._session.records(until=self._stat.head)
        for record in records:
            yield from rendering.record(record)
            self._count(record.raw)
        self.damaged = records.damaged

    def json(self) -> Iterator[str]:
        """One document, written as it is read: it may be larger than memory."""
        stat = contract.reply(self._stat)
        head = {name: stat[name] for name in contract.EXPORT_HEAD}
        yield json.dumps(head, ensure_ascii=False)[:-1] + ',"records":['
        records = self._session.records(until=self._stat.head)
        yield from _joined(self._document(contract.record(each), each.raw) for each in records)
        yield '],"events":['
        events = self._session.wire_records()
        yield from _joined(self._document(contract.record(each), each.raw) for each in events)
        entries = [contract.reply(entry) for entry in self._session.timeline()]
        self.damaged = records.damaged + events.damaged
        timeline = json.dumps(entries, ensure_ascii=False)
        yield f'],"timeline":{timeline},"damaged":{self.damaged}}}'

    def _document(self, line: bytes, raw: bytes) -> str:
        self._count(raw)
        return line.decode().rstrip("\n")

    def _count(self, raw: bytes) -> None:
        self._read += len(raw)
        self._progress.show(size(self._read))


def _joined(documents: Iterable[str]) -> Iterator[str]:
    """Documents one a line, with the commas that JSON wants between them."""
    before = ""
    for document in documents:
        yield before + document
        before = ","


def _write_file(path: Path, lines: Iterable[str]) -> None:
    with new_file(path) as file:
        for line in lines:
            file.write(line.encode("utf-8", "backslashreplace") + b"\n")


# --- a folder ------------------------------------------------------------------------------------


def _export_folder(options: Namespace, output: Output) -> int:
    if options.output in {None, "-"}:
        raise WrongUsage("--format kimi makes a folder: say with -o where", session=options.session)
    path = Path(options.output)
    with (
        connected(options) as client,
        Progress(output, "exporting") as progress,
        new_folder(path) as folder,
    ):
        written = write_session(client, options.session, folder, progress)
    _print_result(options, output, path)
    tell_damaged(output, written.damaged)
    if not written.has_files:
        output.say(
            f"the files of {options.session} lie on the daemon's machine: only its lines and its"
            " title are written; run the export there for uploads, subagents and tasks"
        )
    return Exit.DONE


def _print_result(options: Namespace, output: Output, path: Path) -> None:
    written = path.absolute()
    if output.as_json:
        output.document(
            {"session": options.session, "format": options.format, "path": str(written)}
        )
    else:
        output.write(str(written))

"""`steno export`: a session as Markdown, as JSON, or as a folder of kimi-cli."""

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from steno._sync.client import BlockingClient, BlockingSession
from steno.cli.arguments import Subcommands, command, path_text, session_argument
from steno.cli.connection import connected, local_root
from steno.cli.destination import new_file, new_folder
from steno.cli.exits import Exit, WrongUsage
from steno.cli.kimi_folder import write_session
from steno.cli.records import report_damaged
from steno.cli.render import contract
from steno.cli.render.markdown import Markdown, head_of
from steno.cli.render.output import Output, printable
from steno.cli.render.progress import Progress
from steno.cli.sizes import size_of
from steno_protocol import paths
from steno_protocol.replies import SessionStat


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "export", run,
        "markdown: the conversation for people. json: all records, events, streams and the"
        " timeline with their cursors. kimi: a session folder in kimi-cli's format, without the"
        " keys that steno adds, with past generations, streams, uploads, tasks and subagents. A"
        " daemon on another machine sends only the lines and the title. Symbolic links are skipped."
        " Existing files are never overwritten.",
        example="steno export demo -o demo.md\nsteno export demo --format kimi -o ~/copy",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "--format",
        choices=("markdown", "json", "kimi"),
        help="(default: markdown, or json with --json)",
    )
    parser.add_argument(
        "-o", "--output", metavar="PATH", type=path_text,
        help="the file or, for kimi, the folder to make (default, and -: stdout; kimi needs one)",
    )  # fmt: skip


def run(options: Namespace, output: Output) -> int:
    """Write a session in the requested format."""
    if options.format is None:
        options.format = "json" if output.as_json else "markdown"
    if options.output == "-" and options.format != "kimi":
        options.output = None
    if options.format == "markdown" and output.as_json and options.output is None:
        raise WrongUsage(
            "--json and --format markdown are two formats: give one, or name the file for the"
            " Markdown with -o",
            session=options.session,
        )
    if options.format == "kimi":
        return _export_folder(options, output)
    return _export_text(options, output, is_json=options.format == "json")


def _export_text(options: Namespace, output: Output, *, is_json: bool) -> int:
    with connected(options) as client, Progress(output, "exporting") as progress:
        session = client.session(options.session)
        stat = session.stat()
        progress.expect(_bytes_of(session, stat, client, is_json=is_json))
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
    report_damaged(output, pieces.damaged)
    return Exit.DONE


def _bytes_of(
    session: BlockingSession, stat: SessionStat, client: BlockingClient, *, is_json: bool
) -> int:
    """The bytes that an export reads; for a daemon on another machine without its events."""
    if not is_json:
        return stat.bytes
    streams = sum(info.bytes for info in session.streams())
    wire = Path(stat.folder, paths.WIRE)
    is_here = local_root(client) is not None
    return stat.bytes + streams + (size_of(wire) if is_here else 0)


class _Pieces:
    """The parts of an export, read one after the other.

    Attributes:
        damaged: skipped lines that were no records.
    """

    def __init__(self, session: BlockingSession, stat: SessionStat, progress: Progress) -> None:
        self._session = session
        self._stat = stat
        self._progress = progress
        self.damaged = 0

    def markdown(self) -> Iterator[str]:
        """The lines of the conversation."""
        yield from head_of(self._stat)
        rendering = Markdown()
        records = self._session.records(until=self._stat.head)
        for record in records:
            yield from rendering.record(record)
            self._progress.add(len(record.raw))
        self.damaged = records.damaged

    def json(self) -> Iterator[str]:
        """The lines of one document, which may be larger than memory."""
        stat = contract.reply(self._stat)
        head = {name: stat[name] for name in contract.EXPORT_HEAD}
        yield json.dumps(head, ensure_ascii=False)[:-1] + ',"records":['
        records = self._session.records(until=self._stat.head)
        yield from _joined(self._document(contract.record(each), each.raw) for each in records)
        damaged = records.damaged
        yield '],"events":['
        events = self._session.wire_records()
        yield from _joined(self._document(contract.record(each), each.raw) for each in events)
        yield '],"streams":{'
        for number, info in enumerate(self._session.streams()):
            yield f'{"," if number else ""}"{info.name}":['
            stream = self._session.stream(info.name).records(until=info.head)
            yield from _joined(
                self._document(contract.stream_record(each), each.data) for each in stream
            )
            damaged += stream.damaged
            yield "]"
        entries = [contract.reply(entry) for entry in self._session.timeline()]
        self.damaged = damaged + events.damaged
        timeline = json.dumps(entries, ensure_ascii=False)
        yield f'}},"timeline":{timeline},"damaged":{self.damaged}}}'

    def _document(self, line: bytes, raw: bytes) -> str:
        self._progress.add(len(raw))
        return line.decode().rstrip("\n")


def _joined(documents: Iterable[str]) -> Iterator[str]:
    """Documents one a line, with commas between them."""
    before = ""
    for document in documents:
        yield before + document
        before = ","


def _write_file(path: Path, lines: Iterable[str]) -> None:
    with new_file(path) as file:
        for line in lines:
            file.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _export_folder(options: Namespace, output: Output) -> int:
    if options.output in {None, "-"}:
        raise WrongUsage("--format kimi makes a folder: name it with -o", session=options.session)
    path = Path(options.output)
    with (
        connected(options) as client,
        Progress(output, "exporting") as progress,
        new_folder(path) as folder,
    ):
        written = write_session(client, options.session, folder, progress)
    _print_result(options, output, path)
    report_damaged(output, written.damaged)
    if not written.has_files:
        output.say(
            f"the files of {options.session} are on the daemon's machine: only its lines and its"
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

"""`steno export`: a session as Markdown, HTML, JSON, or as the files of another program."""

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from steno import BlockingClient, BlockingSession
from steno_cli.arguments import argument, command, flag, one_of, path_text, session_argument
from steno_cli.closing import say_open_calls
from steno_cli.configuration import redactor_of
from steno_cli.connection import connected, local_root
from steno_cli.destination import new_file, new_folder, print_result
from steno_cli.exits import Exit, WrongUsage
from steno_cli.export.kimi_folder import write_session
from steno_cli.export.pieces import Pieces
from steno_cli.records import report_damaged
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.session_files import size_of
from steno_present.wording import count
from steno_protocol import paths
from steno_protocol.replies import SessionStat
from steno_redact.redactor import Redactor

PROGRAMS: Final = ("claude-code", "codex", "kimi-code", "opencode", "pi", "qwen")
"""The formats of agents that go on with a session."""

_FORMATS: Final = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".jsonl": "jsonl",
}
"""The formats by the ends of file names."""

_CLOSED: Final = frozenset(_FORMATS.values())
"""The formats to which --close-calls adds results."""


@command(
    "export",
    "markdown: the conversation for people. html: the same as one file for the browser, with"
    " its images; needs the extra `stenod[view]`. Secrets in both are masked. json: all"
    " records, events, streams and the timeline with their cursors, exactly as stored."
    " jsonl: the records alone, one a line, as `steno append` takes them. kimi: a"
    " session folder in kimi-cli's format, exact but for the keys that steno adds, with past"
    " generations, streams, uploads, tasks and subagents. A daemon on another machine sends"
    " only the lines and the title. Symbolic links are skipped. claude-code, codex, kimi-code,"
    " opencode, pi, qwen: a session that this agent goes on with, under a new id. Existing"
    " files are never overwritten.",
    session_argument,
    argument(
        "--format", choices=("markdown", "html", "json", "jsonl", "kimi", *PROGRAMS),
        help="(default: that of the name of -o; markdown, or json with --json)",
    ),
    argument(
        "-o", "--output", metavar="PATH", type=path_text,
        help="the file or, for kimi and kimi-code, the folder to make (default, and -: stdout, but"
        " not for a folder)",
    ),
    flag(
        "--install",
        help="put the session where its agent looks for it, and print the command to type",
    ),
    argument(
        "--work-dir", metavar="DIR", type=path_text,
        help="the directory in which the agent goes on (default: the one of an imported session, if"
        " it exists here; else this one)",
    ),
    flag(
        "--close-calls",
        help="add a result to each call that has none, as `steno repair` does; not to kimi",
    ),
    one_of(
        flag("--redact", default=None, help="mask secrets in json and jsonl, too"),
        argument(
            "--no-redact", action="store_false", dest="redact",
            help="leave secrets in markdown and html as they are",
        ),
    ),
    example="steno export demo -o demo.md\nsteno export demo -o demo.html\n"
    "steno export demo --format kimi -o ~/copy\n"
    "steno export demo --format claude-code --install",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Write a session in the requested format."""
    if options.format is None:
        options.format = _format_of_name(options, output)
    if options.output == "-" and options.format != "kimi":
        options.output = None
    if options.format in PROGRAMS:
        # Imported here: no other format needs the writers, which close calls in any case.
        from steno_cli.export.for_agents import export_for_program  # noqa: PLC0415

        return export_for_program(options, output)
    _check_closing(options)
    if options.install or options.work_dir is not None:
        raise WrongUsage(
            "--install and --work-dir are for the formats of agents: name one with --format",
            session=options.session,
        )
    is_shown = options.format in {"markdown", "html"}
    if is_shown and output.as_json and options.output is None:
        raise WrongUsage(
            f"--json and --format {options.format} are two formats: give one, or name the file with"
            " -o",
            session=options.session,
        )
    if options.format == "kimi":
        if options.redact:
            raise WrongUsage(
                "--format kimi copies a session so that it can be restored, and masks nothing: use"
                " html, markdown or json for a file to send",
                session=options.session,
            )
        return _export_folder(options, output)
    is_masked = is_shown if options.redact is None else options.redact
    redactor = redactor_of(options, is_on=is_masked)
    return _export_text(options, output, redactor)


def _check_closing(options: Namespace) -> None:
    if options.close_calls and options.format not in _CLOSED:
        raise WrongUsage(
            f"--close-calls adds no results to --format {options.format}: export a fork, which"
            f" `steno fork {options.session} NEW --close-calls` makes",
            session=options.session,
        )


def _format_of_name(options: Namespace, output: Output) -> str:
    """The format that the name of the file asks for.

    Raises:
        WrongUsage: no format has such names.
    """
    suffix = Path(options.output or "").suffix.lower()
    if suffix in _FORMATS:
        return _FORMATS[suffix]
    if output.as_json:
        return "json"
    if suffix[1:].isalpha():
        known = ", ".join(_FORMATS)
        raise WrongUsage(
            f"no format has the file name {options.output}: end it with one of {known}, or give"
            " --format",
            session=options.session,
        )
    return "markdown"


def _export_text(options: Namespace, output: Output, redactor: Redactor) -> int:
    with connected(options, output=output) as client, Progress(output, "exporting") as progress:
        session = client.session(options.session)
        stat = session.stat()
        is_json = options.format in {"json", "jsonl"}
        progress.expect(_bytes_of(session, stat, client, has_all=options.format == "json"))
        pieces = Pieces(session, stat, progress, redactor, closes=options.close_calls)
        lines = pieces.lines(options.format)
        if options.output is None:
            for line in lines:
                progress.make_room()
                data = f"{line}\n".encode("utf-8", "backslashreplace")
                (output.json_line if is_json else output.raw)(data)
        else:
            _write_file(Path(options.output), lines)
    if options.output is not None:
        print_result(options, output, Path(options.output))
    report_damaged(output, pieces.damaged)
    say_open_calls(output, options.session, pieces.calls)
    if pieces.masked:
        shown = "secrets were" if options.redact else "--no-redact shows them: secrets were"
        output.say(
            f"{shown} masked in {count(pieces.masked, 'line')}; `steno redact {options.session}`"
            " shows where"
        )
    return Exit.DONE


def _bytes_of(
    session: BlockingSession, stat: SessionStat, client: BlockingClient, *, has_all: bool
) -> int:
    """The bytes that an export reads; for a daemon on another machine without its events."""
    if not has_all:
        return stat.bytes
    streams = sum(info.bytes for info in session.streams())
    wire = Path(stat.folder, paths.WIRE)
    is_here = local_root(client) is not None
    return stat.bytes + streams + (size_of(wire) if is_here else 0)


def _write_file(path: Path, lines: Iterable[str]) -> None:
    with new_file(path) as file:
        for line in lines:
            file.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _export_folder(options: Namespace, output: Output) -> int:
    if options.output in {None, "-"}:
        raise WrongUsage("--format kimi makes a folder: name it with -o", session=options.session)
    path = Path(options.output)
    with (
        connected(options, output=output) as client,
        Progress(output, "exporting") as progress,
        new_folder(path) as folder,
    ):
        written = write_session(client, options.session, folder, progress)
    print_result(options, output, path)
    report_damaged(output, written.damaged)
    if not written.has_files:
        output.say(
            f"the files of {options.session} are on the daemon's machine: only its lines and its"
            " title are written; run the export there for uploads, subagents and tasks"
        )
    return Exit.DONE

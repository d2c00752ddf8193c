"""`steno sessions`: the list of the sessions."""

from argparse import Namespace

from steno._sync.client import BlockingClient
from steno.cli.arguments import Subcommands, command, optional_argument
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.tables import shortened, table
from steno.cli.render.wording import moment, number, size
from steno_protocol.commands import List
from steno_protocol.replies import SessionEntry, Sessions

_HEADER = ("SESSION", "SIZE", "GENERATION", "CHANGED", "TITLE AND LABELS")


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "sessions", run,
        "Columns: id, size, generations, last change, title, labels. Archived sessions are hidden."
        " A file <uuid>.jsonl of kimi-cli is marked (old format); import it with `steno import`.",
        example="steno sessions kimi: --label review",
    )  # fmt: skip
    optional_argument(parser, "prefix", str, "only sessions whose id starts with PREFIX")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--archived",
        action="store_const",
        const="only",
        default="no",
        help="list archived sessions only",
    )
    which.add_argument(
        "--all",
        dest="archived",
        action="store_const",
        const="all",
        help="list archived sessions too",
    )
    parser.add_argument(
        "--label", dest="labels", metavar="LABEL", action="append", default=[],
        help="only sessions with this label; repeat it to require several labels",
    )  # fmt: skip
    parser.add_argument(
        "--title", metavar="TEXT", default="",
        help="only sessions whose title contains TEXT, ignoring case",
    )  # fmt: skip


def run(options: Namespace, output: Output) -> int:
    """List the sessions; archived ones only on request."""
    with connected(options) as client:
        entries, lost, flat = _listed(client, options)
        root = client.welcome.root
    if output.as_json:
        output.document(contract.sessions(entries, flat))
        return Exit.DONE
    for line in _lines(output, entries, flat):
        output.write(line)
    if flat:
        what = "session is" if len(flat) == 1 else "sessions are"
        output.say(
            f"{number(len(flat))} {what} one file each, in kimi-cli's old format: `steno import"
            " FILE ID` imports one, and kimi-cli moves it into a folder when it next lists it"
        )
    for session in lost:
        output.say(
            f"{printable(session)} has older generations and no context.jsonl: `steno doctor` shows"
            " how to restore it"
        )
    if not entries and not lost and not flat:
        output.say(f"{_nothing(options)} in {root}: `steno append SESSION TEXT` creates one")
    return Exit.DONE


def _listed(
    client: BlockingClient, options: Namespace
) -> tuple[list[SessionEntry], list[str], list[SessionEntry]]:
    """The requested sessions, ids without a present generation, and sessions in the old format."""
    found: list[SessionEntry] = []
    flat: list[SessionEntry] = []
    lost: list[str] = []
    more = True
    while more:
        request = List(
            prefix=options.prefix or "",
            after=found[-1].session if found else "",
            archived=options.archived,
            labels=tuple(options.labels),
            title=options.title,
        )
        page = client.request(request, Sessions)[0]
        found += page.sessions
        lost += page.without_context
        flat += page.flat
        more = page.more
    return found, lost, flat


def _lines(output: Output, entries: list[SessionEntry], flat: list[SessionEntry]) -> list[str]:
    shown = [(entry.session, _row(entry)) for entry in entries]
    shown += [
        (entry.session, (*_row(entry)[:-1], f"(old format) {_work_dir(entry)}".rstrip()))
        for entry in flat
    ]
    rows = [row for _, row in sorted(shown)]
    if rows and output.is_terminal:
        rows.insert(0, _HEADER)
    return [shortened(line, output.width) for line in table(rows, right=frozenset({1, 2}))]


def _row(entry: SessionEntry) -> tuple[str, ...]:
    labels = [f"#{label}" for label in entry.labels]
    shown = [entry.title, *labels, *(["(archived)"] if entry.archived else []), _work_dir(entry)]
    return (
        printable(entry.session),
        size(entry.bytes),
        number(entry.generations),
        moment(entry.modified_at),
        printable(" ".join(each for each in shown if each), one_line=True),
    )


def _work_dir(entry: SessionEntry) -> str:
    last = ", the last one there" if entry.last_in_work_dir else ""
    return f"in {printable(entry.work_dir, one_line=True)}{last}" if entry.work_dir else ""


def _nothing(options: Namespace) -> str:
    begins = f" that begins with {options.prefix!r}" if options.prefix else ""
    chosen = options.labels or options.title or options.archived == "only"
    return f"no session{begins}{' of that kind' if chosen else ''}"

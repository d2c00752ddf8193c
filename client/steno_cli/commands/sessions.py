"""`steno sessions`: the list of the sessions, and of those in the trash."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from steno import BlockingClient
from steno_cli.arguments import argument, command, flag, number_from, one_of, prefix_argument
from steno_cli.connection import connected, pages
from steno_cli.exits import Exit, WrongUsage
from steno_cli.origins import Programs, program_option
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.render.tables import Column, table, terminal_table
from steno_cli.session_ids import is_shortened, short_ids
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import age, moment, number, size
from steno_protocol import limits
from steno_protocol.commands import List
from steno_protocol.replies import SessionEntry, TrashEntry

_WIDE_COLUMNS: Final = 100
"""A terminal of this width also has room for the number of generations."""

_COLUMNS: Final = (
    Column("", ("green",)),
    Column("SESSION", ("cyan",)),
    Column("SIZE", is_right=True),
    Column("RECORDS", is_right=True),
    Column("GENERATIONS", is_right=True),
    Column("CHANGED", ("dim",), is_right=True),
    Column("TITLE AND LABELS"),
)

_TRASH_COLUMNS: Final = (
    Column("SESSION", ("cyan",)),
    Column("SIZE", is_right=True),
    Column("DELETED", ("dim",), is_right=True),
    Column("GC REMOVES IT", ("yellow",)),
    Column("TITLE"),
)

_SORTS: Final[Mapping[str, Callable[[SessionEntry], Any]]] = {
    "changed": lambda entry: (-entry.modified_at, entry.session),
    "id": lambda entry: entry.session,
    "size": lambda entry: (-entry.bytes, entry.session),
    "records": lambda entry: (-(entry.records or 0), entry.session),
    "generations": lambda entry: (-entry.generations, entry.session),
    "title": lambda entry: (not entry.title, entry.title.casefold(), entry.session),
}
"""The order of the list for each key of --sort."""


@command(
    "sessions",
    "The sessions that changed last come first. Columns on a terminal: a dot if a client"
    " follows or changes the session now, the id (generated ones as the shortest unique prefix,"
    " which every command takes), size, records, last change, title, labels. Columns elsewhere:"
    " full id, size, generations, last change, title, labels. Archived sessions are hidden. A"
    " file <uuid>.jsonl of kimi-cli is marked (old format); import it with `steno import`.",
    prefix_argument(),
    one_of(
        argument(
            "--archived", action="store_const", const="only", default="no",
            help="list archived sessions only",
        ),
        argument(
            "--all", dest="archived", action="store_const", const="all",
            help="list archived sessions too",
        ),
        flag("--trash", help="list the deleted sessions, the latest deletion first"),
    ),
    argument(
        "--label", dest="labels", metavar="LABEL", action="append", default=[],
        help="only sessions with this label; repeat it to require several labels",
    ),
    argument(
        "--title", metavar="TEXT", default="",
        help="only sessions whose title contains TEXT, ignoring case",
    ),
    program_option,
    argument(
        "--sort", choices=tuple(_SORTS), default=None,
        help="the order: changed (default), size, records and generations from the largest down; id"
        " and title from A to Z",
    ),
    argument(
        "-n", dest="count", metavar="N", type=number_from(1),
        help="only the first N sessions",
    ),
    example="steno sessions kimi: --label review",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """List the sessions; archived and deleted ones only on request."""
    return _list_trash(options, output) if options.trash else _list_sessions(options, output)


def _list_sessions(options: Namespace, output: Output) -> int:
    with connected(options, output=output) as client, Progress(output, "listing sessions"):
        entries, lost, flat = _listed(client, options)
        shorts = _shorts(client, entries) if output.is_terminal and not output.as_json else {}
        root = client.welcome.root
    if output.as_json:
        output.document(contract.sessions(entries, flat))
        return Exit.DONE
    output.lines(_lines(output, options, entries, flat, shorts))
    if flat:
        what = "session is" if len(flat) == 1 else "sessions are"
        output.say(
            f"{number(len(flat))} {what} one file <uuid>.jsonl each, in kimi-cli's old format:"
            " `steno import FILE ID` imports one, and kimi-cli moves it into a folder when it next"
            " lists it"
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
    """The requested sessions, ids without a present generation, and sessions in the old format.

    All of them are in the requested order.
    """
    found: list[SessionEntry] = []
    flat: list[SessionEntry] = []
    lost: list[str] = []
    wanted = List(
        prefix=options.prefix or "",
        archived=options.archived,
        labels=tuple(options.labels),
        title=options.title,
        records=True,
        # Each request walks through all folders.
        limit=limits.LIST_SESSIONS_MAX,
    )
    for page in pages(client, wanted):
        found += page.sessions
        lost += page.without_context
        flat += page.flat
    if options.programs:
        # Neither of the others comes from a program that writes transcripts.
        found, lost, flat = [*Programs(client, options.programs).chosen(found)], [], []
    return _sorted(found, options)[: options.count], lost, _sorted(flat, options)[: options.count]


def _sorted(entries: Sequence[SessionEntry], options: Namespace) -> list[SessionEntry]:
    return sorted(entries, key=_SORTS[options.sort or "changed"])


def _shorts(client: BlockingClient, entries: Sequence[SessionEntry]) -> dict[str, str]:
    """The short ids of some sessions, unique among all sessions; none if all ids are whole."""
    if not any(is_shortened(entry.session) for entry in entries):
        return {}
    everything = pages(client, List(limit=limits.LIST_SESSIONS_MAX))
    return short_ids(
        session
        for page in everything
        for session in (*(each.session for each in page.sessions), *page.without_context)
    )


def _lines(
    output: Output,
    options: Namespace,
    entries: Sequence[SessionEntry],
    flat: Sequence[SessionEntry],
    shorts: Mapping[str, str],
) -> Iterator[str]:
    """The lines of the list; sessions in the old format stand among the others."""
    old = {entry.session for entry in flat}
    shown = _sorted([*entries, *flat], options)[: options.count]
    if not shown:
        return
    texts = [_about(entry, is_old=entry.session in old) for entry in shown]
    if not output.is_terminal:
        rows = [(*_row(entry), text) for entry, text in zip(shown, texts, strict=True)]
        yield from table(rows, right=frozenset({1, 2}))
        return
    now = time.time()
    cells = [
        (
            "●" if entry.live else "",
            printable(shorts.get(entry.session, entry.session)),
            size(entry.bytes),
            "-" if entry.records is None else number(entry.records),
            number(entry.generations),
            age(entry.modified_at, now),
            text,
        )
        for entry, text in zip(shown, texts, strict=True)
    ]
    is_wide = output.width is None or output.width >= _WIDE_COLUMNS
    chosen = [at for at, column in enumerate(_COLUMNS) if is_wide or column.title != "GENERATIONS"]
    columns = [_COLUMNS[at] for at in chosen]
    yield from terminal_table(output, columns, [[row[at] for at in chosen] for row in cells])


def _row(entry: SessionEntry) -> tuple[str, ...]:
    """The cells of a session for other programs, without the last one."""
    return (
        printable(entry.session),
        size(entry.bytes),
        number(entry.generations),
        moment(entry.modified_at),
    )


def _about(entry: SessionEntry, *, is_old: bool) -> str:
    """Title, labels and work directory of a session."""
    labels = [f"#{label}" for label in entry.labels]
    marks = ["(archived)"] if entry.archived else []
    parts = [entry.title, *labels, *marks, _work_dir(entry)]
    if is_old:
        parts = ["(old format)", _work_dir(entry)]
    return printable(" ".join(each for each in parts if each), one_line=True)


def _work_dir(entry: SessionEntry) -> str:
    last = ", the last one there" if entry.last_in_work_dir else ""
    return f"in {printable(entry.work_dir, one_line=True)}{last}" if entry.work_dir else ""


def _nothing(options: Namespace) -> str:
    begins = f" that begins with {options.prefix!r}" if options.prefix else ""
    chosen = options.labels or options.title or options.programs or options.archived == "only"
    return f"no session{begins}{' of that kind' if chosen else ''}"


# --- the trash -----------------------------------------------------------------------------------


def _list_trash(options: Namespace, output: Output) -> int:
    if options.labels or options.title or options.sort or options.programs:
        raise WrongUsage(
            "--trash takes no --label, --title, --program or --sort: give a PREFIX or -n"
        )
    with connected(options) as client:
        # An id is short among all deleted ones, since `undelete` looks among those.
        everything = client.trash()
        root = client.welcome.root
    entries = [each for each in everything if each.session.startswith(options.prefix or "")]
    entries = entries[: options.count]
    message = "`steno undelete SESSION` restores the latest deletion of a session"
    return output.answer(
        contract.trash(entries),
        *_trash_lines(output, entries, everything),
        message=message if entries else f"the trash has {_nothing(options)} in {root}",
    )


def _trash_lines(
    output: Output, entries: Sequence[TrashEntry], everything: Sequence[TrashEntry]
) -> Iterator[str]:
    """The lines of deleted sessions; on a terminal with ids that are short among all of them."""
    if not output.is_terminal:
        yield from table([_trash_row(entry) for entry in entries], right=frozenset({1}))
        return
    if not entries:
        return
    shorts, now = short_ids(entry.session for entry in everything), time.time()
    rows = [
        (
            printable(shorts[entry.session]),
            size(entry.bytes),
            age(entry.deleted_at, now),
            moment(entry.expires_at)[:10],
            printable(entry.title, one_line=True),
        )
        for entry in entries
    ]
    yield from terminal_table(output, _TRASH_COLUMNS, rows)


def _trash_row(entry: TrashEntry) -> tuple[str, ...]:
    """The cells of a deleted session for other programs."""
    return (
        printable(entry.session),
        size(entry.bytes),
        moment(entry.deleted_at),
        moment(entry.expires_at),
        printable(entry.title, one_line=True),
    )

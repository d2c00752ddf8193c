"""The subcommand `sessions`: which there are, and what people know them by."""

from argparse import Namespace

from steno._sync.client import BlockingClient
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output, printable, shortened, table
from steno.cli.render.wording import moment, number, size
from steno_protocol.commands import List
from steno_protocol.replies import SessionEntry, Sessions

_HEADER = ("SESSION", "SIZE", "GENERATION", "CHANGED", "TITLE AND LABELS")


def sessions(options: Namespace, output: Output) -> int:
    """List the sessions; archived ones only when they are asked for."""
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
            " FILE ID` takes one in, and kimi-cli moves it into a folder when it next lists it"
        )
    for session in lost:
        output.say(
            f"{printable(session)} has older generations and no context.jsonl: `steno doctor` says"
            " what brings it back"
        )
    if not entries and not lost and not flat:
        output.say(f"{_nothing(options)} in {root}: `steno append SESSION TEXT` makes one")
    return Exit.DONE


def _listed(
    client: BlockingClient, options: Namespace
) -> tuple[list[SessionEntry], list[str], list[SessionEntry]]:
    """The sessions that are asked for, what lost its present generation, and flat ones."""
    found: list[SessionEntry] = []
    flat: list[SessionEntry] = []
    lost: list[str] = []
    more = True
    while more:
        asked = List(
            prefix=options.prefix or "",
            after=found[-1].session if found else "",
            archived=options.archived,
            labels=tuple(options.labels),
            title=options.title,
        )
        page = client.request(asked, Sessions)[0]
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
    lines = table(rows, right=frozenset({1, 2}))
    return lines if output.width is None else [shortened(line, output.width) for line in lines]


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

"""`steno usage`: the token counts of a session, and tokens and cost of all sessions."""

import argparse
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from steno import BlockingClient
from steno_cli.arguments import (
    argument,
    change_options,
    command,
    default,
    flag,
    optional_argument,
    path_text,
    whole_number,
)
from steno_cli.changes import change
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.origins import Programs, program_option
from steno_cli.records import since
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.render.tables import Column, lines_of
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import compact, count, number
from steno_protocol.replies import SessionEntry

if TYPE_CHECKING:
    from steno_agents.usage_table import By, UsageRow, UsageTable

_DAY_S: Final = 86_400

_SUMS: Final = ("session", "program", "model", "day")

_NUMBERS: Final = (
    "requests", "input", "cache_read", "cache_write", "output", "unsplit", "tokens", "cost",
    "unpriced",
)  # fmt: skip
"""The columns of --csv behind those of --by."""

_COLUMNS: Final = (
    Column("REQUESTS", is_right=True),
    Column("INPUT", is_right=True),
    Column("CACHED", is_right=True),
    Column("OUTPUT", is_right=True),
    Column("TOKENS", is_right=True),
    Column("COST", ("green",), is_right=True),
    Column("OF", ("cyan",)),
)

_OBEYED: Final = ("=", "+", "-", "@", "\t", "\r")
"""The beginnings of a cell that a spreadsheet takes for a formula."""


def _sums(text: str) -> tuple[str, ...]:
    """The type of --by."""
    found = tuple(each.strip() for each in text.split(","))
    odd = next((each for each in found if each not in _SUMS), None)
    if odd is not None:
        raise argparse.ArgumentTypeError(f"there is no sum by {odd!r}: use {', '.join(_SUMS)}")
    return found


@command(
    "usage",
    "Without SESSION, adds up the tokens of all sessions as their programs counted them, and"
    " what they cost by prices.toml in the root. That has a table for each model, or with a"
    " star for all whose names begin so, with prices of a million tokens: [models.\"gpt-5*\"],"
    " below it input = 1.25, cache_read, cache_write and output; currency = \"USD\" is above."
    " With SESSION, prints its current counts, and with TOKENS appends one.",
    argument(
        "session", metavar="SESSION", nargs="?",
        help="a session id or a unique prefix (default: all sessions)",
    ),
    default(by_prefix=True),
    optional_argument("tokens", whole_number, "tokens in the context"),
    argument(
        "--by", metavar="NAMES", type=_sums,
        help="make a sum for each of these, separated by commas: session, program, model, day"
        " (default: program,model)",
    ),
    argument(
        "--since", metavar="TIME", type=since,
        help="only days from that of TIME on: an age (7d, 4w) or a day (2026-11-21)",
    ),
    program_option,
    flag("--csv", help="print comma-separated values"),
    argument(
        "--prices", metavar="FILE", type=path_text,
        help="take the prices from FILE (default: prices.toml in the root)",
    ),
    change_options(given="tokens"),
    example="steno usage --by day --since 7d\nsteno usage demo 1472",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Append a token count, print the recorded ones, or add up the tokens of many sessions."""
    sums = (options.by, options.since, options.programs, options.csv, options.prices)
    if options.tokens is not None:
        if any(sums):
            raise WrongUsage("TOKENS appends a count: leave the options of sums out")
        return _append(options, output)
    if options.session is None or any(sums):
        return _add_up(options, output)
    return _print_counts(options, output)


def _append(options: Namespace, output: Output) -> int:
    tokens = options.tokens
    return change(options, output, lambda session, how: session.update_token_count(tokens, **how))


def _print_counts(options: Namespace, output: Output) -> int:
    with connected(options, output=output) as client:
        state = client.session(options.session).history_at()
    pending = state.token_count_with_pending - state.token_count
    counted = count(state.token_count, "token")
    return output.answer(
        contract.usage(options.session, state),
        *(f"{entry.cursor}  {entry.token_count}" for entry in state.usage_history),
        message=f"{counted}, and about {number(pending)} not yet counted",
    )


# --- many sessions --------------------------------------------------------------------------------


def _add_up(options: Namespace, output: Output) -> int:
    """Print the sums of the chosen sessions."""
    # Imported here: the counts of one session need no reader of other programs.
    from steno_agents.spending import day_of  # noqa: PLC0415
    from steno_agents.usage_table import usage_table  # noqa: PLC0415
    from steno_cli.spending import ledger_for, place_of_prices, prices_at  # noqa: PLC0415

    if options.csv and output.as_json:
        raise WrongUsage("--csv and --json are two formats: leave one of them out")
    place = place_of_prices(options, options.prices)
    prices = prices_at(place, is_given=options.prices is not None)
    by: Sequence[By] = options.by or ("program", "model")
    with connected(options, output=output) as client, Progress(output, "adding up") as progress:
        entries = _chosen(client, options)
        ledger = ledger_for(client)
        # The session that was changed first is the one that others were copied from.
        entries.sort(key=lambda each: each.modified_at)
        ledger.update(progress.over(entries))
    table = usage_table(ledger.accounts, by, prices, day_of(options.since))
    if output.as_json:
        where = None if place is None else str(place)
        output.document(contract.usages(table, len(entries), where))
    elif options.csv:
        output.raw(_csv(table).encode("utf-8", "backslashreplace"))
    else:
        _print_table(table, output)
        if table.total.unpriced:
            unpriced = count(table.total.unpriced, "token")
            output.say(
                f"{unpriced} without a price: {place or 'a file for --prices'} has the prices of"
                " models (`steno help usage`)"
            )
    for session, why in ledger.unread.items():
        output.say(f"{session} is not counted: {why}")
    if not table.rows:
        output.say("no request is recorded there")
    return Exit.FAILED if ledger.unread else Exit.DONE


def _chosen(client: BlockingClient, options: Namespace) -> list[SessionEntry]:
    entries = client.sessions(options.session or "")
    if options.session is not None:
        # Also for a prefix: the session has to be there.
        client.stat(options.session)
        entries = [each for each in entries if each.session == options.session]
    if options.since is not None:
        # Nothing in it is of a later day than its last change, in whatever zone.
        entries = [each for each in entries if each.modified_at > options.since - _DAY_S]
    return [*Programs(client, options.programs).chosen(entries)]


def _print_table(table: "UsageTable", output: Output) -> None:
    """Print the sums, and their total if there are several."""
    rows = [_cells(row, table, output) for row in table.rows]
    if len(rows) > 1:
        rows.append(_cells(table.total, table, output, name="all"))
    output.lines(lines_of(output, _COLUMNS, rows))


def _cells(
    row: "UsageRow", table: "UsageTable", output: Output, name: str | None = None
) -> tuple[str, ...]:
    shown = compact if output.is_terminal else str
    of = name or "  ".join(_names(row, table))
    cost = "-" if row.cost is None else f"{_money(row.cost)} {table.currency}".strip()
    return (
        shown(row.requests),
        shown(row.input),
        shown(row.cache_read + row.cache_write),
        shown(row.output),
        shown(row.tokens),
        printable(cost, one_line=True),
        printable(of, one_line=True),
    )


def _money(amount: float) -> str:
    """An amount with cents, and with parts of one if it is small."""
    return f"{amount:.2f}" if amount >= 0.1 or not amount else f"{amount:.4f}"


def _names(row: "UsageRow", table: "UsageTable") -> Iterator[str]:
    for name in ("day", "program", "model", "session"):
        if name in table.by:
            yield getattr(row, name) or f"(no {name})"


def _csv(table: "UsageTable") -> str:
    """The sums as comma-separated values with a line of names."""
    import csv  # noqa: PLC0415  # only with --csv
    from io import StringIO  # noqa: PLC0415

    names = [each for each in _SUMS if each in table.by]
    text = StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write([*names, *_NUMBERS, "currency"])
    for row in table.rows:
        write(
            [
                *(_cell(getattr(row, each)) for each in names),
                *(getattr(row, each) for each in _NUMBERS),
                _cell(table.currency),
            ]
        )
    return text.getvalue()


def _cell(text: str | None) -> str:
    """A text that no spreadsheet takes for a formula: records of other programs name models."""
    return f"'{text}" if text is not None and text.startswith(_OBEYED) else text or ""

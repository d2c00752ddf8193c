"""`steno read`: records exactly as stored."""

from argparse import Namespace

from steno_cli.arguments import (
    after_option,
    argument,
    command,
    flag,
    one_of,
    session_argument,
    until_option,
    whole_number,
)
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.records import Since, check_span, print_record, report_damaged, since_option
from steno_cli.render.output import Output
from steno_protocol.positions import Position


@command(
    "read",
    "Lines that are not records are skipped; their number is printed on stderr.",
    session_argument,
    one_of(
        after_option,
        argument("--generation", metavar="N", type=whole_number, help="read one past generation"),
    ),
    until_option,
    since_option,
    flag("--strict", help="fail at the first line that is not a record"),
    example="steno read demo --after 0:12 --json",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Print the records between two positions of one generation."""
    after = _start(options)
    with connected(options, output=output) as client:
        check_span(client, options.session, after, options.until)
        records = client.session(options.session).records(
            after, options.until, strict=options.strict
        )
        for record in Since(options.since).records(records):
            print_record(output, record)
        report_damaged(output, records.damaged, hint="; --strict stops at the first")
    return Exit.DONE


def _start(options: Namespace) -> Position | None:
    """The position to start after; --until also selects a generation."""
    after: Position | None = options.after
    until: Position | None = options.until
    if options.generation is not None:
        after = Position(options.generation, 0)
    if after is None and until is not None:
        after = Position(until.generation, 0)
    if after is not None and until is not None and after.generation != until.generation:
        raise WrongUsage(
            f"{after} and {until} are in different generations, which are different files:"
            " read one generation at a time",
            session=options.session,
        )
    return after

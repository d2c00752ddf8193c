"""The subcommand `gc`: gives up what was asked for, or says what that would be."""

from argparse import Namespace

from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.output import Output, printable, table
from steno.cli.render.wording import count, size
from steno_protocol import limits
from steno_protocol.commands import Gc
from steno_protocol.replies import GcReport


def gc(options: Namespace, output: Output) -> int:
    """Collect garbage; the daemon is started if there is none, since it owns the files.

    Raises:
        WrongUsage: nothing was asked for.
    """
    older, keep = options.generations_older, options.keep_generations
    if older is None and keep is None and not options.trash:
        raise WrongUsage(
            "nothing is given up that is not asked for: say --generations-older DAYS,"
            " --keep-generations N or --trash, and --dry-run to look first"
        )
    command = Gc(
        prefix=options.prefix or "",
        dry_run=options.dry_run,
        generations_older_s=None if older is None else int(older * limits.DAY_S),
        keep_generations=keep,
        with_lineage=options.with_lineage,
        trash=options.trash,
    )
    with connected(options) as client:
        report, _ = client.request(command, GcReport)
    _print_result(report, output)
    return Exit.FAILED if report.failed else Exit.DONE


def _print_result(report: GcReport, output: Output) -> None:
    if output.as_json:
        output.document(contract.garbage(report))
        return
    rows = [(size(each.bytes), each.session or "trash", each.file) for each in report.entries]
    for line in table(rows, right=frozenset({0})):
        output.write(printable(line))
    for line in report.failed:
        output.say(f"left as it is: {line}")
    did = "would free" if report.dry_run else "freed"
    output.say(f"{count(report.files, 'file')}, {did} {size(report.bytes)}")

"""`steno gc`: old generations, expired trash and cold sessions removed."""

import re
import shlex
from argparse import Namespace
from typing import Final

from steno_cli.arguments import argument, command, days, flag, number_from, prefix_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.printed_commands import destination
from steno_cli.render.progress import Progress
from steno_cli.render.tables import table
from steno_cli.repair.checking import patient
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, size
from steno_protocol import limits
from steno_protocol.commands import Gc
from steno_protocol.replies import GarbageEntry, GcReport

_OPTIONS: Final = {
    "generations_older_s": "--generations-older",
    "keep_generations": "--keep-generations",
}
"""The options by the fields of the command."""

_OLDER: Final = re.compile(r"(--generations-older )([0-9]+)")


@command(
    "gc",
    "Removes only what the options name; --dry-run alone shows everything that can be removed."
    " The newest past generation always stays, and so does every generation that holds a"
    " checkpoint or a D-Mail in use.",
    prefix_argument(),
    flag("--dry-run", help="print what would be removed and the space it frees; remove nothing"),
    argument(
        "--generations-older", metavar="DAYS", type=days,
        help="generations replaced by a rewrite more than DAYS days ago",
    ),
    argument(
        "--keep-generations", metavar="N", type=number_from(1),
        help="all but the newest N; with --generations-older, only generations that match both",
    ),
    flag(
        "--with-lineage",
        help="also generations with checkpoints from before a compaction; reverts to them fail"
        " then",
    ),
    flag("--trash", help="deleted sessions that have expired (disk.trash_days)"),
    flag(
        "--retention",
        help="what the rules of [retention] in config.toml name; the daemon follows them once a"
        " day, too",
    ),
    example="steno gc --dry-run\nsteno gc --generations-older 90 --keep-generations 5 --trash"
    "\nsteno gc --retention --dry-run",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Remove the files that the options name; starts the daemon, which owns the files.

    Raises:
        WrongUsage: no option names anything, and it is no dry run.
    """
    older, keep = options.generations_older, options.keep_generations
    is_overview = older is None and keep is None and not options.trash and not options.retention
    if is_overview and not options.dry_run:
        raise WrongUsage(
            "only what the options name is removed: give --generations-older DAYS,"
            " --keep-generations N, --trash or --retention; `steno gc --dry-run` shows what can be"
            " removed"
        )
    if is_overview:
        # Nothing is removed, so the widest choice shows most.
        keep, options.trash, options.retention = 1, True, True
    command = Gc(
        prefix=options.prefix or "",
        dry_run=options.dry_run,
        generations_older_s=None if older is None else int(older * limits.DAY_S),
        keep_generations=keep,
        with_lineage=options.with_lineage,
        trash=options.trash,
        retention=options.retention,
    )
    # A rule may compress gigabytes.
    with connected(patient(options)) as client, Progress(output, "looking for files to remove"):
        report, _ = client.request(command, GcReport)
    _print_result(report, output)
    if is_overview and (report.files or report.sessions or report.compressed):
        output.say(f"to remove them: {_removal(options)}")
    return Exit.FAILED if report.failed else Exit.DONE


def _removal(options: Namespace) -> str:
    """The command that removes everything that a dry run without other options shows."""
    prefix = [options.prefix] if options.prefix else []
    chosen = ["--keep-generations", "1", "--trash", "--retention"]
    return shlex.join(["steno", "gc", *prefix, *destination(options), *chosen])


def _print_result(report: GcReport, output: Output) -> None:
    if output.as_json:
        output.document(contract.document(report))
        return
    rows = [
        (size(each.bytes), each.session or "trash", each.file, _reason(each))
        for each in report.entries
    ]
    for line in table(rows, right=frozenset({0})):
        output.write(printable(line))
    for line in report.failed:
        output.say(f"not removed: {line}")
    did = "would free" if report.dry_run else "freed"
    output.say(f"{count(report.files, 'file')}, {did} {size(report.bytes)}")
    if report.compressed:
        are = "would be" if report.dry_run else "is" if report.compressed == 1 else "are"
        output.say(f"{count(report.compressed, 'file')} {are} compressed")
    if report.sessions:
        go = "would go" if report.dry_run else "went"
        output.say(f"{count(report.sessions, 'session')} {go} to the trash (steno undelete)")


def _reason(entry: GarbageEntry) -> str:
    """The rule that names a file, with the options of the command as they are typed."""
    rule = entry.rule
    for name, option in _OPTIONS.items():
        rule = rule.replace(f"{name} = ", f"{option} ")
    days = _OLDER.sub(lambda found: f"{found[1]}{int(found[2]) / limits.DAY_S:g}", rule)
    what = "to the trash: " if entry.trashed else "compressed: " if entry.compressed else ""
    return f"{what}{days}"

"""`steno backup`: a consistent copy of a running root."""

import time
from argparse import Namespace
from pathlib import Path

from steno import BlockingClient
from steno_backup.limits import FOLLOW_S_MIN
from steno_backup.mirror import Mirror, Report, opened_mirror
from steno_backup.snapshot import State
from steno_cli.arguments import argument, command, number_from, path_text
from steno_cli.connection import connected, root_in_use
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, size
from steno_protocol.errors import StenoError
from steno_protocol.positions import Position


@command(
    "backup",
    "Nobody is stopped. A second run into the same folder reads only what grew. The copy is a"
    " root: `steno verify --all` with --root checks it, and copying it to the place of the"
    " root brings it back. Sessions that are gone from the root stay in the trash of the copy"
    " for 30 days. Mounted folders are not copied.",
    argument(
        "folder", metavar="FOLDER", type=path_text,
        help="the folder of the copy, made if missing",
    ),
    argument(
        "--follow", metavar="SECONDS", type=number_from(int(FOLLOW_S_MIN)),
        help="go on, and copy what changed every SECONDS",
    ),
    example="steno backup /mnt/disk/copy\nsteno backup /mnt/disk/copy --follow=60",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Copy the root once, or until the command is interrupted."""
    root = root_in_use(options)
    with (
        connected(options) as client,
        opened_mirror(
            root, Path(options.folder), lambda session: _state(client, session)
        ) as mirror,
    ):
        if options.follow is None:
            return _round(mirror, output)
        while True:
            try:
                _round(mirror, output)
            except StenoError as error:
                # The daemon may be restarting: the next round asks again.
                output.error(error)
            output.flush()
            time.sleep(options.follow)


def _state(client: BlockingClient, session: str) -> State:
    found = client.session(session).stat()
    return State(Position.parse(found.head).generation, found.bytes, found.incarnation)


def _round(mirror: Mirror, output: Output) -> int:
    report = mirror.update()
    _print(report, output)
    return Exit.FAILED if report.problems else Exit.DONE


def _print(report: Report, output: Output) -> None:
    if output.as_json:
        output.document(contract.document(report))
        return
    for problem in report.problems:
        output.say(f"left at its older state: {printable(problem, one_line=True)}")
    for session in report.to_trash:
        output.say(f"{session} is gone from the root: the copy keeps it in its trash")
    output.say(
        f"{count(report.sessions, 'session')}, {report.copied} of them changed,"
        f" copied {size(report.bytes)}"
    )

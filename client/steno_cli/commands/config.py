"""`steno config`: the options in force and their sources."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from steno_cli.arguments import command, flag
from steno_cli.configuration import read_file, remedy_for_unread, shown_value, unread_options
from steno_cli.connection import connected, endpoint_of, root_of
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.render.tables import table
from steno_present.safe_text import printable
from steno_protocol import paths
from steno_protocol.commands import Configuration
from steno_protocol.errors import Unreachable
from steno_protocol.replies import ConfigurationReport, OptionEntry
from steno_protocol.settings import OPTIONS, Settings, example


@command(
    "config",
    "Asks the running daemon, or reads config.toml and the environment if none runs.",
    flag("--example", help="print a config.toml with every option"),
    example="steno config\nsteno config --example > ~/.local/state/steno/config.toml",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Print the options in force, or with --example a file that has all of them."""
    if options.example:
        if output.as_json:
            output.document({"example": example()})
        else:
            output.raw(example().encode())
        return Exit.DONE
    root, entries, pid = _in_force(options)
    rows = [_root_entry(options, root), *entries]
    if output.as_json:
        shown = [msgspec.structs.asdict(row) for row in rows]
        output.document({"file": str(root / paths.CONFIG), "pid": pid, "options": shown})
        return Exit.DONE
    lines = table([(row.name, shown_value(row.value), row.source) for row in rows])
    output.lines(map(printable, lines))
    if pid is not None and not paths.is_remote(endpoint_of(options) or ""):
        remedy = remedy_for_unread(root, pid, "`steno restart`")
        for line in unread_options(entries, read_file(root, {})):
            output.say(f"{line}: {remedy}")
    return Exit.DONE


def _in_force(options: Namespace) -> tuple[Path, list[OptionEntry], int | None]:
    """The root, the options and the pid of the running daemon, else those of one started now.

    Raises:
        Unreachable: no daemon answers at the given address.
        BadRequest: the configuration of the root is not valid.
    """
    is_address = endpoint_of(options) is not None
    # Errors in the file are reported although a daemon runs with an older version of it.
    found = None if is_address else read_file(root_of(options), dict(os.environ))
    try:
        with connected(options, spawn=False) as client:
            report, _ = client.request(Configuration(), ConfigurationReport)
            return Path(client.welcome.root), report.options, client.welcome.pid
    except Unreachable:
        if found is None:
            raise
        return root_of(options), _entries_of(found), None


def _entries_of(found: Settings) -> list[OptionEntry]:
    values: dict[str, Any] = {option.name: found.shown(option.name) for option in OPTIONS}
    values |= {f"mounts.{name}": folder for name, folder in found.mounts.items()}
    return [
        OptionEntry(name=name, value=value, source=found.source(name))
        for name, value in values.items()
    ]


def _root_entry(options: Namespace, root: Path) -> OptionEntry:
    source = "default"
    if options.root is not None:
        source = "option --root"
    elif options.endpoint is not None:
        source = "option --endpoint"
    elif options.socket is not None:
        source = "option --socket"
    elif endpoint_of(options) is not None:
        source = "environment STENO_ENDPOINT"
    elif os.environ.get("STENO_HOME"):
        source = "environment STENO_HOME"
    elif os.environ.get("XDG_STATE_HOME"):
        source = "environment XDG_STATE_HOME"
    return OptionEntry(name="root", value=str(root), source=source, live=False)

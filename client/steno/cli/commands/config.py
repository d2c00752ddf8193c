"""The subcommand `config`: which options are in force, and where each value came from."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from steno.cli.configuration import read_file, shown_value, unread
from steno.cli.connection import connected, endpoint_of, root_of
from steno.cli.exits import Exit
from steno.cli.render.output import Output, printable, table
from steno_protocol import paths
from steno_protocol.commands import Configuration
from steno_protocol.errors import Unreachable
from steno_protocol.replies import ConfigurationReport, OptionEntry
from steno_protocol.settings import OPTIONS, Settings, example


def config(options: Namespace, output: Output) -> int:
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
    for line in table([(row.name, shown_value(row.value), row.source) for row in rows]):
        output.write(printable(line))
    if pid is not None and not paths.is_remote(endpoint_of(options) or ""):
        for line in unread(entries, read_file(root, {})):
            output.say(f"{line}: `kill -HUP {pid}`, or `steno restart`")
    return Exit.DONE


def _in_force(options: Namespace) -> tuple[Path, list[OptionEntry], int | None]:
    """The root and the options of the daemon that runs, and its pid; else of one started now.

    Raises:
        Unreachable: no daemon answers at the given address.
        BadRequest: what a daemon would be started with is not valid.
    """
    is_address = endpoint_of(options) is not None
    # Its errors are reported also while a daemon runs with an older version of the file.
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
    values: dict[str, Any] = {option.name: found.values[option.name] for option in OPTIONS}
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

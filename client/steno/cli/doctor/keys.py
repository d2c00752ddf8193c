"""The doctor's check of access from other machines: the daemon's key and the client list."""

import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from steno._connect.key_files import read_private
from steno.cli.configuration import read_file
from steno.cli.doctor.findings import Finding, ok, problem
from steno.cli.render.wording import count
from steno_protocol import credentials
from steno_protocol.errors import BadRequest, StenoError


def examine_keys(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether the key files exist, are valid, and are readable only by their owner."""
    folder = root / credentials.KEYS_FOLDER
    yield from _examine_own(folder / credentials.SERVER_FILE, _address(root))
    yield from _examine_list(folder / credentials.CLIENTS_FILE)


def _examine_own(path: Path, address: str) -> Iterator[Finding]:
    if not address and not os.path.lexists(path):
        return
    try:
        credentials.decode_pair(read_private(str(path)), str(path))
    except StenoError as error:
        text = error.message
        if address:
            text += f"; a daemon that is to listen at {address} does not start without it"
        yield problem("keys", text, "mend it, or move it away and let `steno keys new` make one")


def _examine_list(path: Path) -> Iterator[Finding]:
    if not os.path.lexists(path):
        yield ok("keys", "no client of another machine is admitted")
        return
    try:
        clients = credentials.decode_clients(read_private(str(path)), str(path))
    except StenoError as error:
        text = f"{error.message}; until then no client of another machine is admitted"
        yield problem("keys", text, "mend it: `steno keys list` reads it as the daemon does")
    else:
        yield ok("keys", f"{count(len(clients), 'client')} may come from other machines")


def _address(root: Path) -> str:
    try:
        return read_file(root, dict(os.environ)).text("network.listen")
    except BadRequest:
        # The check of the configuration reports it.
        return ""

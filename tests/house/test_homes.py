"""System calls that have one home: syncs, and the opening of private files."""

import ast
from pathlib import Path

from support.project import PROJECT, sources_with

SYNCS = {"os.fsync", "os.fdatasync", "os.sync", "os.sync_file_range"}
SYNC_HOMES = {
    # `stenod.store.syncs` alone calls those of the daemon.
    "daemon/stenod/system/_linux.py",
    "daemon/stenod/system/_darwin.py",
    "client/steno/_system/_linux.py",
    "client/steno/_system/_darwin.py",
    "client/steno/_system/_windows.py",
}
"""An error that one sync takes is no other's, so all of a process know of each other."""

DAEMON_OPEN_HOMES = {
    "daemon/stenod/store/posix.py",
    "daemon/stenod/store/private_files.py",
    # A folder, to sync its names.
    "daemon/stenod/store/lock.py",
    # The log may be a device, and /dev/null is no file of anybody's.
    "daemon/stenod/runtime/log_file.py",
    "daemon/stenod/cli.py",
    # Names of a socket and its folder (O_PATH); nothing is read.
    "daemon/stenod/system/_linux.py",
}


def _uses(names: set[str]) -> dict[str, list[int]]:
    """Lines that name one of these functions, by file."""
    found: dict[str, list[int]] = {}
    for file in sources_with(names):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in names:
                found.setdefault(str(file.relative_to(PROJECT)), []).append(node.lineno)
    return found


def test_every_sync_of_a_process_goes_through_one_module() -> None:
    assert set(_uses(SYNCS)) == SYNC_HOMES


def test_the_daemon_opens_files_by_number_in_few_modules() -> None:
    found = {name for name in _uses({"os.open"}) if name.startswith("daemon/")}
    assert found == DAEMON_OPEN_HOMES


def test_both_sides_open_private_files_alike() -> None:
    """The packages of client and daemon share no code, and this function has to be the same."""
    sides = ("daemon/stenod/store/private_files.py", "client/steno/_connect/private_files.py")
    daemon, client = ({**_functions(PROJECT / side)} for side in sides)
    assert daemon
    assert {name: client.get(name) for name in daemon} == daemon


def _functions(file: Path) -> dict[str, str]:
    tree = ast.parse(file.read_bytes())
    return {node.name: ast.dump(node) for node in tree.body if isinstance(node, ast.FunctionDef)}

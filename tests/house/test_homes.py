"""System calls that have one home: syncs, and the opening of files by the daemon."""

import ast

from support.project import PROJECT, sources_with

SYNCS = {"os.fsync", "os.fdatasync", "os.sync", "os.sync_file_range"}
SYNC_HOMES = {
    # `stenod.store.syncs` alone calls those of the daemon.
    "protocol/steno_system/_linux.py",
    "protocol/steno_system/_darwin.py",
    "protocol/steno_system/_windows.py",
}
"""An error that one sync takes is no other's, so all of a process know of each other."""

DAEMON_OPEN_HOMES = {
    "daemon/stenod/store/posix.py",
    # A folder, to sync its names.
    "daemon/stenod/store/syncs.py",
    # The log may be a device, and /dev/null is no file of anybody's.
    "daemon/stenod/runtime/log_file.py",
    "daemon/stenod/cli.py",
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

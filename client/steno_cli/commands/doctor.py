"""`steno doctor`: checks of everything the daemon needs, with a remedy for each finding."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from steno_cli.arguments import argument, command, path_text
from steno_cli.connection import prepared_root, root_in_use, root_of
from steno_cli.doctor import Finding
from steno_cli.doctor.cluster import check_cluster
from steno_cli.doctor.daemon import check_daemon, check_lock, check_socket
from steno_cli.doctor.leftovers import check_leftovers
from steno_cli.doctor.root import (
    check_config,
    check_disk,
    check_keys,
    check_links,
    check_root,
    check_sync,
    check_versions,
    nearest_folder,
)
from steno_cli.doctor.self_test import self_test
from steno_cli.doctor.sessions import check_sessions
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.render.tables import beside
from steno_present.wording import count
from steno_protocol.errors import NotFound, StenoError

_CHECKS: Final[dict[str, Callable[[Namespace, Path], Iterator[Finding]]]] = {
    "versions": check_versions,
    "root": check_root,
    "config": check_config,
    "keys": check_keys,
    "disk": check_disk,
    "sync": check_sync,
    "links": check_links,
    "lock": check_lock,
    "socket": check_socket,
    "daemon": check_daemon,
    "cluster": check_cluster,
    "sessions": check_sessions,
    "leftovers": check_leftovers,
}
"""The checks by name; the cause of a problem comes before its consequences."""

_SIGNS: Final = {"ok": ("✓", "green"), "warning": ("●", "yellow"), "problem": ("✗", "red")}


@command(
    "doctor",
    "Works without a daemon and beside one that hangs. It starts no daemon and changes"
    " nothing. With --self-test it tries steno instead, for a minute, on the file system of the"
    " root or of FOLDER, in a folder of its own that it removes: daemons are killed, files torn"
    " and opened again, and everything acknowledged is compared. That proves nothing about a"
    " power cut.",
    argument(
        "--self-test", nargs="?", const=True, metavar="FOLDER", type=path_text,
        help="try steno on the file system of the root, or of FOLDER",
    ),
    example="steno doctor\nsteno doctor --self-test /tmp",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Run every check; the exit code shows whether there is a problem."""
    if options.self_test is not None:
        return _try(options, output)
    root = root_in_use(options)
    prepared_root(options)
    findings = [
        (name, replace(each, remedy=output.addressed(each.remedy)))
        for name, each in findings_of(options, root)
    ]
    return _report(root, findings, output)


def _try(options: Namespace, output: Output) -> int:
    """Try steno on a file system.

    Raises:
        NotFound: there is no such folder.
    """
    is_named = options.self_test is not True
    beside = Path(options.self_test) if is_named else nearest_folder(root_of(options))
    if not beside.is_dir():
        raise NotFound(f"there is no folder {beside}: name one on the file system to try")
    with Progress(output, f"killing daemons in {beside}"):
        findings = list(self_test(beside))
    return _report(beside, findings, output)


def _report(root: Path, findings: list[tuple[str, Finding]], output: Output) -> int:
    states = [finding.state for _, finding in findings]
    problems, warnings = states.count("problem"), states.count("warning")
    if output.as_json:
        shown = [
            {"check": name, "state": each.state, "told": each.text, "remedy": each.remedy}
            for name, each in findings
        ]
        found = {"problems": problems, "warnings": warnings, "findings": shown}
        output.document({"root": str(root), **found})
    else:
        _show(findings, output)
        output.say(f"{count(problems, 'problem')}, {count(warnings, 'warning')} on {root}")
    return Exit.DAMAGED if problems else Exit.DONE


def findings_of(options: Namespace, root: Path) -> list[tuple[str, Finding]]:
    """The findings of every check, each with the name of its check."""
    return [(name, each) for name in _CHECKS for each in _examined(name, options, root)]


def _examined(name: str, options: Namespace, root: Path) -> list[Finding]:
    """The findings of one check; a check that fails does not stop the others."""
    found: list[Finding] = []
    try:
        found.extend(_CHECKS[name](options, root))
    except (OSError, StenoError) as error:
        remedy = "remove the cause, then run `steno doctor` again"
        found.append(Finding("problem", str(error), remedy))
    return found


def _show(findings: list[tuple[str, Finding]], output: Output) -> None:
    """Print the findings, each with its remedy below it."""
    width = max(len(name) for name, _ in findings)
    margin = width + 4
    for name, finding in findings:
        sign, colour = _SIGNS[finding.state]
        start = f"{output.style(sign, colour)} {name.ljust(width)}  "
        lines = [*beside(start, finding.text, margin, output.width)]
        if finding.remedy:
            lines += beside(f"{' ' * margin}→ ", finding.remedy, margin + 2, output.width)
        for line in lines:
            output.write(line)

"""The subcommand `doctor`: looks at everything that a daemon needs, and says what to do about it.

It changes nothing but for one small file that it makes and removes to time and try the disk. It
works without a daemon, beside one that hangs, and on a broken root: each check stands alone, and
what it cannot look at is its finding.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from steno.cli.connection import prepared_root, root_in_use
from steno.cli.doctor.daemon import examine_daemon
from steno.cli.doctor.findings import Finding, count_of, document, problem, show
from steno.cli.doctor.keys import examine_keys
from steno.cli.doctor.root import (
    examine_config,
    examine_disk,
    examine_links,
    examine_root,
    examine_sync,
    examine_versions,
)
from steno.cli.doctor.sessions import examine_sessions
from steno.cli.exits import Exit
from steno.cli.render.output import Output
from steno.cli.render.wording import count
from steno_protocol.errors import StenoError

Check = Callable[[Namespace, Path], Iterator[Finding]]
"""Looks at one thing."""

CHECKS: tuple[tuple[str, Check], ...] = (
    ("versions", examine_versions),
    ("root", examine_root),
    ("config", examine_config),
    ("keys", examine_keys),
    ("disk", examine_disk),
    ("sync", examine_sync),
    ("links", examine_links),
    ("daemon", examine_daemon),
    ("sessions", examine_sessions),
)
"""Every check by its name, in the order in which trouble shows."""


def doctor(options: Namespace, output: Output) -> int:
    """Look at everything; the exit code says whether there is a problem."""
    root = root_in_use(options)
    prepared_root(options)
    findings = [
        finding for name, check in CHECKS for finding in _looked(name, check, options, root)
    ]
    problems, warnings = count_of(findings, "problem"), count_of(findings, "warning")
    if output.as_json:
        output.document({"root": str(root), **document(findings)})
    else:
        show(findings, output)
        output.say(f"{count(problems, 'problem')}, {count(warnings, 'warning')} on {root}")
    return Exit.DAMAGED if problems else Exit.DONE


def _looked(name: str, check: Check, options: Namespace, root: Path) -> list[Finding]:
    """What a check found; that it could not look is a finding as well."""
    found: list[Finding] = []
    try:
        found.extend(check(options, root))
    except (OSError, StenoError) as error:
        found.append(problem(name, str(error), "mend this first, then run `steno doctor` again"))
    return found

"""The conformance suite on steno and on other stores, as a table.

    PYTHONPATH=tests python -m bench stores [--install] [--only NAME] [--markdown FILE]

Each store of PyPI runs in an environment of its own, which `--install` makes.
"""

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stores_environments import CANDIDATES, Candidate, Missing, environment_of
from steno.testing.stores.clauses import CLAUSES
from steno.testing.stores.process import DriverFailed
from steno.testing.stores.trial import Trial
from steno.testing.stores.verdicts import Finding


@dataclass(frozen=True, slots=True)
class Column:
    """One store of the table: its findings, or why there are none."""

    candidate: Candidate
    version: str
    findings: tuple[Finding, ...]
    missing: str = ""

    def as_json(self) -> dict[str, Any]:
        """The column as plain values."""
        return {
            "name": self.candidate.name,
            "version": self.version,
            "settings": self.candidate.settings,
            "missing": self.missing,
            "findings": [finding.as_json() for finding in self.findings],
        }


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    options = _parser().parse_args(arguments)
    columns = [
        _column(candidate, options)
        for candidate in CANDIDATES
        if not options.only or candidate.name in options.only
    ]
    print(text_table(columns))
    if options.json is not None:
        report = {**_run(options), "stores": [column.as_json() for column in columns]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(markdown(columns, _run(options)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench stores", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--install", action="store_true", help="install the stores that are missing"
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    parser.add_argument(
        "--environments", type=Path, default=cache / "steno-stores", metavar="DIR",
        help="where the environments are kept (default: %(default)s)",
    )  # fmt: skip
    names = ", ".join(candidate.name for candidate in CANDIDATES)
    parser.add_argument("--only", action="append", metavar="NAME", help=f"one of: {names}")
    parser.add_argument("--rounds", type=int, default=1, help="as --store-rounds (default: 1)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeat a run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every finding there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    return parser


def _column(candidate: Candidate, options: argparse.Namespace) -> Column:
    try:
        environment = environment_of(candidate, options.environments, install=options.install)
        trial = Trial(
            candidate.driver,
            seed=options.seed,
            rounds=options.rounds,
            python=environment.python,
            path=environment.path,
        )
    except (Missing, DriverFailed) as error:
        print(f"  {candidate.name}: left out: {error}", file=sys.stderr, flush=True)
        return Column(candidate, "", (), str(error).splitlines()[0])
    findings = []
    with trial:
        for clause in CLAUSES:
            finding = trial.run(clause)
            findings.append(finding)
            print(f"  {candidate.name}: {clause.name} {finding}", file=sys.stderr, flush=True)
    return Column(candidate, trial.version, tuple(findings))


def _run(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "seed": options.seed,
        "rounds": options.rounds,
    }


def text_table(columns: Sequence[Column]) -> str:
    """The verdicts as text, a clause a line."""
    lines = [["", *(column.candidate.name for column in columns)]]
    lines += [
        [clause.name, *(_cell(column, clause.name) for column in columns)] for clause in CLAUSES
    ]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown(columns: Sequence[Column], run: dict[str, Any]) -> str:
    """The page with the table, what broke, and the versions and settings."""
    parts = [
        "# Session stores and what they keep",
        "",
        f"Made by `bench stores` on {run['at']}, seed {run['seed']}, rounds {run['rounds']}.",
        "The clauses are described in `client/guide/store-conformance.md`.",
        "",
        *_verdicts(columns),
        "",
        "## What broke",
        "",
        *_broken(columns),
        "",
        "## Versions and settings",
        "",
        "| store | version | how it is used |",
        "| --- | --- | --- |",
        *(
            f"| {each.candidate.name} | {each.version or each.missing} |"
            f" {each.candidate.settings} |"
            for each in columns
        ),
        "",
    ]
    return "\n".join(parts)


def _verdicts(columns: Sequence[Column]) -> list[str]:
    there = [column for column in columns if column.findings]
    return [
        "| clause | " + " | ".join(column.candidate.name for column in there) + " |",
        "| --- |" + " --- |" * len(there),
        *(
            f"| {clause.name} | "
            + " | ".join(_cell(column, clause.name) for column in there)
            + " |"
            for clause in CLAUSES
        ),
    ]


def _broken(columns: Sequence[Column]) -> list[str]:
    return [
        f"* {column.candidate.name}, {finding.clause}: {_one_line(finding)}"
        for column in columns
        for finding in column.findings
        if finding.verdict == "broken"
    ] or ["Nothing."]


def _cell(column: Column, clause: str) -> str:
    for finding in column.findings:
        if finding.clause == clause:
            if finding.verdict != "broken":
                return finding.verdict
            number = finding.summary.partition(" of ")
            return f"broken ({number[0]} of {number[2].split()[0]})" if number[1] else "broken"
    return "-"


def _one_line(finding: Finding) -> str:
    text = " ".join(f"{finding.summary}: {finding.detail}".split()).replace("|", "\\|")
    return text if len(text) <= 200 else text[:197] + "..."

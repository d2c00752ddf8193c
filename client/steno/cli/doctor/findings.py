"""What a doctor finds: one fact each, whether it is well, and what to do when it is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from steno.cli.render.folding import beside
from steno.cli.render.output import Output

State = Literal["ok", "warning", "problem"]
"""`warning`: it works, with a risk. `problem`: it does not work, or will not."""

_SIGNS: Final = {"ok": "✓", "warning": "●", "problem": "✗"}
_STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact.

    Attributes:
        check: what was looked at.
        text: what was found.
        state: whether it is well.
        remedy: what to do; empty when nothing needs to be done.
    """

    check: str
    text: str
    state: State = "ok"
    remedy: str = ""


def ok(check: str, text: str) -> Finding:
    """It is well."""
    return Finding(check, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    """A finding about something that works, with a risk."""
    return Finding(check, text, "warning", remedy)


def problem(check: str, text: str, remedy: str) -> Finding:
    """It does not work, or soon will not."""
    return Finding(check, text, "problem", remedy)


def count_of(findings: Sequence[Finding], state: State) -> int:
    """How many are in this state."""
    return sum(finding.state == state for finding in findings)


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """All of them, for a program."""
    return {
        "problems": count_of(findings, "problem"),
        "warnings": count_of(findings, "warning"),
        "findings": [
            {"check": each.check, "state": each.state, "told": each.text, "remedy": each.remedy}
            for each in findings
        ],
    }


def show(findings: Sequence[Finding], output: Output) -> None:
    """One line each, what to do below it."""
    width = max(len(finding.check) for finding in findings)
    margin = width + 4
    for finding in findings:
        sign = output.style(_SIGNS[finding.state], _STYLES[finding.state])
        name = f"{sign} {finding.check.ljust(width)}  "
        lines = [*beside(name, finding.text, margin, output.width)]
        if finding.remedy:
            lines += beside(f"{' ' * margin}→ ", finding.remedy, margin + 2, output.width)
        for line in lines:
            output.write(line)

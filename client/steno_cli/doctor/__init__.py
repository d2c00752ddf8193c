"""The checks of `steno doctor`, and their findings.

A check is a function of the options and the root that yields findings. It changes nothing, except
that two checks create and remove a small folder, and it needs no daemon.
"""

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from steno.local import make_target
from steno_protocol.errors import BadRequest

State = Literal["ok", "warning", "problem"]
"""`warning`: it works, with a risk. `problem`: it does not work, or soon will not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact, its state, and what the user does about it; empty if nothing."""

    state: State
    text: str
    remedy: str = ""


def ok(text: str) -> Finding:
    """A fact that is as it should be."""
    return Finding("ok", text)


def warning(text: str, remedy: str) -> Finding:
    """A fact that is a risk."""
    return Finding("warning", text, remedy)


def problem(text: str, remedy: str) -> Finding:
    """A fact that keeps steno from its work."""
    return Finding("problem", text, remedy)


def steno(root: Path, *words: str) -> str:
    """A call of the command that works as printed; it names the root unless it is the default."""
    default = None
    with suppress(BadRequest):
        default = make_target(None, None, None, spawn=False).resolved().root
    named = () if str(root) == default else ("--root", str(root))
    return shlex.join(("steno", *words, *named))

"""The checks of `steno doctor`, and their findings.

A check is a function of the options and the root that yields findings. It changes nothing, except
that two checks create and remove a small file, and it needs no daemon.
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


def steno(root: Path, *words: str) -> str:
    """A call of the command that works as printed; it names the root unless it is the default."""
    default = None
    with suppress(BadRequest):
        default = make_target(None, None, None, spawn=False).resolved().root
    named = () if str(root) == default else ("--root", str(root))
    return shlex.join(("steno", *words, *named))

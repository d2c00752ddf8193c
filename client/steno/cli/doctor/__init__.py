"""The checks of `steno doctor`, and their findings.

A check is a function of the options and the root that yields findings. It changes nothing, except
that two checks create and remove a small file, and it needs no daemon.
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem"]
"""`warning`: it works, with a risk. `problem`: it does not work, or soon will not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact, its state, and what the user does about it; empty if nothing."""

    state: State
    text: str
    remedy: str = ""

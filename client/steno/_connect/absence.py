"""Errors about a missing or silent daemon, with their remedies."""

import time
from pathlib import Path

from steno._connect.connection import Futile
from steno._connect.probe import NeedsRestart, Unreachable
from steno._connect.target import Target, start_command
from steno_protocol import errors, paths


class StartFailed(Futile):
    """No daemon runs and none could be started."""


def not_there(
    target: Target, outcome: NeedsRestart | Unreachable, began: float
) -> errors.StenoError:
    """The error of a client that has waited for its daemon since `began`."""
    if isinstance(outcome, NeedsRestart):
        return errors.Incompatible(
            f"the daemon at {outcome.endpoint} is too old ({outcome.why}): `steno restart`"
        )
    silent = _silent(target, time.monotonic() - began)
    if silent is not None:
        return silent
    return errors.Unreachable(f"no daemon: {outcome.why}; {_remedy(target)}")


def _remedy(target: Target) -> str:
    """How the caller gets a daemon at the expected address."""
    if target.endpoint is not None:
        if paths.is_remote(target.endpoint):
            return "`steno status` on that machine shows whether it runs and listens there"
        return "an address starts none: start the daemon of its root, `steno start --root DIR`"
    assert target.root is not None
    if target.spawn:
        return f"see {Path(target.root, paths.LOG)}"
    return f"start it with `{start_command(target.root)}`"


def _silent(target: Target, waited_s: float) -> errors.Unreachable | None:
    """The error about a silent daemon that holds the wanted root; None if there is none."""
    if target.root is None or target.endpoint is not None:
        return None
    # Imported late: a client that finds its daemon does not need it.
    from steno._connect.lock_holder import holder_of, silence_of  # noqa: PLC0415

    holder = holder_of(Path(target.root))
    if holder is None:
        return None
    silence = silence_of(Path(target.root), holder)
    return errors.Unreachable(
        f"{silence.text}: no answer within {waited_s:.1f} s; {silence.remedy}; `steno doctor`"
        " gives details"
    )

"""Coming to a connection that was greeted: the daemon is found, or else started."""

import time

from steno._probe import NeedsRestart, Ready, Unreachable, probe
from steno._target import Target
from steno_protocol import errors, limits


class StartFailed(errors.Unreachable):
    """No daemon runs and none could be started; waiting does not help."""


def connect(target: Target, deadline: float) -> Ready:
    """Connect to the wanted daemon, starting it when there is none and `target.spawn` says so.

    Blocks until `deadline` at the most; the connection in the answer has been greeted.

    Raises:
        Unreachable: there is none, and none was to be started or could be.
        Incompatible: what answers is not the daemon that was wanted.
    """
    outcome = probe(target, probe_deadline(deadline))
    if isinstance(outcome, Ready):
        return outcome
    if not target.spawn:
        raise not_there(target, outcome)
    # Imported only now: a one-shot command that finds its daemon does not pay for subprocess.
    from steno._spawn import ensure  # noqa: PLC0415

    return ensure(target, deadline)


def probe_deadline(deadline: float) -> float:
    """When one probe has to be over."""
    return min(deadline, time.monotonic() + limits.PROBE_TIMEOUT_S)


def not_there(target: Target, outcome: NeedsRestart | Unreachable) -> errors.StenoError:
    """What is said when there is no daemon to be had."""
    if isinstance(outcome, NeedsRestart):
        return errors.Incompatible(
            f"the daemon at {outcome.endpoint} is too old ({outcome.why}): `steno restart`"
        )
    hint = "see the daemon's log" if target.spawn else "start it with `steno start`"
    return errors.Unreachable(f"no daemon: {outcome.why}; {hint}")

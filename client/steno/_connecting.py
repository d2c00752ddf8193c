"""Coming to a connection that was greeted: the daemon is found, or else started."""

import time
from pathlib import Path

from steno._probe import NeedsRestart, Ready, Unreachable, probe
from steno._target import Target, start_command
from steno_protocol import errors, limits, places


class StartFailed(errors.Unreachable):
    """No daemon runs and none could be started; waiting does not help."""


def connect(target: Target, deadline: float) -> Ready:
    """Connect to the wanted daemon, starting it when there is none and `target.spawn` says so.

    Blocks until `deadline` at the most; the connection in the answer has been greeted.

    Raises:
        Unreachable: there is none, and none was to be started or could be.
        Incompatible: what answers is not the daemon that was wanted.
    """
    began = time.monotonic()
    outcome = probe(target, probe_deadline(target, deadline))
    if isinstance(outcome, Ready):
        return outcome
    if not target.spawn:
        raise not_there(target, outcome, began)
    # Imported only now: a one-shot command that finds its daemon does not pay for subprocess.
    from steno._spawn import ensure  # noqa: PLC0415

    return ensure(target, began, deadline)


def is_killed(target: Target) -> bool:
    """True when the wanted daemon is one of this machine that ended without a word.

    One that was stopped, or had nobody to serve any more, took its note away first.
    """
    if target.root is None or target.endpoint is not None:
        return False
    # Imported only now: who finds its daemon has no need of it.
    from steno._holder import is_free, note_of  # noqa: PLC0415

    root = Path(target.root)
    try:
        return note_of(root) is not None and is_free(root)
    except OSError:
        return False


def tell_restart(ready: Ready) -> None:
    """Log that the daemon of a connection was killed and that a follower started it again.

    A program that has no logging set up shows it on stderr.
    """
    # Imported only now: a one-shot command has nothing to log.
    import logging  # noqa: PLC0415

    logging.getLogger("steno").warning(
        "the daemon of %s was killed and runs again, as pid %d; nothing that was acknowledged is"
        " lost",
        ready.welcome.root,
        ready.welcome.pid,
    )


def probe_deadline(target: Target, deadline: float) -> float:
    """When one probe has to be over."""
    is_remote = target.endpoint is not None and places.is_remote(target.endpoint)
    timeout_s = limits.REMOTE_PROBE_TIMEOUT_S if is_remote else limits.PROBE_TIMEOUT_S
    return min(deadline, time.monotonic() + timeout_s)


def not_there(
    target: Target, outcome: NeedsRestart | Unreachable, began: float
) -> errors.StenoError:
    """What is said when there is no daemon to be had; it was waited for since `began`."""
    if isinstance(outcome, NeedsRestart):
        return errors.Incompatible(
            f"the daemon at {outcome.endpoint} is too old ({outcome.why}): `steno restart`"
        )
    silent = _silent(target, time.monotonic() - began)
    if silent is not None:
        return silent
    return errors.Unreachable(f"no daemon: {outcome.why}; {_remedy(target)}")


def _remedy(target: Target) -> str:
    """How a daemon comes to be where this one was looked for, and no other one elsewhere."""
    if target.endpoint is not None:
        if places.is_remote(target.endpoint):
            return "see on that machine, with `steno status`, whether it runs and listens there"
        return "an address starts none: start the daemon of its root, `steno start --root DIR`"
    assert target.root is not None
    if target.spawn:
        return f"see {Path(target.root, places.LOG)}"
    return f"start it with `{start_command(target.root)}`"


def _silent(target: Target, waited_s: float) -> errors.Unreachable | None:
    """What is said of a daemon that holds the wanted root and does not answer, if one does."""
    if target.root is None or target.endpoint is not None:
        return None
    # Imported only now: who finds its daemon has no need of it.
    from steno._holder import holder_of, silence_of  # noqa: PLC0415

    holder = holder_of(Path(target.root))
    if holder is None:
        return None
    silence = silence_of(holder)
    return errors.Unreachable(
        f"{silence.told}: no answer within {waited_s:.1f} s; {silence.remedy}; `steno doctor`"
        " tells more"
    )

"""The exit codes of `steno`, a closed table for scripts."""

import enum
from typing import Final

from steno_protocol.errors import (
    BadRequest,
    Conflict,
    NotFound,
    OutcomeUnknown,
    StenoError,
    Unreachable,
)


class Exit(enum.IntEnum):
    """An exit code of a command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFLICT = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    UNKNOWN = 6
    DAMAGED = 7
    INTERRUPTED = 130


MEANINGS: Final = {
    Exit.DONE: "done",
    Exit.FAILED: "refused or failed; nothing happened",
    Exit.USAGE: "the command line is wrong",
    Exit.CONFLICT: "conflict: another writer changed the session, or the key was used before",
    Exit.NOT_FOUND: "not found: no such session, checkpoint, generation, position, log or match",
    Exit.UNREACHABLE: "no daemon answered; nothing happened",
    Exit.UNKNOWN: "outcome unknown: repeat the command with the printed key",
    Exit.DAMAGED: "verify found damage or doctor found a problem; nothing was changed",
    Exit.INTERRUPTED: "interrupted",
}
"""The meaning of each exit code, for `steno --help`."""


class WrongUsage(BadRequest):
    """Options that contradict each other; argparse finds other mistakes."""


def reason_of(error: OSError) -> str:
    """The reason of a failed system call, with its file, as a part of a message."""
    if error.strerror is None:
        # Raised by steno, with a complete message.
        return str(error)
    # An error of an open file has no name.
    return (
        f"{error.strerror}: {error.filename or 'standard input, standard output or an open file'}"
    )


def exit_of(error: StenoError) -> Exit:
    """The exit code of a command that ended with `error`."""
    match error:
        case WrongUsage():
            return Exit.USAGE
        case Conflict():
            return Exit.CONFLICT
        case NotFound():
            return Exit.NOT_FOUND
        case Unreachable():
            return Exit.UNREACHABLE
        case OutcomeUnknown():
            return Exit.UNKNOWN
        case _:
            return Exit.FAILED

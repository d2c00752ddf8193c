"""Whether a client masks what it writes: the root's `config.toml` says so, or STENO_REDACT.

Nothing else is read or imported without it: one look at the file, when a client connects.
"""

import errno
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias

from steno._connect.connection import OutOfHandles
from steno._connect.safe_open import NotRegular, read_regular
from steno._connect.target import Target
from steno_protocol import paths
from steno_protocol.commands import Command
from steno_protocol.errors import BadRequest

Masks: TypeAlias = Callable[[Command, Sequence[bytes]], tuple[Command, Sequence[bytes]]]
"""What masks a command and its records before they are sent."""

VARIABLE: Final = "STENO_REDACT"
"""`write`: mask before writing, also for a daemon on another machine."""

_WRITE: Final = "write"
_SESSIONS: Final = "sessions"


def write_masks(root: str | None) -> Masks | None:
    """What masks the requests of a client of this root; None if it sends them as they are.

    Args:
        root: the root; None for a daemon on another machine.

    Returns:
        If the file cannot be read: what refuses all that would be written, with `BadRequest`.

    Raises:
        BadRequest: the patterns in the file are not valid.
        OutOfHandles: this process may open no more files.
    """
    try:
        text = "" if root is None else _text(Path(root, paths.CONFIG))
    except BadRequest as error:
        refusal: Masks = import_module("steno_redact.writing").Refusal(error)
        return refusal
    is_asked = os.environ.get(VARIABLE) == _WRITE
    if not is_asked and _WRITE not in text and _SESSIONS not in text:
        return None
    return _masks(text, f"{root}/{paths.CONFIG}", is_asked=is_asked)


def prepared(target: Target) -> tuple[Target, Masks | None]:
    """A target with an absolute root, and what masks the requests to its daemon."""
    resolved = target.resolved()
    return resolved, write_masks(resolved.root)


def is_unknown(target: Target) -> bool:
    """Whether only the daemon, which is on this machine, knows the root."""
    return (
        target.root is None and target.endpoint is not None and not paths.is_remote(target.endpoint)
    )


def _masks(text: str, source: str, *, is_asked: bool) -> Masks | None:
    # Imported here: a client without masks needs none of it.
    settings = import_module("steno_protocol.settings")
    table = settings.redaction_table(text, source)
    is_for_all = is_asked or table.get(settings.REDACT_AT) == _WRITE
    sessions = None if is_for_all else table.get(settings.REDACT_SESSIONS, ())
    if sessions == ():
        return None
    patterns = import_module("steno_redact.patterns").patterns_of(table, source)
    redactor = import_module("steno_redact.redactor").Redactor(patterns)
    masks: Masks = import_module("steno_redact.writing").Masks(redactor, sessions)
    return masks


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except NotRegular as error:
        raise BadRequest(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise OutOfHandles(str(error.strerror)) from None
        raise BadRequest(
            f"{path} cannot be read, and may say that secrets are masked: {error}"
        ) from None

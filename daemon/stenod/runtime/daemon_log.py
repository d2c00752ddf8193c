"""The daemon's log: one event a line with its fields.

    2026-01-02 03:04:05,678 INFO rewritten session="demo" kind="reverted" head="3:17"

No event contains a record. Values are JSON, so no value contains a line end and each line can be
parsed.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Final

from steno_protocol.settings import Settings
from stenod.runtime.log_file import LogFile

_logger = logging.getLogger("stenod")

_QUIET: Final = frozenset({"refused", "connected"})
"""Events of normal operation, for debugging."""

_WARNINGS: Final = frozenset(
    {
        "slow_sync", "foreign_change", "config_waits", "socket_lost", "root_lost", "quota",
        "metrics_off", "storage_failed", "left_by_killed", "keys_refused", "not_admitted",
    }
)  # fmt: skip
_ERRORS: Final = frozenset({"internal", "cannot_start", "outcome_unknown", "config_refused"})


def start(path: Path | None, outputs: tuple[int, ...] = ()) -> None:
    """Write events to a rotated file, or to stderr.

    Args:
        path: the path of the file, None for stderr.
        outputs: handles of this process to redirect to the file.
    """
    handler = logging.StreamHandler(sys.stderr) if path is None else LogFile(path, outputs)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
    _logger.propagate = False


def discard() -> None:
    """Write no event anywhere: a reader's client has its errors as replies."""
    _logger.addHandler(logging.NullHandler())
    _logger.propagate = False


def adopt(settings: Settings) -> None:
    """Apply these settings from now on."""
    _logger.setLevel(settings.text("log.level").upper())
    for handler in _logger.handlers:
        if isinstance(handler, LogFile):
            handler.bytes_max = settings.count("log.file_bytes")
            handler.files_max = settings.count("log.files")


def log(event: str, **fields: object) -> None:
    """Log an event with its fields."""
    level = _level_of(event)
    if _logger.isEnabledFor(level):
        text = " ".join(
            f"{name}={json.dumps(value, default=str)}" for name, value in fields.items()
        )
        _logger.log(level, "%s %s", event, text)


def _level_of(event: str) -> int:
    if event in _ERRORS:
        return logging.ERROR
    if event in _WARNINGS:
        return logging.WARNING
    return logging.DEBUG if event in _QUIET else logging.INFO

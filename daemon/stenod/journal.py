"""The daemon's own log: one event a line with its fields, and never what is in a record."""

import json
import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from steno_protocol import limits

_logger = logging.getLogger("stenod")


def start(path: Path | None) -> None:
    """Write events to a file that is rotated, or to stderr without one."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = RotatingFileHandler(path, maxBytes=limits.LOG_BYTES_MAX, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
    _logger.propagate = False


def tell(event: str, **fields: object) -> None:
    """Note an event: its name, then field=value, values as JSON."""
    told = " ".join(f"{name}={json.dumps(value, default=str)}" for name, value in fields.items())
    _logger.info("%s %s", event, told)

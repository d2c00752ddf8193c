"""Masks in what a command or the viewer sends: the patterns in force, and masked records.

The patterns are imported by the functions that mask: to compile them costs a command as much as
the rest of its start.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from steno_cli.configuration import text_of_file
from steno_protocol import paths
from steno_protocol.settings import redaction_table

if TYPE_CHECKING:
    from steno_redact.redactor import Redactor


def redactor_of(root: Path | None) -> "Redactor":
    """What masks secrets, with the patterns of `config.toml`; those of steno alone without a root.

    Raises:
        BadRequest: the file cannot be read, or a pattern in it is not valid; the message names the
            file, the pattern and the remedy.
    """
    from steno_redact.patterns import patterns_of  # noqa: PLC0415
    from steno_redact.redactor import Redactor  # noqa: PLC0415

    if root is None:
        return Redactor()
    path = root / paths.CONFIG
    return Redactor(patterns_of(redaction_table(text_of_file(path), str(path)), str(path)))

"""Descriptions of internal errors by type and place, without their text.

The text of an exception may quote a record, and more people read the log than the session.
"""

import traceback
from pathlib import Path
from typing import Final

_FRAMES_MAX: Final = 3


def fault_of(error: BaseException) -> str:
    """Return the type of an exception and its innermost source lines.

    >>> try:
    ...     int("secret")
    ... except ValueError as error:
    ...     "secret" in fault_of(error)
    False
    """
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    where = " < ".join(f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in reversed(frames))
    return f"{type(error).__name__} at {where}" if where else type(error).__name__

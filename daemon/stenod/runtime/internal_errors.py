"""Reports of internal errors: type and place, never the text.

The text of an exception may quote what it was met with, a record for example, and a log is read by
other people than a session is.
"""

import traceback
from pathlib import Path
from typing import Final

_FRAMES_MAX: Final = 3


def fault_of(error: BaseException) -> str:
    """The type of an exception and the innermost lines that it went through.

    >>> try:
    ...     int("secret")
    ... except ValueError as error:
    ...     "secret" in fault_of(error)
    False
    """
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
    where = " < ".join(f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in reversed(frames))
    return f"{type(error).__name__} at {where}" if where else type(error).__name__

"""The last lines of a daemon's log, for the error of a start that fails."""

import json
import os
from pathlib import Path
from typing import Final

from steno._connect.safe_open import open_regular
from steno_protocol import limits, paths

_CANNOT_START: Final = " cannot_start error="
"""The event of a daemon in the background that ends before it was ready."""


class LastWords:
    """What the daemons of a root have logged since this object was made."""

    def __init__(self, root: str) -> None:
        self._path = Path(root, paths.LOG)
        try:
            found = self._path.stat()
        except OSError:
            self._file, self._begin = None, 0
        else:
            self._file, self._begin = (found.st_dev, found.st_ino), found.st_size

    @property
    def reason(self) -> str | None:
        """Why a daemon ended before it was ready; None if none has said so."""
        for line in reversed(self._lines()):
            _, is_there, reason = line.partition(_CANNOT_START)
            if is_there:
                try:
                    return str(json.loads(reason))
                except ValueError:
                    return reason
        return None

    def __str__(self) -> str:
        """The reason, or the last lines; where the log is, if there are none."""
        said = self.reason or " | ".join(self._lines()[-limits.LAST_WORDS_LINES_MAX :])
        return f"it said: {said}" if said else f"it said nothing, see {self._path}"

    def _lines(self) -> list[str]:
        try:
            with open_regular(self._path) as file:
                found = os.fstat(file.fileno())
                is_same = (found.st_dev, found.st_ino) == self._file
                begin = self._begin if is_same and found.st_size >= self._begin else 0
                file.seek(max(begin, found.st_size - limits.LAST_WORDS_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()]

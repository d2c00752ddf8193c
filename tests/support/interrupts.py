"""Interrupts at chosen places, as an exception that a signal handler raises."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import steno
import steno_protocol

_OURS: Final = tuple(f"{Path(each.__file__).parent}/" for each in (steno, steno_protocol))
"""The folders of the interrupted code; the test's own code is not interrupted."""


class Interrupt(BaseException):
    """Raised by the handler."""


class Interrupts:
    """Runs work that is interrupted once, at one of the places where a signal handler can run.

    Those are where a function of Python begins and where one of C returns.

    Attributes:
        has_come: whether the last work was interrupted; False once its end comes first.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._left = 0

    def run(self, work: Callable[[], object], place: int) -> None:
        """Have the work interrupted at this place of its own, counted from 0."""
        self.has_come = False
        self._left = place
        # Kept: CPython goes on to use the function after it has forgotten it.
        self._hook = self._look
        sys.setprofile(self._hook)
        try:
            work()
        except Interrupt:
            pass
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in {"call", "c_return"} or not frame.f_code.co_filename.startswith(_OURS):
            return
        if self.has_come:
            return
        if self._left == 0:
            self.has_come = True
            raise Interrupt
        self._left -= 1

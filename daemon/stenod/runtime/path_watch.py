"""An inotify watch that reports when one of a few paths was removed, moved or replaced."""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

import anyio

_IN_ATTRIB: Final = 0x4
_IN_MOVE_SELF: Final = 0x800
"""The events' numbers in Linux's inotify.h. A file that loses a name gets the first one: the bound
socket and the locked file live on without it, and so are not yet deleted."""

_EVENTS_BYTES: Final = 4096


class PathWatch:
    """A watch on files and folders; closed by the end of its `with`.

    A path's parents are not watched, and some file systems and sandboxes report nothing, so a
    caller looks from time to time, too.

    Args:
        paths: what is watched, where it is there.

    Source: inotify(7).
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._handle: int | None = None
        try:
            system = ctypes.CDLL(None)
            handle = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if handle < 0:
                # The user has no further watch left, or the system has none.
                return
            self._handle = handle
            for path in paths:
                system.inotify_add_watch(handle, os.fsencode(path), _IN_ATTRIB | _IN_MOVE_SELF)
        except (AttributeError, OSError):
            return

    async def wait(self, timeout_s: float) -> None:
        """Wait until something happened to one of the paths, at most for a time."""
        if self._handle is None:
            await anyio.sleep(timeout_s)
            return
        with anyio.move_on_after(timeout_s):
            await anyio.wait_readable(self._handle)
            os.read(self._handle, _EVENTS_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)

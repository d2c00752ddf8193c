"""A listening socket that only the relay connects to."""

import os
import shutil

import msgspec


class RelaySocket(msgspec.Struct, frozen=True):
    """A listening local socket, and the way of another process to it.

    Attributes:
        listening: the listening handle.
        path: its path for a process that has inherited `handles`.
        handles: the handles that the other process needs.
        folder: a temporary folder that contains the socket; empty without one.
    """

    listening: int
    path: str
    handles: tuple[int, ...] = ()
    folder: str = ""

    def close(self) -> None:
        """Close what leads to it; libzmq closes `listening`."""
        for handle in self.handles:
            os.close(handle)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

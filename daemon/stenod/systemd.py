"""systemd's protocols: notifications and socket activation.

    READY=1                      the daemon accepts clients
    RELOADING=1, MONOTONIC_USEC  the daemon reads its configuration again; READY=1 follows
    WATCHDOG=1                   the event loop runs; sent twice in each period of WATCHDOG_USEC
    STOPPING=1                   the daemon drains

Each is one datagram to NOTIFY_SOCKET. A listening socket is file handle 3 if LISTEN_PID is the
daemon's own pid.
Source: sd_notify(3) and sd_listen_fds(3).
"""

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import anyio
import msgspec

from steno_protocol.errors import BadRequest

_FIRST_HANDLE: Final = 3
_VARIABLES: Final = (
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
)  # fmt: skip


class Supervisor(msgspec.Struct, frozen=True):
    """The service manager of this process; none by default.

    Attributes:
        address: the address of its socket, empty without one.
        watchdog_s: its watchdog period, 0 without a watchdog.
        listening: the handle of the listening socket that it passed.
    """

    address: str = ""
    watchdog_s: float = 0.0
    listening: int | None = None

    def ready(self) -> None:
        """Notify it that the daemon accepts clients."""
        self._notify("READY=1")

    def reloading(self) -> None:
        """Notify it that the daemon reads its configuration again; `ready` has to follow."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify it that the daemon drains and then exits."""
        self._notify("STOPPING=1")

    async def keep_watchdog(self) -> None:
        """Notify it twice in each watchdog period that the event loop runs; never returns."""
        if not self.watchdog_s:
            return
        while True:
            self._notify("WATCHDOG=1")
            await anyio.sleep(self.watchdog_s / 2)

    def check_listening(self, path: Path) -> None:
        """Refuse a passed socket that clients would not find.

        Raises:
            BadRequest: the passed handle does not listen at `path`.
        """
        if self.listening is None:
            return
        try:
            with socket.socket(fileno=os.dup(self.listening)) as handed:
                where = handed.getsockname()
                listens = handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise BadRequest(
                f"the file handle from the service manager is not a socket: {error}; set"
                f" ListenStream={path}"
            ) from None
        if not listens or where != str(path):
            raise BadRequest(
                f"the socket from the service manager is {where!r}, but clients of this root"
                f" connect to {path}: set ListenStream={path}"
            )
        os.set_blocking(self.listening, False)

    def _notify(self, text: str) -> None:
        if not self.address:
            return
        # The daemon serves on without its service manager.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out,
        ):
            out.setblocking(False)
            out.sendto(text.encode(), self.address)


def take_supervisor(environ: MutableMapping[str, str]) -> Supervisor:
    """Return the service manager, and clear its variables, which are for this process alone."""
    variables = {name: environ.pop(name, "") for name in _VARIABLES}
    pid = str(os.getpid())
    address = variables["NOTIFY_SOCKET"]
    is_watched = variables["WATCHDOG_USEC"].isdecimal() and variables["WATCHDOG_PID"] in {"", pid}
    has_socket = variables["LISTEN_PID"] == pid and variables["LISTEN_FDS"] == "1"
    return Supervisor(
        # An abstract address is written with @ in the place of its NUL.
        address="\0" + address[1:] if address.startswith("@") else address,
        watchdog_s=int(variables["WATCHDOG_USEC"]) / 1e6 if is_watched else 0.0,
        listening=_FIRST_HANDLE if has_socket else None,
    )

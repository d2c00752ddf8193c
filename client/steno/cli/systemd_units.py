"""The systemd user units of a root: a socket that listens always, and the daemon behind it."""

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from steno._connect.safe_open import read_regular
from steno.cli.command_limits import WATCHDOG_S
from steno_protocol import limits, paths

MARK: Final = "# Written by `steno service install`; `steno service uninstall` removes it."
"""The first line of each file of ours: no other file is ever replaced or removed."""

_SERVICE: Final = """\
{mark}
[Unit]
Description=steno, the daemon that owns the agent sessions of {plain_root}
Requires={name}.socket
After={name}.socket

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
WatchdogSec={watchdog_s:g}
TimeoutStopSec={stop_s:g}
Restart=on-failure
# 3: another daemon holds the root, so a restart would change nothing.
RestartPreventExitStatus=3
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""

_SOCKET: Final = """\
{mark}
[Unit]
Description=The socket of steno for {plain_root}

[Socket]
ListenStream={socket}
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit file: where it lies, and what is in it."""

    path: Path
    text: str

    @property
    def state(self) -> str:
        """`missing`, `installed`, `outdated`, or `foreign`: not written by steno."""
        try:
            found = read_regular(self.path).decode(errors="replace")
        except FileNotFoundError:
            return "missing"
        if not found.startswith(MARK):
            return "foreign"
        return "installed" if found == self.text else "outdated"


def units_of(root: Path, socket: str, default: Path, environ: Mapping[str, str]) -> list[Unit]:
    """The units of a root.

    Args:
        root: the root, absolute.
        socket: the path of its socket.
        default: the default root; its units have the plain name.
        environ: says where units lie.

    Raises:
        BadRequest: the user's home folder is unknown.
    """
    name = name_of(root, default)
    home = (
        environ.get("XDG_CONFIG_HOME")
        or paths.check_home(
            environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 (as text)
        )
        + "/.config"
    )
    folder = Path(home, "systemd", "user")
    words = [
        sys.executable, "-P", "-m", "stenod", "--foreground", "--root", str(root),
        "--socket", socket, "--log", str(root / paths.LOG),
    ]  # fmt: skip
    service = _SERVICE.format(
        mark=MARK,
        name=name,
        plain_root=_plain(str(root)),
        command=" ".join(map(_quoted, words)),
        watchdog_s=WATCHDOG_S,
        stop_s=limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S,
    )
    listening = _SOCKET.format(mark=MARK, plain_root=_plain(str(root)), socket=_plain(socket))
    return [
        Unit(folder / f"{name}.service", service),
        Unit(folder / f"{name}.socket", listening),
    ]


def name_of(root: Path, default: Path) -> str:
    """The units' name: `steno`, and for another root than the default one a digest of it."""
    if root == default:
        return "steno"
    return f"steno-{hashlib.sha256(str(root).encode(errors='surrogateescape')).hexdigest()[:8]}"


def _plain(text: str) -> str:
    """Text as a unit file has it: % begins a specifier there."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """A word of a command line of systemd, which splits at blanks and knows variables."""
    escaped = _plain(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" \t'\"\\;") else escaped

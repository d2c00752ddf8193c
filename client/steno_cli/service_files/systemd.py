"""User units of systemd: a socket that always listens, the daemon behind it, and its helpers."""

import os
import shlex
from pathlib import Path
from typing import Final

from steno_cli.command_limits import WATCH_RESTART_S, WATCHDOG_S
from steno_cli.service_files import MARK, Setting, Task, Unit
from steno_protocol import limits, paths

_SERVICE: Final = """\
# {mark}
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
# {mark}
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

_HELPER: Final = """\
# {mark}
[Unit]
Description=steno, which {does}
Requires={name}.socket
After={name}.socket

[Service]
ExecStart={command}
{environment}Restart=always
RestartSec={pause_s:g}
UMask=0077
NoNewPrivileges=yes
Nice=5

[Install]
WantedBy=default.target
"""

_DOES: Final = {
    "watch": "follows the transcripts of other agents into {}",
    "backup": "copies the sessions of {}",
}


def units(setting: Setting, task: Task) -> list[Unit]:
    """Return the units of a task."""
    name, plain_root = setting.name, _plain(str(setting.root))
    command = " ".join(map(_quoted, task.words))
    if task.kind == "daemon":
        service = _SERVICE.format(
            mark=MARK,
            name=name,
            plain_root=plain_root,
            command=command,
            watchdog_s=WATCHDOG_S,
            stop_s=limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S,
        )
        listening = _SOCKET.format(mark=MARK, plain_root=plain_root, socket=_plain(setting.socket))
        folder = _folder()
        return [
            Unit(folder / f"{name}.service", service),
            Unit(folder / f"{name}.socket", listening),
        ]
    variables = [f"{key}={value}" for key, value in task.variables.items()]
    text = _HELPER.format(
        mark=MARK,
        name=name,
        does=_DOES[task.kind].format(plain_root),
        command=command,
        environment="".join(f"Environment={_assigned(each)}\n" for each in variables),
        pause_s=WATCH_RESTART_S,
    )
    return [Unit(_folder() / f"{name}-{task.kind}.service", text)]


def to_start(setting: Setting, units: list[Unit]) -> list[str]:
    """Return the commands that start what the units describe."""
    helpers = [each.path.name for each in units[2:]]
    return [
        shlex.join(["steno", "stop", "--root", str(setting.root)]),
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {setting.name}.socket",
        *(f"systemctl --user enable --now {each}" for each in helpers),
    ]


def to_end(setting: Setting, units: list[Unit]) -> list[str]:
    """Return the commands that end it, after the units were removed."""
    helpers = [each.path.name for each in units[2:]]
    own = [f"{setting.name}.socket", f"{setting.name}.service"]
    return [
        " ".join(["systemctl --user disable --now", *helpers, *own]),
        "systemctl --user daemon-reload",
    ]


def _folder() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME")
    if not config:
        # An empty HOME would mean the folder /.
        home = os.environ.get("HOME", os.path.expanduser("~"))  # noqa: PTH111 (as text)
        config = f"{paths.check_home(home)}/.config"
    return Path(config, "systemd", "user")


def _plain(text: str) -> str:
    """Text in a unit file, where % begins a specifier."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """A word of a command line of systemd, which splits at blanks and expands variables."""
    escaped = _plain(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" \t'\"\\;") else escaped


def _assigned(setting: str) -> str:
    """A variable with its value as systemd reads it, which expands no variables there."""
    escaped = _plain(setting).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

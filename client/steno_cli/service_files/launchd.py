"""Agents of launchd, one a task, in the folder from which macOS loads them at each login.

launchd has no socket activation without a library of its own, so the daemon starts at the login,
and clients that come earlier start one themselves.
"""

import os
import plistlib
import shlex
from pathlib import Path
from typing import Any, Final

from steno_cli.command_limits import WATCH_RESTART_S
from steno_cli.service_files import MARK, Setting, Task, Unit
from steno_protocol import limits, paths

_DOMAIN: Final = "local"
"""The beginning of the labels: there is no domain to reverse."""

_PRIVATE: Final = 0o077
"""The umask, which a property list has as a decimal number."""

_NICE: Final = 5


def units(setting: Setting, task: Task) -> list[Unit]:
    """Return the agent of a task."""
    label = f"{_DOMAIN}.{setting.name}" + ("" if task.kind == "daemon" else f"-{task.kind}")
    home = _home()
    contents: dict[str, Any] = {
        "Label": label,
        "ProgramArguments": task.words,
        "RunAtLoad": True,
        "Umask": _PRIVATE,
        # What a daemon says that cannot start; the log of a running one is in its root.
        "StandardErrorPath": f"{home}/Library/Logs/{label}.log",
    }
    if task.kind == "daemon":
        # Exit code 0 is a wanted end. launchd knows no exit code that forbids a restart, so one
        # that finds the root held by another daemon is started again after the pause.
        contents["KeepAlive"] = {"SuccessfulExit": False}
        contents["ThrottleInterval"] = int(limits.DRAIN_TIMEOUT_S)
        contents["ExitTimeOut"] = int(limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S)
    else:
        contents["KeepAlive"] = True
        contents["ThrottleInterval"] = max(1, int(WATCH_RESTART_S))
        contents["Nice"] = _NICE
    if task.variables:
        contents["EnvironmentVariables"] = dict(task.variables)
    text = plistlib.dumps(contents, sort_keys=False).decode()
    head, plist, body = text.partition("<plist")
    return [
        Unit(
            Path(home, "Library", "LaunchAgents", f"{label}.plist"),
            f"{head}<!-- {MARK} -->\n{plist}{body}",
        )
    ]


def to_start(setting: Setting, units: list[Unit]) -> list[str]:
    """Return the commands that start what the agents describe."""
    loaded = [each for each in units if each.state != "missing"]
    return [
        shlex.join(["steno", "stop", "--root", str(setting.root)]),
        # launchd reads a changed file only after the agent was removed.
        *(f"launchctl bootout {_target(each)}" for each in loaded),
        *(f"launchctl bootstrap {_user()} {shlex.quote(str(each.path))}" for each in units),
        f"launchctl print {_target(units[0])}",
    ]


def to_end(setting: Setting, units: list[Unit]) -> list[str]:
    """Return the commands that end it, after the agents' files were removed."""
    del setting
    return [f"launchctl bootout {_target(each)}" for each in reversed(units)]


def _user() -> str:
    return f"gui/{os.getuid()}"


def _target(unit: Unit) -> str:
    return f"{_user()}/{unit.path.stem}"


def _home() -> str:
    # An empty HOME would mean the folder /.
    return paths.check_home(os.environ.get("HOME", os.path.expanduser("~")))  # noqa: PTH111

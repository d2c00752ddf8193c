"""`steno service`: the systemd user units of a root."""

import hashlib
import os
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from steno.local import check_folder, make_target, own_private, read_regular
from steno_agents.places import VARIABLES
from steno_cli.arguments import Subcommands, action, actions, command
from steno_cli.command_limits import WATCH_RESTART_S, WATCHDOG_S
from steno_cli.connection import refuse_endpoint, root_of
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present.safe_text import printable
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, Exists

_MARK: Final = "# Written by `steno service install`; `steno service uninstall` removes it."
"""The first line of a unit file of steno; other files are never replaced or removed."""

_WATCH_SUFFIX: Final = "-watch.service"
"""The end of the name of the unit that follows transcripts."""

_CACHE_MARK: Final = "CACHEDIR.TAG"
"""The file in a folder that marks everything below it as a cache."""

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

_WATCH: Final = """\
{mark}
[Unit]
Description=steno, which follows the transcripts of other agents into {plain_root}
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


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "service", None,
        "Writes user units and prints the systemctl commands to run next; it does not call"
        " systemd.",
        example="steno service install",
    )  # fmt: skip
    inner = actions(parser)
    install = action(
        inner, "install", _install, "write the unit files",
        "A socket unit that always listens, and the daemon's unit, started by the first"
        " connection. With --watch also a unit that keeps `steno watch` running.",
        example="steno service install\nsteno service install --watch",
    )  # fmt: skip
    install.add_argument(
        "--watch", action="store_true", help="follow the transcripts of other agents, too"
    )
    action(
        inner, "uninstall", _uninstall, "remove the unit files", example="steno service uninstall"
    )
    action(
        inner, "show", _show, "print the unit files and their state", example="steno service show"
    )


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit file: its path and its text."""

    path: Path
    text: str

    @property
    def state(self) -> str:
        """`missing`, `installed`, `outdated`, or `foreign`: not written by steno."""
        try:
            found = read_regular(self.path).decode(errors="replace")
        except FileNotFoundError:
            return "missing"
        if not found.startswith(_MARK):
            return "foreign"
        return "installed" if found == self.text else "outdated"


def _install(options: Namespace, output: Output) -> int:
    """Write the units, and print how to start them.

    Raises:
        Exists: a file that steno did not write has the path of a unit; nothing was written.
        BadRequest: steno runs from a cache.
        Unauthorized: the daemon would refuse the root, which another user could replace.
    """
    _refuse_cache(Path(sys.prefix))
    root, name, units = _units(options)
    # A unit for a root that the daemon would not serve would only fail.
    check_folder(root)
    units = [*units, _watch_unit(options, root, name)] if options.watch else units
    for unit in units:
        if unit.state == "foreign":
            raise Exists(
                f"{unit.path} was not written by steno: move it away, or remove it, and try again"
            )
    for unit in units:
        own_private(unit.path.parent)
        aside = unit.path.with_name(f"{unit.path.name}.{os.getpid()}")
        # With an open umask, another user could write into it what the daemon's user then runs.
        with open(aside, "w", encoding="utf-8", opener=_readable) as file:
            file.write(unit.text)
        aside.replace(unit.path)
    following = [
        f"steno stop --root {root}",
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {name}.socket",
        *([f"systemctl --user enable --now {name}{_WATCH_SUFFIX}"] if options.watch else []),
    ]
    _print_result(units, output, following)
    return Exit.DONE


def _readable(path: str, flags: int) -> int:
    """Open a new file that others may read, whatever the umask."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _refuse_cache(environment: Path) -> None:
    """Refuse an environment of `uvx` or `pipx run`: a cleaned cache would leave a unit that fails.

    Raises:
        BadRequest: a folder above the environment is marked as a cache.
    """
    # uv also marks each environment itself, wherever it lies.
    for folder in environment.parents:
        if (folder / _CACHE_MARK).is_file():
            raise BadRequest(
                f"this installation lies in the cache {folder}, which may be cleaned at any time:"
                " install steno with `uv tool install` or `pipx install`, and repeat the command"
            )


def _uninstall(options: Namespace, output: Output) -> int:
    """Remove the units that `install` wrote."""
    _, name, units = _units_there(options)
    removed = [unit for unit in units if unit.state in {"installed", "outdated"}]
    for unit in removed:
        unit.path.unlink()
    names = [each.path.name for each in units[2:]]
    following = [
        " ".join(["systemctl --user disable --now", *names, f"{name}.socket", f"{name}.service"]),
        "systemctl --user daemon-reload",
    ]
    _print_result(units, output, following if removed else [])
    return Exit.DONE


def _show(options: Namespace, output: Output) -> int:
    """Print the units, and whether they are installed."""
    _, _, units = _units_there(options)
    if output.as_json:
        output.document(_document(units, []))
        return Exit.DONE
    for unit in units:
        output.write(output.style(f"# {printable(str(unit.path))}: {unit.state}", "bold"))
        output.raw(unit.text.removeprefix(f"{_MARK}\n").encode())
        output.write()
    return Exit.DONE


def _print_result(units: list[Unit], output: Output, following: list[str]) -> None:
    if output.as_json:
        output.document(_document(units, following))
        return
    for unit in units:
        output.write(f"{unit.state.ljust(9)}  {printable(str(unit.path))}")
    if following:
        output.say("now run:")
        for line in following:
            output.say(f"  {line}")


def _document(units: list[Unit], following: list[str]) -> dict[str, Any]:
    files = [{"path": str(unit.path), "state": unit.state, "text": unit.text} for unit in units]
    return {"files": files, "next": following}


def _units(options: Namespace) -> tuple[Path, str, list[Unit]]:
    """The root, the name of its units, and the units.

    Raises:
        BadRequest: the user's home folder is unknown.
    """
    refuse_endpoint(options)
    root = root_of(options)
    given = None if options.socket is None else str(Path(options.socket).absolute())
    socket = paths.socket_path(str(root), given, os.environ, os.getuid())
    name = _name_of(root)
    words = [
        sys.executable, "-P", "-m", "stenod", "--foreground", "--root", str(root),
        "--socket", socket, "--log", str(root / paths.LOG),
    ]  # fmt: skip
    service = _SERVICE.format(
        mark=_MARK,
        name=name,
        plain_root=_plain(str(root)),
        command=" ".join(map(_quoted, words)),
        watchdog_s=WATCHDOG_S,
        stop_s=limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S,
    )
    listening = _SOCKET.format(mark=_MARK, plain_root=_plain(str(root)), socket=_plain(socket))
    folder = _units_folder()
    units = [Unit(folder / f"{name}.service", service), Unit(folder / f"{name}.socket", listening)]
    return root, name, units


def _units_there(options: Namespace) -> tuple[Path, str, list[Unit]]:
    """As `_units`, and the unit of the watch if it was installed."""
    root, name, units = _units(options)
    watch = _watch_unit(options, root, name)
    return root, name, units if watch.state == "missing" else [*units, watch]


def _watch_unit(options: Namespace, root: Path, name: str) -> Unit:
    given = [] if options.socket is None else ["--socket", str(Path(options.socket).absolute())]
    words = [sys.executable, "-P", "-m", "steno_cli", "--root", str(root), *given, "watch"]
    # A user unit has none of the variables of this shell.
    moved = [f"{each}={os.environ[each]}" for each in VARIABLES if os.environ.get(each)]
    text = _WATCH.format(
        mark=_MARK,
        name=name,
        plain_root=_plain(str(root)),
        command=" ".join(map(_quoted, words)),
        environment="".join(f"Environment={_assigned(each)}\n" for each in moved),
        pause_s=WATCH_RESTART_S,
    )
    return Unit(_units_folder() / f"{name}{_WATCH_SUFFIX}", text)


def _units_folder() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME")
    if not config:
        # An empty HOME would mean the folder /.
        home = os.environ.get("HOME", os.path.expanduser("~"))  # noqa: PTH111 (as text)
        config = f"{paths.check_home(home)}/.config"
    return Path(config, "systemd", "user")


def _name_of(root: Path) -> str:
    """The name of the units: `steno`, and for other roots than the default with a digest."""
    plain = paths.root_folder(
        None, {key: value for key, value in os.environ.items() if key != "STENO_HOME"},
        os.path.expanduser("~"),  # noqa: PTH111 (as text, also if the home is unknown)
    )  # fmt: skip
    if str(root) == make_target(plain, None, None, spawn=False).resolved().root:
        return "steno"
    return f"steno-{hashlib.sha256(str(root).encode(errors='surrogateescape')).hexdigest()[:8]}"


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

"""`steno service`: the files with which systemd or launchd runs the daemon of a root."""

import hashlib
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

from steno.local import check_folder, make_target, own_private
from steno_agents.places import VARIABLES
from steno_backup.limits import FOLLOW_S_MIN
from steno_cli.arguments import action, argument, command_with_actions, flag, number_from, path_text
from steno_cli.command_limits import BACKUP_EVERY_S
from steno_cli.connection import refuse_endpoint, root_of
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.render.printed_commands import own_command
from steno_cli.service_files import MARK, Manager, Setting, Task, Unit, launchd, systemd
from steno_present.safe_text import printable
from steno_protocol import paths
from steno_protocol.errors import BadRequest, Exists

_PLATFORM: Final[str] = sys.platform

_CACHE_MARK: Final = "CACHEDIR.TAG"
"""The file in a folder that marks everything below it as a cache."""


command_with_actions(
    "service",
    "Writes user units of systemd, on macOS agents of launchd, and prints the commands to run"
    " next; it calls neither.",
    example="steno service install",
)


@action(
    "service install", "write the files",
    "With systemd a socket unit that always listens, and the daemon's unit, started by the"
    " first connection; with launchd an agent that starts at the login. --watch and --backup"
    " add one each, which keeps `steno watch` or `steno backup --follow` running.",
    flag("--watch", help="follow the transcripts of other agents, too"),
    argument(
        "--backup", metavar="FOLDER", type=path_text, help="keep a copy of the root in FOLDER, too"
    ),
    argument(
        "--every", metavar="SECONDS", type=number_from(int(FOLLOW_S_MIN)), default=BACKUP_EVERY_S,
        help=f"pause between two rounds of the copy (default {BACKUP_EVERY_S})",
    ),
    example="steno service install\nsteno service install --watch --backup /mnt/disk/copy",
)  # fmt: skip
def install(options: Namespace, output: Output) -> int:
    """Write the files, and print how to start them.

    Raises:
        Exists: a file that steno did not write has the path of one; nothing was written.
        BadRequest: steno runs from a cache.
        Unauthorized: the daemon would refuse the root, which another user could replace.
    """
    _refuse_cache(Path(sys.prefix))
    setting, manager = _setting(options), _manager()
    # A file for a root that the daemon would not serve would only fail.
    check_folder(setting.root)
    units = manager.units(setting, _daemon(setting))
    if options.watch:
        units += manager.units(setting, _watch(options, setting))
    if options.backup is not None:
        folder = str(Path(options.backup).absolute())
        units += manager.units(setting, _backup(options, setting, folder, options.every))
    for unit in units:
        if unit.state == "foreign":
            raise Exists(
                f"{unit.path} was not written by steno: move it away, or remove it, and try again"
            )
    following = manager.to_start(setting, units)
    for unit in units:
        _write(unit)
    _print_result(units, output, following)
    return Exit.DONE


def _write(unit: Unit) -> None:
    own_private(unit.path.parent)
    aside = unit.path.with_name(f"{unit.path.name}.{os.getpid()}")
    # With an open umask, another user could write into it what the daemon's user then runs.
    with open(aside, "w", encoding="utf-8", opener=_readable) as file:
        file.write(unit.text)
    aside.replace(unit.path)


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


@action("service uninstall", "remove the files", "", example="steno service uninstall")
def uninstall(options: Namespace, output: Output) -> int:
    """Remove the files that `install` wrote."""
    setting = _setting(options)
    units = _units_there(options, setting)
    removed = [unit for unit in units if unit.state in {"installed", "outdated"}]
    for unit in removed:
        unit.path.unlink()
    _print_result(units, output, _manager().to_end(setting, units) if removed else [])
    return Exit.DONE


@action("service show", "print the files and their state", "", example="steno service show")
def show(options: Namespace, output: Output) -> int:
    """Print the files, and whether they are installed."""
    units = _units_there(options, _setting(options))
    if output.as_json:
        output.document(_document(units, []))
        return Exit.DONE
    for unit in units:
        output.write(output.style(f"# {printable(str(unit.path))}: {unit.state}", "bold"))
        output.raw(unit.text.removeprefix(f"# {MARK}\n").encode())
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


def _manager() -> Manager:
    return launchd if _PLATFORM == "darwin" else systemd


def _setting(options: Namespace) -> Setting:
    """The root, its socket, and the name of its files.

    Raises:
        BadRequest: the user's home folder is unknown.
    """
    refuse_endpoint(options)
    root = root_of(options)
    given = None if options.socket is None else str(Path(options.socket).absolute())
    socket = paths.socket_path(str(root), given, os.environ, os.getuid())
    return Setting(root, socket, _name_of(root))


def _daemon(setting: Setting) -> Task:
    words = [
        sys.executable, "-P", "-m", "stenod", "--foreground", "--root", str(setting.root),
        "--socket", setting.socket, "--log", str(setting.root / paths.LOG),
    ]  # fmt: skip
    return Task("daemon", words)


def _watch(options: Namespace, setting: Setting) -> Task:
    # A service has none of the variables of this shell.
    moved = {each: os.environ[each] for each in VARIABLES if os.environ.get(each)}
    return Task("watch", [*_command(options, setting), "watch"], moved)


def _backup(options: Namespace, setting: Setting, folder: str, every: int) -> Task:
    words = [*_command(options, setting), "backup", folder, f"--follow={every}"]
    return Task("backup", words)


def _command(options: Namespace, setting: Setting) -> list[str]:
    given = [] if options.socket is None else ["--socket", setting.socket]
    return own_command(setting.root, *given)


def _units_there(options: Namespace, setting: Setting) -> list[Unit]:
    """The files of the daemon, and those of its helpers that were installed."""
    manager = _manager()
    units = manager.units(setting, _daemon(setting))
    helpers = manager.units(setting, _watch(options, setting))
    # Only the file says where the copy is, so what it has is what it should have.
    helpers += [
        Unit(each.path, each.found or "")
        for each in manager.units(setting, _backup(options, setting, "", BACKUP_EVERY_S))
    ]
    return [*units, *(each for each in helpers if each.state != "missing")]


def _name_of(root: Path) -> str:
    """The name of the files: `steno`, and for other roots than the default with a digest."""
    plain = paths.root_folder(
        None, {key: value for key, value in os.environ.items() if key != "STENO_HOME"},
        os.path.expanduser("~"),  # noqa: PTH111 (as text, also if the home is unknown)
    )  # fmt: skip
    if str(root) == make_target(plain, None, None, spawn=False).resolved().root:
        return "steno"
    return f"steno-{hashlib.sha256(str(root).encode(errors='surrogateescape')).hexdigest()[:8]}"

"""The subcommand `service`: writes and removes the systemd user units of a root.

systemd itself is not needed and not called: what to run next is said.
"""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from steno._connect.target import make_target
from steno.cli.connection import refuse_endpoint, root_of
from steno.cli.exits import Exit
from steno.cli.render.output import Output, printable
from steno.cli.systemd_units import MARK, Unit, name_of, units_of
from steno_protocol import paths
from steno_protocol.errors import Exists


def install(options: Namespace, output: Output) -> int:
    """Write the units, and say how to start them.

    Raises:
        Exists: a file that steno did not write is in the way; nothing was written.
    """
    root, units = _units(options)
    for unit in units:
        if unit.state == "foreign":
            raise Exists(
                f"{unit.path} was not written by steno: move it away, or remove it, and try again"
            )
    for unit in units:
        unit.path.parent.mkdir(parents=True, exist_ok=True)
        aside = unit.path.with_name(f"{unit.path.name}.{os.getpid()}")
        aside.write_text(unit.text, encoding="utf-8")
        aside.replace(unit.path)
    name = name_of(root, _default_root())
    _print_result(units, output, [
        f"steno stop --root {root}",
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {name}.socket",
    ])  # fmt: skip
    return Exit.DONE


def uninstall(options: Namespace, output: Output) -> int:
    """Remove the units that `install` wrote."""
    root, units = _units(options)
    name = name_of(root, _default_root())
    removed = [unit for unit in units if unit.state in {"installed", "outdated"}]
    for unit in removed:
        unit.path.unlink()
    following = [
        f"systemctl --user disable --now {name}.socket {name}.service",
        "systemctl --user daemon-reload",
    ]
    _print_result(units, output, following if removed else [])
    return Exit.DONE


def show(options: Namespace, output: Output) -> int:
    """Print the units, and whether they are installed."""
    _, units = _units(options)
    if output.as_json:
        output.document(_document(units, []))
        return Exit.DONE
    for unit in units:
        output.write(output.style(f"# {printable(str(unit.path))}: {unit.state}", "bold"))
        output.raw(unit.text.removeprefix(f"{MARK}\n").encode())
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
        for command in following:
            output.say(f"  {command}")


def _document(units: list[Unit], following: list[str]) -> dict[str, Any]:
    files = [{"path": str(unit.path), "state": unit.state, "text": unit.text} for unit in units]
    return {"files": files, "next": following}


def _units(options: Namespace) -> tuple[Path, list[Unit]]:
    refuse_endpoint(options)
    root = root_of(options)
    given = None if options.socket is None else str(Path(options.socket).absolute())
    socket = paths.socket_path(str(root), given, os.environ, os.getuid())
    return root, units_of(root, socket, _default_root(), os.environ)


def _default_root() -> Path:
    """The root without any setting."""
    plain = paths.root_folder(
        None, {key: value for key, value in os.environ.items() if key != "STENO_HOME"},
        os.path.expanduser("~"),  # noqa: PTH111 (as text, also where it is not known)
    )  # fmt: skip
    resolved = make_target(plain, None, None, spawn=False).resolved().root
    assert resolved is not None
    return Path(resolved)

"""Frameworks and programs that are imported when an adapter first needs them.

An adapter can be imported without its framework. What needs a missing package raises
`ModuleNotFoundError`, whose message has the command that installs it. A module that the installed
release of a package lacks is Python's own error: no command would help.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from steno_protocol.installation import extra_command, install_command

KIMI_CLI: Final = "kimi-cli==1.52.0"
"""The release in whose place the adapters stand; it is the last one."""

KOSONG: Final = "kosong==0.56.0"
"""The same of kosong."""


def framework(module: str, extra: str) -> Any:
    """Import a module of a framework.

    Args:
        module: its name.
        extra: the extra of stenod that installs it.

    Raises:
        ModuleNotFoundError: it is not installed; the message has the command.
    """
    return _imported(module, extra_command, extra)


def program(module: str, package: str) -> Any:
    """Import a module of a program that no extra installs, because its releases are final.

    Args:
        module: its name.
        package: the package that has it, with its release.

    Raises:
        ModuleNotFoundError: it is not installed; the message has the command.
    """
    return _imported(module, install_command, package)


def base_class(module: str, name: str) -> type:
    """Return a class of a framework as the base of an adapter's; `object` without the framework.

    So the adapter can be imported; it calls `framework` when an object of its class is made.
    """
    try:
        found: type = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if not is_package_missing(error):
            raise
        return object
    return found


def is_package_missing(error: ModuleNotFoundError) -> bool:
    """Whether a package is not installed; False if only a module of an installed one is missing."""
    parent = sys.modules.get((error.name or "").rpartition(".")[0])
    # A folder without `__init__.py`, such as `google`, is shared by packages.
    return getattr(parent, "__file__", None) is None


def _imported(module: str, command: Callable[[str], str], what: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not is_package_missing(error):
            raise
        raise ModuleNotFoundError(
            f"this needs the package of the module {error.name!r}: run `{command(what)}`",
            name=error.name,
        ) from error

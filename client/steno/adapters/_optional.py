"""Frameworks that are imported when an adapter first needs them."""

from importlib import import_module
from typing import Any

from steno_protocol.installation import extra_command


def framework(module: str, extra: str) -> Any:
    """Import a module of a framework.

    Args:
        module: its name.
        extra: the extra of stenod that installs it.

    Raises:
        ModuleNotFoundError: it is not installed; the message has the command.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this needs the package of the module {error.name!r}: run `{extra_command(extra)}`",
            name=error.name,
        ) from error

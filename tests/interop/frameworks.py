"""The installed frameworks whose interfaces steno's adapters implement."""

from importlib import import_module
from typing import Any

import pytest

from steno.adapters._optional import is_package_missing


def framework(name: str) -> Any:
    """Import a module of a framework; skip the test file where the framework is not installed.

    A module that a newer release lacks fails the file.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not is_package_missing(error):
            raise
        pytest.skip(
            f"{error.name} is not installed: .ci/run has the commands that install the extras"
            " `frameworks` and `frameworks-apart`, each in an environment of its own",
            allow_module_level=True,
        )

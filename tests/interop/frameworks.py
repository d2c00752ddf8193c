"""The installed frameworks whose interfaces steno's adapters implement."""

from importlib import import_module
from typing import Any

import pytest


def framework(name: str) -> Any:
    """Import a module of a framework; skip the test file where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(
            f"{error.name} is not installed: .ci/run has the commands that install the extras"
            " `frameworks` and `frameworks-apart`, each in an environment of its own",
            allow_module_level=True,
        )

"""The installed programs whose files and classes steno replaces."""

import sys
import warnings
from importlib import import_module
from types import ModuleType

import pytest

_OLDEST = (3, 12)


def peer(name: str) -> ModuleType:
    """Import a module of kimi-cli or kosong; skip the test file where it is not installed."""
    if sys.version_info < _OLDEST:
        pytest.skip(
            f"kimi-cli and kosong need Python >= 3.12, this is {sys.version.split()[0]}",
            allow_module_level=True,
        )
    try:
        # Their import warnings are no concern of these tests.
        with warnings.catch_warnings(action="ignore"):
            return import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(
            f"{error.name} is not installed: pip install -c tests/interop/constraints.txt"
            " '.[test,interop]'",
            allow_module_level=True,
        )

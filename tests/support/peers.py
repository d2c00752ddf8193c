"""The programs whose files and classes steno stands in for, where they are installed."""

import sys
import warnings
from importlib import import_module
from types import ModuleType

import pytest

_OLDEST = (3, 12)


def peer(name: str) -> ModuleType:
    """A module of kimi-cli or kosong; the test file that asks is skipped where there is none."""
    if sys.version_info < _OLDEST:
        pytest.skip(
            f"kimi-cli and kosong need Python >= 3.12, this is {sys.version.split()[0]}",
            allow_module_level=True,
        )
    try:
        # What they warn of when they are imported is theirs to mend.
        with warnings.catch_warnings(action="ignore"):
            return import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(
            f"{error.name} is not installed: pip install -c tests/interop/constraints.txt"
            " '.[test,interop]'",
            allow_module_level=True,
        )

"""Reusable tests of what agents store; with pytest: `-p steno.testing`.

storage_contract   the contract of a storage of an agent's messages, as a class of tests
stores             the conformance suite of session stores: real processes, kills, torn files
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from steno.testing.storage_contract import (
        LinearStorage,
        LinearStorageContract,
        RestoredStorage,
    )

__all__ = ["LinearStorage", "LinearStorageContract", "RestoredStorage"]

pytest_plugins = ("steno.testing.stores.plugin",)
"""What `-p steno.testing` brings; nothing of it is imported without pytest."""

_HOMES: Final = dict.fromkeys(__all__, "steno.testing.storage_contract")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'steno.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

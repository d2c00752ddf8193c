"""Tests for users: fixtures of a private daemon, and the contract of a storage.

The fixtures need pytest, and are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from steno.testing.storage_contract import LinearStorage, LinearStorageContract, RestoredStorage

if TYPE_CHECKING:
    from steno.testing.fixtures import (
        async_steno_client,
        async_steno_session,
        steno_client,
        steno_root,
        steno_session,
    )
    from steno.testing.temporary_root import private_root

__all__ = [
    "LinearStorage",
    "LinearStorageContract",
    "RestoredStorage",
    "async_steno_client",
    "async_steno_session",
    "private_root",
    "steno_client",
    "steno_root",
    "steno_session",
]

_LATER: Final = {
    "async_steno_client": "steno.testing.fixtures",
    "async_steno_session": "steno.testing.fixtures",
    "private_root": "steno.testing.temporary_root",
    "steno_client": "steno.testing.fixtures",
    "steno_root": "steno.testing.fixtures",
    "steno_session": "steno.testing.fixtures",
}
"""The modules of the names that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'steno.testing' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

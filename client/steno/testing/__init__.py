"""Tests for users: fixtures of a private daemon, and suites for stores; with pytest.

fixtures           a session on a private daemon, for tests of one's own program
storage_contract   the contract of a storage of an agent's messages, as a class of tests
stores             the conformance suite of session stores: real processes, kills, torn files

Each name below is imported when it is first used. `-p steno.testing` brings the suite of stores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from steno.testing.fixtures import (
        async_steno_client,
        async_steno_session,
        steno_client,
        steno_root,
        steno_session,
    )
    from steno.testing.storage_contract import (
        LinearStorage,
        LinearStorageContract,
        RestoredStorage,
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

pytest_plugins: tuple[str, ...] = ("steno.testing.stores.plugin",)
"""What `-p steno.testing` brings; nothing of it is imported without pytest."""

_HOMES: Final = {
    "LinearStorage": "steno.testing.storage_contract",
    "LinearStorageContract": "steno.testing.storage_contract",
    "RestoredStorage": "steno.testing.storage_contract",
    "async_steno_client": "steno.testing.fixtures",
    "async_steno_session": "steno.testing.fixtures",
    "private_root": "steno.testing.temporary_root",
    "steno_client": "steno.testing.fixtures",
    "steno_root": "steno.testing.fixtures",
    "steno_session": "steno.testing.fixtures",
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'steno.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

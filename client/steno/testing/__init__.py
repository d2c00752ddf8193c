"""Tests for users: contracts of a storage of messages."""

from steno.testing.storage_contract import LinearStorage, LinearStorageContract, RestoredStorage

__all__ = ["LinearStorage", "LinearStorageContract", "RestoredStorage"]

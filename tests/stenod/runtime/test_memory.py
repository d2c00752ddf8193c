"""Free memory that the daemon returns to the system."""

import ctypes

import pytest

from steno_protocol import limits
from stenod.runtime import memory
from support.resident import resident_bytes

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc"
)


def test_free_memory_between_used_memory_is_returned_to_the_system() -> None:
    before = resident_bytes()
    large: list[bytes] = []
    small: list[bytes] = []
    for _ in range(1000):
        large.append(b"x" * 100 * limits.KIB)
        # Too large for Python's own heap: it stays between the large ones.
        small.append(b"x" * limits.KIB)
    large.clear()
    memory.release_free()
    assert resident_bytes() - before < 2 * limits.FREED_BYTES_MAX
    assert len(small) == 1000

"""Free memory, returned by the housekeeping of a daemon process."""

import ctypes
from pathlib import Path

import pytest

from steno import connect_sync
from steno_protocol import limits
from support.crowd import wait_until
from support.foreground import daemon_of_tests
from support.resident import resident_bytes


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc"
)
def test_housekeeping_returns_free_memory(root: Path) -> None:
    record = {"role": "user", "content": "x" * (15 * limits.MIB)}
    with daemon_of_tests(root, "e2e.untrimmed_daemon") as daemon:
        with connect_sync(root, spawn=False) as client:
            session = client.open("demo", follow=False)
            before = resident_bytes(daemon.pid)
            for _ in range(3):
                session.append_message(record)
        # The appends needed several times as much, and only the housekeeping returns it.
        wait_until(lambda: resident_bytes(daemon.pid) - before < 2 * limits.FREED_BYTES_MAX)

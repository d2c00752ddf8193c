"""Compressed past generations and streams, however small."""

import math
from pathlib import Path
from unittest.mock import patch

from stenod.recovery import cold_streams
from stenod.store import compressing
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing
from stenod.store.names import past_generations
from stenod.store.posix import PosixDisk


def compress_past(folder: Path) -> list[str]:
    """Compress all past generations of a session but the newest, and return all names."""
    disk = PosixDisk()
    with (
        patch.object(compressing, "BLOCK_BYTES", 1),
        closing(disk, disk.open_root(str(folder))) as at,
    ):
        for generation in past_generations(disk, at)[:-1]:
            if disk.stat_name(at, f"context_{generation + 1}.jsonl") is not None:
                assert compressing.compress_generation(disk, at, generation) > 0
    return sorted(path.name for path in folder.glob("context_*"))


def compress_streams(folder: Path) -> list[str]:
    """Compress all streams of a session that no daemon has open, and return their names."""
    disk = PosixDisk()
    with (
        patch.object(compressing, "BLOCK_BYTES", 1),
        patch.object(cold_streams, "BLOCK_BYTES", 1),
        closing(disk, disk.open_root(str(folder))) as at,
    ):
        assert disk.lock(at), "a daemon has the session open"
        for name, _ in cold_streams.compressible_streams(disk, at, math.inf, FailedSyncs()):
            cold_streams.compress_stream(disk, at, name)
    return sorted(path.name for path in folder.glob("stream-*.jsonl*"))

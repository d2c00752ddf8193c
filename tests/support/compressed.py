"""Compressed past generations, however small."""

from pathlib import Path
from unittest.mock import patch

from stenod.store import compressing
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

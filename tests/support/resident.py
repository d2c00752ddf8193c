"""The memory of a process."""

import resource
from pathlib import Path


def resident_bytes(pid: int | str = "self") -> int:
    """The resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()

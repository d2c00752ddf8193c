"""How much memory a process takes."""

import resource
from pathlib import Path


def resident_bytes(pid: int | str = "self") -> int:
    """What of a process is in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()

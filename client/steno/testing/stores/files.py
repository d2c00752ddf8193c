"""The files of a store: copies, restored copies, and files that grow at their end."""

from collections.abc import Mapping, Sequence
from pathlib import Path

Snapshot = Mapping[Path, bytes]
"""The contents of the regular files of a folder, by path."""


def snapshot(folder: Path) -> dict[Path, bytes]:
    """Read every regular file below a folder; files that vanish meanwhile are left out."""
    found: dict[Path, bytes] = {}
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_file() and not path.is_symlink():
                found[path] = path.read_bytes()
        except OSError:
            continue
    return found


def restore(folder: Path, contents: Snapshot) -> None:
    """Give a folder the files of a snapshot and no others; no process may use it meanwhile."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
    for path, data in contents.items():
        path.write_bytes(data)
        path.chmod(0o600)


def growing(states: Sequence[Snapshot]) -> list[Path]:
    """The files that kept their bytes and grew from each state to the next."""
    first, *later = states
    return [
        path
        for path in first
        if all(path in state for state in later)
        and all(
            len(state[path]) > len(before[path]) and state[path].startswith(before[path])
            for before, state in zip(states, later, strict=False)
        )
    ]


def largest(folder: Path) -> int:
    """The size of the largest file of a folder in bytes, 0 without one."""
    return max((len(data) for data in snapshot(folder).values()), default=0)

"""The checkout: its path and its own files."""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("protocol", "daemon", "client")
SOURCES = sorted(file for folder in SOURCE_FOLDERS for file in (PROJECT / folder).rglob("*.py"))
"""Every module of the three packages."""

_LEFT_BEHIND = {"__pycache__", "dist", "build", "node_modules"}


def project_files() -> list[Path]:
    """Every file of the project according to git; without git, every file in the folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0 or not listed.stdout:
        return sorted(_walk(PROJECT))
    names = listed.stdout.decode().split("\0")
    return sorted(file for name in names if name and (file := PROJECT / name).is_file())


def python_files() -> list[Path]:
    """Every Python file of the project, tests included."""
    return [file for file in project_files() if file.suffix == ".py"]


def sources_with(words: Iterable[str]) -> list[Path]:
    """The modules that contain one of these words: a search takes less than a parse."""
    return [file for file in SOURCES if any(word in file.read_text() for word in words)]


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_dir():
            hidden = entry.name.startswith(".") and entry.name != ".ci"
            if not hidden and entry.name not in _LEFT_BEHIND:
                yield from _walk(entry)
        elif entry.is_file():
            yield entry

"""The contents of a session's file, read without steno's code."""

import json
from collections import Counter
from pathlib import Path
from typing import Any


def records_in(root: Path, session: str) -> list[dict[str, Any]]:
    """The records of a session's present generation; every line has to be JSON."""
    path = root / "sessions" / session / "context.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def contents_in(root: Path, session: str) -> Counter[str]:
    """The number of lines with each content in a session's file."""
    return Counter(record["content"] for record in records_in(root, session))


def lines(root: Path, session: str, name: str = "context.jsonl") -> list[bytes]:
    """The lines of a file of a session; none if it is missing."""
    file = root / "sessions" / session / name
    return file.read_bytes().splitlines(keepends=True) if file.exists() else []


def keys_in(file: Path) -> set[str]:
    """The keys of a file's records."""
    return {json.loads(line)["_id"] for line in file.read_bytes().splitlines()}


def trash_of(root: Path) -> list[Path]:
    """The folders in the trash of a root."""
    return sorted((root / "sessions" / ".trash").iterdir())

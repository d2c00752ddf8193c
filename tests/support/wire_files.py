"""Wire files, read without steno's code."""

import json
from pathlib import Path
from typing import Any


def wire_file(root: Path, session: str = "demo") -> Path:
    """The path of a session's wire file."""
    return root / "sessions" / session / "wire.jsonl"


def wire_documents(root: Path, session: str = "demo") -> list[dict[str, Any]]:
    """Every line of a session's wire file; each has to be whole and JSON."""
    data = wire_file(root, session).read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def headers_in(documents: list[dict[str, Any]]) -> list[int]:
    """Numbers of the lines that are headers."""
    return [number for number, each in enumerate(documents) if each.get("type") == "metadata"]


def values_in(documents: list[dict[str, Any]], name: str = "n") -> list[Any]:
    """One value of each event's payload, in the order of the file."""
    return [each["message"]["payload"].get(name) for each in documents if "message" in each]

"""Two hosts of one cluster, over a journal in memory."""

from pathlib import Path

import pytest

from support.memory_journal import MemoryStream
from support.replicated import Host


@pytest.fixture
def stream() -> MemoryStream:
    return MemoryStream()


@pytest.fixture
def one(stream: MemoryStream, tmp_path: Path) -> Host:
    return Host(stream, "one", str(tmp_path / "one" / "sessions"))


@pytest.fixture
def two(stream: MemoryStream, tmp_path: Path) -> Host:
    return Host(stream, "two", str(tmp_path / "two" / "sessions"))

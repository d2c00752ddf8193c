"""The cluster of these tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_cluster import ScriptedCluster, scripted_cluster


@pytest.fixture
def cluster(root: Path) -> Iterator[ScriptedCluster]:
    """Three scripted daemons that share one session."""
    with scripted_cluster(root) as cluster:
        yield cluster

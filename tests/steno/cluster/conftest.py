"""The cluster of these tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from steno_protocol import limits
from support.scripted_cluster import WAIT_S, ScriptedCluster, scripted_cluster


@pytest.fixture
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that send nothing twice, however long the machine pauses: requests are counted."""
    for name in ("RESEND_S", "OWNER_SILENCE_S", "OWNER_CONNECT_S"):
        monkeypatch.setattr(limits, name, WAIT_S)


@pytest.fixture
def cluster(root: Path) -> Iterator[ScriptedCluster]:
    """Three scripted daemons that share one session."""
    with scripted_cluster(root) as cluster:
        yield cluster

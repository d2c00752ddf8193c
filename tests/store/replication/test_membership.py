"""The membership of a daemon, with a journal in memory."""

from pathlib import Path

from stenod.replication.facts import ClusterFacts
from stenod.replication.membership import Membership
from stenod.store.posix import PosixDisk
from support.memory_journal import MemoryJournal, MemoryStream


class LateEngine(MemoryJournal):
    """An engine that reaches its servers some time after it was made."""

    def __init__(self, stream: MemoryStream, host: str) -> None:
        super().__init__(stream, host)
        self._servers, self._name = stream, host
        stream.partition(host)

    def wait_ready(self, wait_s: float) -> None:
        """Reach the servers."""
        del wait_s
        self._servers.heal(self._name)

    def state(self) -> ClusterFacts:
        """Nothing is known of the servers."""
        return ClusterFacts()


def member(stream: MemoryStream, folder: Path, name: str) -> Membership:
    """A daemon that has checked its cluster, and serves."""
    root = folder / name
    root.mkdir()
    made = Membership(
        "team", LateEngine(stream, name), root, PosixDisk(), f"ipc://{root}", 2.5,
        lambda *_, **__: None,
    )  # fmt: skip
    made.check_promises(is_lazy_allowed=True)
    return made


def test_a_new_daemon_knows_the_living_ones_before_it_serves(tmp_path: Path) -> None:
    stream = MemoryStream()
    member(stream, tmp_path, "one")
    two = member(stream, tmp_path, "two")
    assert {host.endpoint for host in two.report("", None, 0).hosts if host.alive} == {
        f"ipc://{tmp_path}/one",
        f"ipc://{tmp_path}/two",
    }

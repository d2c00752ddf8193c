"""Wire files through the death of the daemon."""

from pathlib import Path

from steno import connect_sync
from support.foreground import ForegroundDaemon
from support.wire_files import headers_in, values_in, wire_documents


def test_written_events_survive_a_killed_daemon_once_behind_one_header(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        acks = [session.append_wire("A", {"n": number}) for number in range(20)]
        assert {ack.durability for ack in acks} == {"written"}
        daemon.kill()
        daemon.start()
        again = session.append_wire("A", {"n": 19}, key=acks[-1].key)
        assert (again.duplicate, again.first) == (True, acks[-1].first)
        assert [each.payload["n"] for each in session.wire_records()] == list(range(20))
        session.append_wire("A", {"n": 20}, durability="synced")
        documents = wire_documents(root)
        assert headers_in(documents) == [0]
        assert values_in(documents) == list(range(21))

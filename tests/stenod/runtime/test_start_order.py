"""The order of a daemon's start: its note first, then its replies."""

from pathlib import Path

import pytest

from stenod.net.transport import Transport
from stenod.store.lock import RootLock
from support.daemon_in_thread import DaemonInThread


def test_no_client_is_answered_before_the_lock_has_a_note(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()
    write_note, serve = RootLock.write_note, Transport.serve

    def written(lock: RootLock, note: bytes) -> None:
        write_note(lock, note)
        steps.append("note")

    async def served(transport: Transport, *arguments: object) -> None:
        steps.append("serve")
        await serve(transport, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RootLock, "write_note", written)
    monkeypatch.setattr(Transport, "serve", served)
    with DaemonInThread(root) as daemon:
        daemon.call(lambda _: None)
    # The last note is the empty one of the end.
    assert steps == ["note", "serve", "note"]

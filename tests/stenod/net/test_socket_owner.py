"""The user that the local socket serves."""

import os
from contextlib import closing
from pathlib import Path

import anyio
import pytest
import zmq
from anyio import to_thread
from zmq.utils.monitor import recv_monitor_message

from steno_protocol import paths
from stenod.net.transport import Transport


def has_shaken_hands(path: Path) -> bool:
    """Connect to a socket; True when it accepts the handshake, False when it hangs up."""
    ends = (
        zmq.EVENT_HANDSHAKE_SUCCEEDED
        | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        | zmq.EVENT_DISCONNECTED
    )
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        with peer.get_monitor_socket(ends) as events:
            peer.connect(f"ipc://{path}")
            assert events.poll(60_000)
            event = recv_monitor_message(events)["event"]
            peer.disable_monitor()
    return event == zmq.EVENT_HANDSHAKE_SUCCEEDED


@pytest.mark.parametrize("is_own", [True, False])
def test_open_socket_serves_its_own_user_and_hangs_up_on_others(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    async def connect() -> bool:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                transport.serve, lambda *_: 1, lambda *_: (), lambda: None, lambda _: False
            )
            found = await to_thread.run_sync(has_shaken_hands, root / "stenod.sock")
            tasks.cancel_scope.cancel()
        return found

    if not is_own:
        # For a daemon of another user, this process is another user.
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        monkeypatch.setattr(paths, "check_socket_folder", lambda *_, **__: None)
    transport = Transport(lambda _: True)
    with closing(transport):
        transport.bind_ipc(root / "stenod.sock")
        assert anyio.run(connect) == is_own

"""The first messages between a client and a scripted daemon."""

import os
import threading
from pathlib import Path

import zmq

from steno import connect_sync
from steno_protocol import PROTOCOL_VERSION
from steno_protocol.commands import Hello
from steno_protocol.messages import encode_replies
from steno_protocol.replies import Welcome
from support.framing import answer_frames, only_request


def welcome() -> Welcome:
    return Welcome(
        version="0", protocol=PROTOCOL_VERSION, pid=os.getpid(), root="", started_at=0.0,
        clock_ms=0, limits={},
    )  # fmt: skip


def test_a_message_without_any_answer_is_no_answer_to_hello(root: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = 10_000
        router.bind(f"ipc://{root}/stenod.sock")

        def greet() -> None:
            peer, *frames = router.recv_multipart()
            request = only_request(frames)
            assert isinstance(request.command, Hello)
            router.send_multipart([peer, *encode_replies([])])
            router.send_multipart([peer, *answer_frames(request.id, welcome())])

        thread = threading.Thread(target=greet)
        thread.start()
        with connect_sync(endpoint=f"ipc://{root}/stenod.sock", timeout=10) as client:
            assert client.welcome.pid == os.getpid()
        thread.join()

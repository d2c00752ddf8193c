"""The first messages between a client and a scripted daemon."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import zmq
from msgspec.structs import replace

from steno import connect_sync
from steno_protocol import PROTOCOL_MAGIC, PROTOCOL_VERSION
from steno_protocol.commands import Hello
from steno_protocol.errors import Incompatible
from steno_protocol.messages import encode_replies
from steno_protocol.replies import ErrorReply, Reply, Welcome
from support.foreground import ForegroundDaemon
from support.framing import answer_frames, only_request
from support.raw_peer import RawPeer


@pytest.mark.parametrize("is_refused", [True, False], ids=["refusal", "welcome"])
@pytest.mark.parametrize(
    ("difference", "named"),
    [
        (-1, r"the daemon at .* is too old"),
        # A daemon that is called too old would be ended, and replaced by an older one.
        (1, r"this client is too old: .* update steno in the client's environment"),
    ],
    ids=["older daemon", "newer daemon"],
)
def test_the_older_side_is_named_as_the_one_to_update(
    root: Path, difference: int, named: str, *, is_refused: bool
) -> None:
    protocol = PROTOCOL_VERSION + difference
    refusal = ErrorReply.of(Incompatible("other versions", protocol=protocol))
    answer = refusal if is_refused else replace(welcome(), protocol=protocol)
    with greeted(root, answer), pytest.raises(Incompatible, match=named):
        connect_sync(endpoint=f"ipc://{root}/stenod.sock", timeout=10)


@pytest.mark.parametrize(
    ("difference", "named"), [(-1, "the client is too old"), (1, "this daemon is too old")]
)
def test_daemon_names_the_older_side(root: Path, difference: int, named: str) -> None:
    with ForegroundDaemon(root), closing(RawPeer(root)) as peer:
        protocol = PROTOCOL_VERSION + difference
        refusal = peer.ask("hello", protocol=protocol, name="other", pid=1)
    assert (refusal["code"], refusal["protocol"]) == ("incompatible", PROTOCOL_VERSION)
    assert named in refusal["message"]


@contextmanager
def greeted(root: Path, answer: Reply) -> Iterator[None]:
    """A scripted daemon that gives the same answer to every greeting."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.bind(f"ipc://{root}/stenod.sock")
        is_over = threading.Event()

        def greet() -> None:
            while not is_over.is_set():
                if router.poll(20):
                    peer, *frames = router.recv_multipart()
                    if frames[0].startswith(PROTOCOL_MAGIC):
                        reply = answer_frames(only_request(frames).id, answer)
                        router.send_multipart([peer, *reply])

        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


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

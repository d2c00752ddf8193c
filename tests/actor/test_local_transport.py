"""The daemon's socket for this machine: peers that break off or are slow, no handles."""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import anyio
import pytest

from steno._connect.local_connection import LocalConnection
from steno_protocol import limits
from steno_protocol.errors import StorageFailed
from steno_protocol.zmtp import Inbound
from stenod.api.clients import InFlightFrames
from stenod.net import local_connection
from stenod.net.local import LocalTransport
from stenod.net.transport import Sent
from support.door import GREETING, READY_OF_DEALER, is_readable
from support.served_socket import FAULT, LARGE, heard, is_connected, served, until

HANDSHAKE = GREETING + READY_OF_DEALER
PING = b"\x04\x07\x04PING\x00\x0a"

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The daemon's sockets know asyncio's loop only."""
    return str(request.param)


@pytest.fixture
def stranger(root: Path) -> Generator[socket.socket]:
    """A bare socket."""
    with socket.socket(socket.AF_UNIX) as one:
        one.setblocking(False)
        yield one


def has_hung_up(one: socket.socket) -> bool:
    """Whether the other end did, after whatever it said."""
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


class FullKernel:
    """Watches handles as `select.epoll`, but for the next few that are to be watched.

    Args:
        events: what does it.
        refusals: how many handles are refused.
    """

    def __init__(self, events: select.epoll, refusals: int) -> None:
        self.refusals = refusals
        self._events = events

    def __getattr__(self, name: str) -> object:
        return getattr(self._events, name)

    def register(self, *what: int) -> None:
        """Watch one more."""
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._events.register(*what)


async def test_messages_come_in_order_and_answers_go_back(root: Path) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        for number in range(1000):
            await until(lambda: peer.can_send)
            assert peer.send([b"%d" % number, b"", LARGE[: number * 10]])
        await until(lambda: len(there.messages) == 1001)
        assert there.messages[1:] == [
            (identity, [b"%d" % number, b"", LARGE[: number * 10]]) for number in range(1000)
        ]
        assert there.say(identity, b"answer", LARGE) is Sent.OK
        answers: list[list[bytes]] = []
        await until(lambda: bool(answers.extend(peer.receive(1)) or answers))
        assert answers == [[b"answer", LARGE]]
        peer.close()


async def test_who_takes_nothing_any_more_is_heard_to_the_end_and_then_ended(root: Path) -> None:
    in_flight = InFlightFrames()
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        peer._socket.shutdown(socket.SHUT_RD)
        assert peer.send([b"last"])
        # Nothing of it can go, and nothing but the end is told of that.
        there.say(identity, LARGE, in_flight=in_flight)
        await until(lambda: there.say(identity, b"too late") is Sent.GONE)
        assert b"last" in there.links
        assert in_flight.bytes == 0
        peer.close()


async def test_a_sign_of_life_is_given_again_once_it_is_taken(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So many at once set a connection aside, which is another matter.
    monkeypatch.setattr(limits, "DEBT_MAX", 1 << 30)
    async with served(root) as there:
        stranger.connect(str(there.path))
        stranger.send(HANDSHAKE + b"\x00\x04mute")
        await until(lambda: b"mute" in there.links)
        link = there.links[b"mute"]
        assert link is not None
        while not link.has_unsent:
            stranger.send(PING)
            await anyio.lowlevel.checkpoint()
        waiting = link._outbound.unsent
        for _ in range(100):
            stranger.send(PING)
            await until(lambda: not is_readable(link.handle))
        assert link._outbound.unsent <= waiting
        assert not has_hung_up(stranger)
        await until(lambda: not link.has_unsent)
        assert not has_hung_up(stranger)
        stranger.send(PING)
        await until(lambda: b"PONG" in heard(stranger))


async def test_who_sends_a_message_byte_by_byte_is_set_aside_until_it_ends(
    root: Path, stranger: socket.socket
) -> None:
    size = 4 * limits.DEBT_MAX
    async with served(root) as there:
        peer, _ = await there.come(b"one")
        stranger.connect(str(there.path))
        stranger.send(HANDSHAKE + b"\x00\x04slow")
        await until(lambda: b"slow" in there.links)
        link = there.links[b"slow"]
        assert link is not None
        stranger.send(b"\x02" + size.to_bytes(8, "big"))
        sent = 0
        while not link.is_aside:
            stranger.send(b"x")
            sent += 1
            await until(lambda: not is_readable(link.handle))
        assert sent >= limits.DEBT_MAX
        assert peer.send([b"beside"])
        await until(lambda: there.messages[-1][1] == [b"beside"])

        stranger.send(b"x" * (size - sent))
        await until(lambda: there.messages[-1][1] == [b"x" * size])
        assert not link.is_aside
        stranger.send(b"\x00\x05again")
        await until(lambda: there.messages[-1][1] == [b"again"])
        peer.close()


async def test_of_those_who_never_end_a_message_one_at_a_time_has_a_short_look(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[bytes, int]] = []
    receive = local_connection.LocalConnection.receive

    def counted(connection: local_connection.LocalConnection) -> None:
        before = connection._inbound.taken
        receive(connection)
        if connection.is_aside:
            looks.append((connection.identity, connection._inbound.taken - before))

    monkeypatch.setattr(local_connection.LocalConnection, "receive", counted)
    endless = b"\x01\x01x"
    async with served(root) as there:
        with ExitStack() as made:
            floods = [made.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4)]
            for one in floods:
                one.connect(str(there.path))
                one.setblocking(False)
                one.send(HANDSHAKE)

            def flood() -> int:
                for one in floods:
                    with suppress(BlockingIOError):
                        one.send(endless * 20_000)
                return len(looks)

            await until(lambda: flood() >= 12)
    # After the first ones, which each of them had while others were still set aside.
    turns = [identity for identity, _ in looks[4:]]
    assert len(set(turns[:4])) == 4
    assert turns[4:8] == turns[:4]
    assert max(frames for _, frames in looks) <= limits.ASIDE_BYTES // len(endless) + 1


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(200), b"\0"])
async def test_who_speaks_something_else_is_hung_up_on(
    root: Path, stranger: socket.socket, said: bytes
) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        stranger.connect(str(there.path))
        stranger.send(said)
        await until(lambda: has_hung_up(stranger))
        assert there.say(identity, b"still here") is Sent.OK
        await until(lambda: peer.receive(1) == [[b"still here"]])
        peer.close()


@pytest.mark.parametrize("said", [0, 1, 64, len(HANDSHAKE) - 1])
async def test_who_never_ends_the_handshake_is_hung_up_on(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch, said: int
) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        monkeypatch.setattr(limits, "HANDSHAKE_MS", 50)
        stranger.connect(str(there.path))
        stranger.send(HANDSHAKE[:said])
        await until(lambda: has_hung_up(stranger))
        assert there.say(identity, b"still here") is Sent.OK
        peer.close()


async def test_who_has_shaken_hands_may_be_silent(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_MS", 200)
    async with served(root) as there:
        peer, _ = await there.come(b"one")
        # It came later, and is ended in time: so the time of the first is over, too.
        stranger.connect(str(there.path))
        await until(lambda: has_hung_up(stranger))
        assert not peer.is_lost()
        peer.close()


async def test_a_connection_for_which_there_is_no_room_is_ended(
    root: Path, stranger: socket.socket
) -> None:
    async with served(root) as there:
        there.has_room = False
        stranger.connect(str(there.path))
        await until(lambda: has_hung_up(stranger))
        there.has_room = True
        peer, _ = await there.come(b"one")
        peer.close()


async def test_a_process_of_another_user_is_hung_up_on(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(root) as there:
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        stranger.connect(str(there.path))
        await until(lambda: has_hung_up(stranger))


async def test_without_a_handle_nobody_is_taken_in_until_there_is_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[bool] = []
    accept = socket.socket.accept

    def fail_at_first(listener: socket.socket) -> object:
        if len(refused) < 3:
            refused.append(True)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listener)

    async with served(root) as there:
        peer, identity = await there.come(b"one")
        monkeypatch.setattr(socket.socket, "accept", fail_at_first)
        late, _ = await there.come(b"late")
        assert len(refused) == 3
        assert there.say(identity, b"still here") is Sent.OK
        late.close()
        peer.close()


async def test_who_cannot_be_watched_is_hung_up_on(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        full = FullKernel(there.transport._events, 1)
        monkeypatch.setattr(there.transport, "_events", full)
        stranger.connect(str(there.path))
        await until(lambda: has_hung_up(stranger))
        assert there.say(identity, b"still here") is Sent.OK
        late, _ = await there.come(b"late")
        late.close()
        peer.close()


async def test_a_door_that_cannot_be_watched_again_is_tried_until_it_can(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept

    def fail_once(listener: socket.socket) -> object:
        monkeypatch.setattr(socket.socket, "accept", accept)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with served(root) as there:
        peer, _ = await there.come(b"one")
        full = FullKernel(there.transport._events, 3)
        monkeypatch.setattr(there.transport, "_events", full)
        monkeypatch.setattr(socket.socket, "accept", fail_once)
        refused = there.connect()
        # The door is tried until somebody may come again, who is the first to be watched then.
        await until(lambda: full.refusals == 0)
        await until(lambda: is_connected(refused))
        for each in (peer, refused):
            each.close()


async def test_who_needs_more_memory_than_there_is_is_hung_up_on(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def feed(*_: object) -> None:
        raise MemoryError

    async with served(root) as there:
        peer, identity = await there.come(b"one")
        with monkeypatch.context() as little:
            little.setattr(Inbound, "feed", feed)
            stranger.connect(str(there.path))
            stranger.send(HANDSHAKE)
            await until(lambda: has_hung_up(stranger))
        assert there.say(identity, b"still here") is Sent.OK
        peer.close()


async def test_nothing_is_kept_of_who_broke_off(root: Path) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        link = there.links[b"one"]
        assert link is not None
        there.say(identity, b"x" * limits.MIB)
        peer.send([b"x" * limits.RECORD_BYTES_MAX])
        await until(lambda: link._inbound.wanted < limits.RECORD_BYTES_MAX)
        peer.close()
        await until(lambda: not link.stands)
        assert not link.has_unsent
        assert link._inbound._held == []


async def test_who_goes_beyond_what_all_may_leave_unfinished_is_hung_up_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNFINISHED_BYTES_MAX", 3 * limits.MIB)
    head = b"\x02" + (2 * limits.MIB).to_bytes(8, "big")
    rest = b"x" * limits.KIB
    half = b"x" * (2 * limits.MIB - len(rest))

    async def begin(peer: LocalConnection, link: local_connection.LocalConnection) -> bytes:
        """Send all but the last KiB, as far as the daemon listens; returns what did not go."""
        left = head + half
        while left and link.stands:
            with suppress(BlockingIOError, BrokenPipeError):
                left = left[peer._socket.send(left, socket.MSG_DONTWAIT) :]
            await anyio.lowlevel.checkpoint()
        return left

    async with served(root) as there:
        first, second, third = [(await there.come(name))[0] for name in (b"1", b"2", b"3")]
        links = [there.links[name] for name in (b"1", b"2", b"3")]
        assert links[0] is not None
        assert links[1] is not None
        assert links[2] is not None
        assert not await begin(first, links[0])
        await until(lambda: links[0].unfinished > len(half))
        await begin(second, links[1])
        await until(lambda: not links[1].stands)
        # What it had sent is forgotten, and what was finished counts no more.
        first._socket.sendall(rest)
        await until(lambda: there.messages[-1][1] == [half + rest])
        assert not await begin(third, links[2])
        await until(lambda: links[2].unfinished > len(half))
        third.close()
        await until(lambda: not links[2].stands)
        assert there.transport._unfinished == 0
        assert links[0].stands
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("each", "most", "untold"),
    [
        pytest.param(limits.KIB, limits.SEND_QUEUE_MESSAGES, limits.PEER_PROOF_BYTES, id="small"),
        pytest.param(len(LARGE), limits.SEND_QUEUE_BYTES // len(LARGE), 0, id="large"),
    ],
)
async def test_a_peer_that_takes_nothing_keeps_nobody_waiting_and_then_loses_messages(
    root: Path, each: int, most: int, untold: int
) -> None:
    frame = LARGE[:each]
    in_flight = InFlightFrames()
    async with served(root) as there:
        (lazy, its_name), (peer, identity) = await there.come(b"lazy"), await there.come(b"one")
        sent: list[bytes] = []
        while (
            there.say(its_name, message := b"%d" % len(sent), frame, in_flight=in_flight) is Sent.OK
        ):
            sent.append(message)
        # The kernel took a few.
        assert most <= len(sent) <= most + limits.MIB // each
        assert in_flight.bytes > (most - 2) * each
        assert there.say(identity, b"to one") is Sent.OK
        await until(lambda: peer.receive(1) == [[b"to one"]])
        # What was queued is not lost, and is sent while the other end takes it.
        taken: list[bytes] = []
        await until(
            lambda: (
                bool(taken.extend(first for first, _ in lazy.receive(64)))
                or len(taken) == len(sent)
            )
        )
        assert taken == sent
        assert in_flight.bytes <= untold
        assert there.say(its_name, b"again") is Sent.OK
        lazy.close()
        peer.close()


async def test_whose_queue_is_full_loses_nothing_once_it_takes_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEND_QUEUE_MESSAGES", 3)
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        while there.say(identity, LARGE) is Sent.OK:
            pass
        while heard(peer._socket):
            pass
        # The loop had no turn in which it would be told.
        assert there.say(identity, LARGE) is Sent.OK
        peer.close()


async def test_what_is_queued_goes_when_the_others_had_their_turn(root: Path) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        for name in (b"first", b"second"):
            assert there.transport.send(identity, [name], InFlightFrames()) is Sent.OK
            there.transport.look_soon()
            await until(lambda name=name: peer.receive(1) == [[name]])
        peer.close()


async def test_a_client_that_said_nothing_is_not_waited_for(root: Path) -> None:
    ours, its = socket.socketpair()
    with its:
        connection = local_connection.LocalConnection(ours, b"1")
        connection.receive()
        assert not connection.waiting
        assert connection.stands
        connection.close()


async def test_who_breaks_off_the_handshake_is_ended_once(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failed.append(told))
    monkeypatch.setattr(limits, "HANDSHAKE_MS", 100)
    async with served(root) as there:
        with socket.socket(socket.AF_UNIX) as short:
            short.connect(str(there.path))
        await until(lambda: there.transport._connections == {} and not there.transport._stirred)
        # It came later, and is ended in time: so the time of the first is over, too.
        stranger.connect(str(there.path))
        await until(lambda: has_hung_up(stranger))
    assert failed == []


async def test_a_message_that_comes_in_parts_keeps_nobody_waiting(root: Path) -> None:
    async with served(root) as there:
        (slow, _), (peer, _) = await there.come(b"slow"), await there.come(b"one")
        assert slow.send([b"large", b"x" * limits.RECORD_BYTES_MAX])
        assert not slow.send([b"next"])
        assert peer.send([b"quick"])
        await until(lambda: b"quick" in there.links)
        assert b"large" not in there.links
        await until(lambda: slow.can_send)
        await until(lambda: b"large" in there.links)
        assert slow.send([b"next"])
        await until(lambda: b"next" in there.links)
        slow.close()
        peer.close()


async def test_what_was_sent_before_hanging_up_is_taken_in(root: Path) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        for number in range(20):
            assert peer.send([b"last %d" % number])
        peer.close()
        await until(lambda: b"last 19" in there.links)
        await until(lambda: there.say(identity, b"too late") is Sent.GONE)


async def test_a_connection_is_known_to_stand_until_it_ends(root: Path) -> None:
    in_flight = InFlightFrames()
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        link = there.links[b"one"]
        assert link is not None
        assert link.stands
        for _ in range(20):
            there.say(identity, LARGE, in_flight=in_flight)
        assert in_flight.bytes
        peer.close()
        await until(lambda: not link.stands)
        assert in_flight.bytes == 0
        later, other = await there.come(b"later")
        assert other != identity
        assert not link.stands
        later.close()


async def test_a_fault_while_a_message_is_handled_ends_the_service(root: Path) -> None:
    async def serve() -> None:
        async with served(root) as there:
            peer, _ = await there.come(b"one")
            peer.send([FAULT])
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(10):
        await serve()
    assert isinstance(failed.value.exceptions[0], RuntimeError)


async def test_more_clients_than_wait_at_the_door_are_told_at_once(root: Path) -> None:
    listening = LocalTransport(lambda: True)
    listening.bind(root / "stenod.sock")
    path = str(root / "stenod.sock")
    with closing(listening):
        waiting = [LocalConnection(f"ipc://{path}", path)]
        while not waiting[-1].is_lost():
            waiting.append(LocalConnection(f"ipc://{path}", path))
        allowed = int(Path("/proc/sys/net/core/somaxconn").read_text())
        assert len(waiting) - 2 == min(limits.CONNECTIONS_WAITING_MAX, allowed)
        for each in waiting:
            each.close()


async def test_only_a_socket_of_its_own_is_removed(root: Path) -> None:
    path = root / "stenod.sock"
    first, second = LocalTransport(lambda: True), LocalTransport(lambda: True)
    first.bind(path)
    assert first.is_reachable
    path.rename(root / "moved")
    assert not first.is_reachable
    second.bind(path)
    assert not first.is_reachable
    first.close()
    assert second.is_reachable
    second.close()
    assert not path.exists()


async def test_a_socket_that_was_lent_stays_when_it_is_closed(root: Path) -> None:
    path = root / "stenod.sock"
    lent = socket.socket(socket.AF_UNIX)
    lent.bind(str(path))
    lent.listen()
    transport = LocalTransport(lambda: True)
    transport.bind(path, lent.detach())
    transport.close()
    assert path.is_socket()


async def test_a_socket_that_was_left_behind_is_replaced_and_nothing_else(root: Path) -> None:
    path = root / "stenod.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    transport = LocalTransport(lambda: True)
    transport.bind(path)
    assert transport.is_reachable
    transport.close()
    path.write_text("of somebody")
    with pytest.raises(StorageFailed, match="no socket of ours"):
        LocalTransport(lambda: True).bind(path)
    assert path.read_text() == "of somebody"

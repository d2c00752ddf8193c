"""Bursts of the daemon's socket for this machine: bounded, and shared among who said something."""

from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from steno_protocol import limits
from stenod.api.clients import InFlightFrames
from stenod.net import local_connection
from stenod.net.transport import Sent
from support.served_socket import LARGE, heard, served, until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The daemon's sockets know asyncio's loop only."""
    return str(request.param)


async def test_a_burst_is_of_what_has_come_and_bounded(root: Path) -> None:
    async with served(root) as there:
        peers = [(await there.come(b"%d" % number))[0] for number in range(12)]
        there.messages.clear()
        there.bursts.clear()
        sent = [peer.send([b"x" * limits.KIB]) for _ in range(80) for peer in peers]
        assert all(sent)
        await until(lambda: len(there.messages) == len(sent))
        sizes = [end - begin for begin, end in pairwise([0, *there.bursts])]
        # The last part of a burst is served as a whole.
        part = limits.BURST_REQUESTS_MAX // len(peers)
        assert sizes[0] >= limits.BURST_REQUESTS_MAX
        assert max(sizes) < limits.BURST_REQUESTS_MAX + part
        # All have an equal part of it, and whose part was the last comes last in the next one.
        first = Counter(identity for identity, _ in there.messages[: there.bursts[0]])
        assert sorted(first.values()) == [part] * (len(peers) - 1) + [2 * part]
        twice = max(first, key=first.__getitem__)
        assert there.messages[there.bursts[0]][0] != twice
        for peer in peers:
            peer.close()


async def test_thousands_of_messages_that_came_at_once_are_served_in_bursts(root: Path) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        there.messages.clear()
        there.bursts.clear()
        peer._socket.send(b"\x00\x01x" * 5000)
        await until(lambda: len(there.messages) == 5000)
        assert set(map(tuple, (frames for _, frames in there.messages))) == {(b"x",)}
        sizes = [end - begin for begin, end in pairwise([0, *there.bursts])]
        assert max(sizes) == limits.BURST_REQUESTS_MAX
        assert there.say(identity, b"answer") is Sent.OK
        peer.close()


async def test_who_never_falls_silent_keeps_nobody_waiting(root: Path) -> None:
    async with served(root) as there:
        (busy, _), (peer, _) = await there.come(b"busy"), await there.come(b"one")
        flood = b"\x00\x01x" * limits.BURST_REQUESTS_MAX

        def send_more() -> None:
            with suppress(BlockingIOError):
                busy._socket.send(flood)

        there.after_burst = send_more
        send_more()
        assert peer.send([b"quick"])
        await until(lambda: b"quick" in there.links)
        late, _ = await there.come(b"late")
        for each in (busy, peer, late):
            each.close()


async def test_who_says_little_waits_for_no_more_than_a_part_of_what_others_said_before(
    root: Path,
) -> None:
    async with served(root) as there:
        crowd = [(await there.come(b"%d" % number))[0] for number in range(8)]
        peer, _ = await there.come(b"one")
        there.messages.clear()
        there.bursts.clear()
        said: list[int] = []
        turns: list[int] = []

        def say() -> None:
            if not said:
                said.append(len(there.messages))
                assert peer.send([b"quick"])

        there.after_burst = say
        for each in crowd:
            each._socket.send(b"\x00\x01x" * 5000)
        while len(there.messages) < 5000 * len(crowd):
            await anyio.lowlevel.checkpoint()
            turns.append(len(there.bursts))
        place = [frames for _, frames in there.messages].index([b"quick"])
        assert place - said[0] <= limits.BURST_REQUESTS_MAX
        # Whatever else the loop has to do comes between two bursts.
        assert max(after - before for before, after in pairwise(turns)) == 1
        for each in (*crowd, peer):
            each.close()


async def test_a_message_of_many_requests_counts_as_many_in_a_burst(root: Path) -> None:
    async with served(root) as there:
        peer, _ = await there.come(b"one")
        there.messages.clear()
        there.bursts.clear()
        there.cost = limits.BURST_REQUESTS_MAX // 4
        peer._socket.send(b"\x00\x01x" * 50)
        await until(lambda: len(there.messages) == 50)
        assert max(end - begin for begin, end in pairwise([0, *there.bursts])) == 4
        peer.close()


async def test_no_more_is_received_from_who_has_messages_waiting(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_connection, "_LEAST_BYTES", 3000)
    async with served(root) as there:
        peer, _ = await there.come(b"one")
        link = there.links[b"one"]
        assert link is not None
        waited: list[int] = []
        there.after_burst = lambda: waited.append(len(link.waiting))
        peer._socket.send(b"\x00\x01x" * 5000)
        await until(lambda: len(there.messages) == 5001)
        assert 0 < max(waited) < 1000
        peer.close()


async def test_more_clients_than_a_burst_has_requests_are_all_served(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(root) as there:
        peers = [(await there.come(b"%d" % number))[0] for number in range(4)]
        there.messages.clear()
        monkeypatch.setattr(limits, "BURST_REQUESTS_MAX", 2)
        for peer in peers:
            peer._socket.send(b"\x00\x01x" * 50)
        await until(lambda: len(there.messages) == 200)
        for peer in peers:
            peer.close()


async def test_who_takes_again_what_waited_is_served_what_it_had_said(root: Path) -> None:
    async with served(root) as there:
        peer, identity = await there.come(b"one")
        link = there.links[b"one"]
        assert link is not None

        def fill_and_take() -> None:
            there.after_burst = lambda: None
            while not link.has_unsent:
                there.say(identity, LARGE)
            # All that the kernel has of it, so that more can go.
            while heard(peer._socket):
                pass

        there.after_burst = fill_and_take
        peer._socket.send(b"\x00\x01x" * 5000)
        await until(lambda: len(there.messages) == 5001)
        peer.close()


async def test_answers_go_in_the_order_in_which_they_were_given(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[bytes] = []
    flush = local_connection.LocalConnection.flush

    def noted(connection: local_connection.LocalConnection) -> None:
        gone.append(connection.identity)
        flush(connection)

    async with served(root) as there:
        came = [await there.come(b"%d" % number) for number in range(24)]
        monkeypatch.setattr(local_connection.LocalConnection, "flush", noted)
        identities = [identity for _, identity in came]
        for order in (identities, identities[::-1], identities[::2] + identities[1::2]):
            gone.clear()
            for identity in order:
                assert there.transport.send(identity, [b"answer"], InFlightFrames()) is Sent.OK
            there.transport.after_sends()
            assert gone == order
        for peer, _ in came:
            peer.close()

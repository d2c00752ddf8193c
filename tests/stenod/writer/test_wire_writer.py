"""The writer of a wire file: early replies, synced readers, one header."""

import errno
import json

import anyio
import pytest

from steno_protocol import limits, paths
from steno_protocol.blocks import split_lines
from steno_protocol.errors import BadRequest, Held, StorageFailed
from support.lines import append, user
from support.stored_session import fresh_key
from support.wire_writing import WireDesk, append_wire, event
from support.writing import PATH, answers

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

HEADER = b'{"type":"metadata","protocol_version":"1.10"}\n'


def numbers(data: bytes) -> list[int]:
    """The numbers of the events in a wire file that begins with its header."""
    header, *lines = split_lines(data)
    assert header == HEADER
    return [json.loads(line)["message"]["payload"]["n"] for line in lines]


# --- durability ----------------------------------------------------------------------------------


async def test_an_event_is_answered_as_written_and_synced_within_a_second() -> None:
    async with WireDesk().open() as desk:
        sent = await desk.do(append_wire("k0"), event(0))
        assert sent.ack.durability == "written"
        assert numbers(desk.file()) == [0]
        assert desk.durable() == b""

        await desk.pass_time(limits.WRITTEN_SYNC_S / 2)
        assert desk.durable() == b""
        await desk.pass_time(limits.WRITTEN_SYNC_S / 2)
        assert desk.durable() == desk.file()


async def test_an_event_is_synced_at_once_for_followers_and_published_after() -> None:
    async with WireDesk().open() as desk:
        _, reader = desk.subscribe("now")
        await desk.wait_for(lambda: reader.kinds == ["Live"])
        await desk.do(append_wire("k0"), event(0))
        await desk.settle()
        assert (desk.durable(), reader.data) == (b"", b"")

        # Twice, for a clock of floats; that is still far less than without a follower.
        await desk.pass_time(2 * limits.LIVE_SYNC_S)
        assert numbers(reader.data) == [0]
        assert desk.durable() == reader.data


async def test_one_command_that_asks_for_a_sync_gives_it_to_its_group() -> None:
    async with WireDesk().open() as desk:
        sent = [
            desk.send(append_wire("k0"), event(0)),
            desk.send(append_wire("k1", durability="synced"), event(1)),
            desk.send(append_wire("k2"), event(2)),
        ]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert [one.ack.durability for one in sent] == ["synced"] * 3
        assert sent[0].durable_then == desk.file()


async def test_a_flood_is_synced_before_its_second_is_over() -> None:
    async with WireDesk().open() as desk:
        filled = event(0, "x" * limits.MIB)
        for number in range(limits.UNSYNCED_BYTES_MAX // limits.MIB):
            sent = await desk.do(append_wire(f"k{number}"), filled)
            assert (sent.ack.durability, desk.durable()) == ("written", b"")

        last = await desk.do(append_wire("last"), event(1))
        assert (last.ack.durability, last.durable_then) == ("synced", desk.file())
        after = await desk.do(append_wire("after"), event(2))
        assert after.ack.durability == "written"


# --- beside the context --------------------------------------------------------------------------


async def test_an_event_bears_the_durable_head_of_the_context_not_the_decided_one() -> None:
    async with WireDesk().open() as desk:
        await desk.do_to_context(append("c0"), user("one"))
        await desk.do(append_wire("k0"), event(0))
        late = desk.send_to_context(append("c1", durability="written"), user("two"))
        await desk.wait_for(lambda: late.answer is not None)
        await desk.do(append_wire("k1"), event(1))
        await desk.do_to_context(append("c2"), user("three"))
        await desk.do(append_wire("k2"), event(2))

        at = [json.loads(line)["_at"] for line in desk.file().splitlines()[1:]]
        assert at == ["0:1", "0:1", "0:3"]


@pytest.mark.parametrize("reopened", [False, True], ids=["open", "opened again"])
async def test_at_never_falls_when_another_program_makes_the_context_shorter(
    reopened: bool,
) -> None:
    context = f"{PATH}/{paths.CONTEXT}"
    desk = WireDesk()
    async with desk.open():
        for number in range(3):
            await desk.do_to_context(append(f"c{number}"), user("x"))
        await desk.do(append_wire("k0", durability="synced"), event(0))
        if not reopened:
            desk.disk.foreign.truncate(context, 0)
            await desk.do_to_context(append("c3"), user("x"))
            await desk.do(append_wire("k1"), event(1))
    if reopened:
        desk.disk.foreign.delete(context)
        desk.disk.foreign.replace(context, b"")
        desk = WireDesk(desk.disk)
        async with desk.open():
            await desk.do_to_context(append("c3"), user("x"))
            await desk.do(append_wire("k1"), event(1))
            for number in range(4, 8):
                await desk.do_to_context(append(f"c{number}"), user("x"))
            await desk.do(append_wire("k2"), event(2))

    at = [json.loads(line)["_at"] for line in desk.file().splitlines()[1:]]
    assert at == ["0:3", "0:3", "0:5"][: len(at)]
    changes = [entry.details for entry in desk.stored.timeline() if entry.kind == "foreign"]
    assert changes == [{"before": "0:3", "after": "0:0", "kept": False}]


async def test_a_command_for_the_other_file_is_refused() -> None:
    async with WireDesk().open() as desk:
        wrong = await desk.do(append("k0"), user("one"))
        also_wrong = await desk.do_to_context(append_wire("k1"), event(1))
        assert isinstance(wrong.error, BadRequest)
        assert isinstance(also_wrong.error, BadRequest)


async def test_messages_do_not_wait_for_events_on_a_slow_disk() -> None:
    async with WireDesk().open() as desk:
        gate = desk.wire_commits.gate = anyio.Event()
        sent = [desk.send(append_wire(f"k{number}"), event(number)) for number in range(500)]
        for number in range(3):
            await desk.do_to_context(append(f"c{number}"), user("one"))
        assert [one.answer for one in sent] == [None] * 500

        gate.set()
        await desk.wait_for(lambda: sent[-1].answer is not None)
        assert numbers(desk.file()) == list(range(500))


async def test_no_event_is_written_without_the_lock_of_the_folder() -> None:
    async with WireDesk().open() as desk:
        await desk.do(append_wire("k1", durability="synced"), event(1))
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
        failed = await desk.do_to_context(append("c1"), user("lost"))
        assert isinstance(failed.error, StorageFailed)
        assert desk.context.opened is None
        # The next opening releases the open file, and fails.
        desk.disk.fail_next("open_root", errno.EIO)
        failed = await desk.do_to_context(append(fresh_key(2)), user("lost, too"))
        assert isinstance(failed.error, StorageFailed)

        # A daemon that has the folder for one of its mounts.
        another = desk.disk.open_root(PATH)
        assert desk.disk.lock(another)
        refused = await desk.do(append_wire(fresh_key(3), durability="synced"), event(2))
        assert isinstance(refused.error, Held)
        assert numbers(desk.file()) == [1]

        desk.disk.close(another)
        again = await desk.do(append_wire("k3", durability="synced"), event(3))
        assert answers([again]) == ["0:2"]
        assert numbers(desk.file()) == [1, 3]
        assert not desk.disk.lock(desk.disk.open_root(PATH))

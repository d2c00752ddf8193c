"""Commands of an unknown outcome: no repeat of one is called not applied before it is looked up."""

import errno
from collections.abc import Sequence

import msgspec
import pytest

from steno_protocol import paths
from steno_protocol.commands import Mutation
from steno_protocol.errors import Busy, OutcomeUnknown, StorageFailed
from stenod.runtime.error_mapping import doubted
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from support.lines import append, checkpoint, clear, prompt, revert, usage, user, uuid7
from support.simulated_disk import SimulatedDisk
from support.stored_session import NOW_S, fresh_key
from support.writing import Desk

pytestmark = pytest.mark.anyio

KEYS = ["order-17", fresh_key(7)]
ONE = [user("one")]


def break_sync(disk: SimulatedDisk) -> None:
    """Let the next append fail, and the cut after it."""
    disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
    disk.fail_next("truncate", errno.EIO, name=paths.CONTEXT)


def break_rename(disk: SimulatedDisk) -> None:
    """Let the next rewrite fail, and the opening after it."""
    disk.fail_next("rename", errno.EIO)
    disk.fail_next("open_root", errno.EIO)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("made", "records", "breaks"),
    [
        (append, ONE, break_sync),
        (checkpoint, [], break_sync),
        (lambda key: usage(key, 7), [], break_sync),
        (lambda key: prompt(key, "be brief"), [], break_rename),
        (lambda key: revert(key, 0), [], break_rename),
        (clear, [], break_rename),
    ],
    ids=["append", "checkpoint", "usage", "prompt", "revert", "clear"],
)
async def test_an_unknown_outcome_stays_unknown_until_the_file_is_proven(
    made: object, records: Sequence[bytes], breaks: object, key: str
) -> None:
    assert callable(made)
    assert callable(breaks)
    command = made(key)
    assert isinstance(command, Mutation)
    async with Desk().open() as desk:
        await desk.do(checkpoint("c0"))
        breaks(desk.disk)
        lost = await desk.do(command, *records)
        assert isinstance(lost.error, OutcomeUnknown)

        desk.disk.fail_next("open_root", errno.EIO, times=9)
        for repeat in (False, True, False):
            again = await desk.do(msgspec.structs.replace(command, repeat=repeat), *records)
            assert isinstance(again.error, OutcomeUnknown)
            assert again.error.key == key

        desk.disk.heal()
        assert (await desk.do(command, *records)).ack.first is not None


async def test_a_command_that_was_only_written_is_in_doubt_after_a_lost_sync() -> None:
    async with Desk().open() as desk:
        written = append(fresh_key(1), durability="written")
        assert (await desk.do(written, *ONE)).ack.durability == "written"
        break_sync(desk.disk)
        await desk.do(append(fresh_key(2)), user("two"))
        desk.disk.fail_next("open_root", errno.EIO, times=9)
        assert isinstance((await desk.do(written, *ONE)).error, OutcomeUnknown)
        desk.disk.heal()


async def test_a_daemon_that_cannot_prove_the_file_does_not_deny_an_older_command() -> None:
    first = Desk()
    async with first.open() as desk:
        await desk.do(append(fresh_key(1)), *ONE)
    async with Desk(first.disk, wall_s=NOW_S + 10).open(lazy=True) as desk:
        desk.disk.fail_next("open_root", errno.EIO, times=9)
        for key in ("order-17", fresh_key(1)):
            assert isinstance((await desk.do(append(key), *ONE)).error, OutcomeUnknown)
        # No daemon before this one can have had it.
        new = uuid7(int(NOW_S + 20) * 1000, 1)
        assert isinstance((await desk.do(append(new), *ONE)).error, StorageFailed)
        desk.disk.heal()
        assert (await desk.do(append(fresh_key(1)), *ONE)).ack.duplicate


def test_only_a_failing_disk_casts_doubt_on_an_older_key_without_repeat() -> None:
    outcomes = UnknownOutcomes(int(NOW_S + 10) * 1000)
    older = append(fresh_key(1))
    assert isinstance(doubted(StorageFailed("it failed"), older, outcomes), OutcomeUnknown)
    assert isinstance(doubted(Busy("full"), append(fresh_key(2)), outcomes), Busy)


def test_keys_beyond_the_bound_make_every_key_count_as_unknown() -> None:
    outcomes = UnknownOutcomes(int(NOW_S) * 1000, keys_max=2)
    outcomes.add([fresh_key(1), fresh_key(2)])
    assert not outcomes.may_be_applied(append(fresh_key(3)))
    outcomes.add([fresh_key(4)])
    assert outcomes.may_be_applied(append(fresh_key(3)))
    assert not outcomes.keys

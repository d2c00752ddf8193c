"""A session that another machine may take over: what is not in the files may be in its own."""

import errno

import pytest

from steno_protocol.commands import Append, Mutation
from steno_protocol.errors import (
    Conflict,
    Expired,
    Internal,
    NotFound,
    OutcomeUnknown,
    StenoError,
    StorageFailed,
)
from stenod.core.machine import FileMachine
from stenod.recovery import key_lookup
from stenod.store.disk import DiskRefused
from support.lines import append, clear, revert, user
from support.simulated_disk import SimulatedDisk
from support.stored_session import fresh_key
from support.writing import PATH, Desk

pytestmark = pytest.mark.anyio

FAILURE = OSError(errno.EIO, "no majority answers")


class SharedDisk(SimulatedDisk):
    """A disk of one of several machines.

    Attributes:
        proofs: how often it proved that the session is still this machine's.
        is_alone: it cannot prove that now.
    """

    has_rivals = True

    def __init__(self) -> None:
        super().__init__()
        self.proofs = 0
        self.is_alone = False

    def confirm(self, handle: int) -> None:
        """See `Disk`."""
        if self.is_alone:
            raise FAILURE
        self.proofs += 1


class Unreached(DiskRefused):
    """The other machines were not reached."""

    def refusal(self, session: str) -> StenoError:
        """See `DiskRefused`."""
        return StorageFailed("no server was reached", session=session)


@pytest.fixture
def disk() -> SharedDisk:
    made = SharedDisk()
    made.foreign.make_folder(PATH)
    made.sync_all()
    return made


async def begin(desk: Desk) -> None:
    """Give the session a past generation, and the writer its filter of keys."""
    for number in range(3):
        await desk.do(append(f"order-{number}"), user(str(number)))
    await desk.do(clear("clear-1"))
    await desk.do(append("order-3"), user("3"))


def end_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("all files are searched")

    monkeypatch.setattr(key_lookup, "look_up", refuse)


async def test_the_first_of_a_command_costs_neither_a_search_nor_a_proof(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        end_searches(monkeypatch)
        before = disk.proofs
        for number in range(4, 40):
            assert (await desk.do(append(f"order-{number}"), user("text"))).ack.first is not None
        assert disk.proofs == before


async def test_a_repeat_of_a_command_that_is_not_there_costs_a_proof_alone(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        end_searches(monkeypatch)
        before = disk.proofs
        assert not (await desk.do(append("order-4", repeat=True), user("4"))).ack.duplicate
        assert disk.proofs == before + 1


async def test_a_repeat_gets_its_first_answer(disk: SharedDisk) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
    async with Desk(disk).open() as desk:
        for number in range(4):
            again = append(f"order-{number}", repeat=True)
            assert (await desk.do(again, user(str(number)))).ack.duplicate


@pytest.mark.parametrize(
    ("command", "deadline_s", "error"),
    [
        (append("order-9"), -1.0, Expired),
        (append("order-9", expect="0:0"), None, Conflict),
        (revert("order-9", 7), None, NotFound),
    ],
    ids=["late", "append", "revert"],
)
async def test_only_the_present_owner_refuses_what_another_one_may_have_done(
    disk: SharedDisk, command: Mutation, deadline_s: float | None, error: type[StenoError]
) -> None:
    records = [user("text")] if isinstance(command, Append) else []
    async with Desk(disk).open() as desk:
        await begin(desk)
        before = disk.proofs
        sent = desk.send(command, *records, deadline_s=deadline_s)
        await desk.wait_for(lambda: sent.answer is not None)
        assert isinstance(sent.error, error)
        assert disk.proofs == before + 1
        disk.is_alone = True
        sent = desk.send(command, *records, deadline_s=deadline_s)
        await desk.wait_for(lambda: sent.answer is not None)
        assert isinstance(sent.error, OutcomeUnknown)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("key", ["order-9", fresh_key(9)])
async def test_a_failed_commit_denies_only_what_no_other_owner_can_have_done(
    disk: SharedDisk, key: str, *, is_alone: bool
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        disk.is_alone = is_alone
        disk.fail_next("write", errno.ENOSPC)
        failed = await desk.do(append(key), user("text"))
        is_doubtful = is_alone and key == "order-9"
        assert isinstance(failed.error, OutcomeUnknown if is_doubtful else StorageFailed)
        disk.is_alone = False
        again = append(key, repeat=True)
        assert not (await desk.do(again, user("text"))).ack.duplicate


async def test_what_other_machines_refused_is_in_doubt_under_a_key_without_a_time(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        before = disk.proofs

        def refuse(*_: object) -> None:
            raise Unreached(None, "no server was reached")

        with monkeypatch.context() as patched:
            patched.setattr(disk, "write", refuse)
            first = await desk.do(append("order-9"), user("text"))
            newer = await desk.do(append(fresh_key(9)), user("text"))
        assert isinstance(first.error, OutcomeUnknown)
        assert isinstance(newer.error, StorageFailed)
        assert disk.proofs == before


async def test_a_rewrite_under_a_key_without_a_time_begins_with_a_proof(disk: SharedDisk) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        before = disk.proofs
        disk.is_alone = True
        assert isinstance((await desk.do(clear("clear-2"))).error, OutcomeUnknown)
        disk.is_alone = False
        assert (await desk.do(clear("clear-2"))).ack.first is not None
        assert disk.proofs > before


async def test_what_another_owner_may_have_done_is_acknowledged_after_the_commit_that_proves_it(
    disk: SharedDisk,
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        first = await desk.do(append("order-9", durability="written"), user("text"))
        newer = await desk.do(append(fresh_key(9), durability="written"), user("text"))
    assert first.ack.durability == "synced"
    assert newer.ack.durability == "written"


async def test_a_fault_of_steno_denies_only_what_no_other_owner_can_have_done(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(FileMachine, "decide_new", fail)
        assert isinstance((await desk.do(append("order-9"), user("text"))).error, Internal)
        disk.is_alone = True
        assert isinstance((await desk.do(append("order-9"), user("text"))).error, OutcomeUnknown)

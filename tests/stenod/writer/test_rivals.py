"""A session that another machine may take over: what is not in the files may be in its own."""

import errno
from collections.abc import Callable, Sequence

import pytest

from steno_protocol.commands import Clear, Mutation
from steno_protocol.errors import (
    Conflict,
    StenoError,
    StorageFailed,
)
from steno_protocol.replies import Ack
from stenod.recovery import key_lookup
from stenod.store.disk import DiskRefused
from support.lines import append, clear, user
from support.simulated_disk import SimulatedDisk
from support.wire_writing import WireDesk, append_wire, event
from support.writing import PATH, Desk, Sent

pytestmark = pytest.mark.anyio

FAILURE = OSError(errno.EIO, "no majority answers")


class SharedDisk(SimulatedDisk):
    """A disk of one of several machines.

    Attributes:
        proofs: how often it proved that the session is still this machine's.
        is_alone: it cannot prove that now.
        at_proof: called at each proof.
    """

    has_rivals = True

    def __init__(self) -> None:
        super().__init__()
        self.proofs = 0
        self.is_alone = False
        self.at_proof: Callable[[], object] = list

    def confirm(self, handle: int) -> None:
        """See `Disk`."""
        if self.is_alone:
            raise FAILURE
        self.proofs += 1
        self.at_proof()


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


@pytest.mark.parametrize("repeat", [False, True])
async def test_a_command_that_is_not_there_costs_a_proof_and_no_search(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch, *, repeat: bool
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        end_searches(monkeypatch)
        before = disk.proofs
        for number in range(4, 40):
            sent = await desk.do(append(f"order-{number}", repeat=repeat), user("text"))
            assert not sent.ack.duplicate
        assert disk.proofs == before + 36


async def answers(desk: Desk, sent: Sequence[Sent]) -> list[Ack]:
    await desk.wait_for(lambda: all(each.answer is not None for each in sent))
    return [each.ack for each in sent]


async def test_commands_that_are_in_hand_share_a_proof(
    disk: SharedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        end_searches(monkeypatch)
        before = disk.proofs
        sent = [desk.send(append(f"order-{number}"), user("text")) for number in range(4, 40)]
        sent.append(desk.send(append("order-4"), user("text")))
        acks = await answers(desk, sent)
        assert [each.duplicate for each in acks] == [False] * 36 + [True]
        assert disk.proofs == before + 1


async def test_a_command_that_came_after_a_proof_has_another_one(disk: SharedDisk) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
        before = disk.proofs
        later: list[Sent] = []

        def send_another() -> None:
            if not later:
                later.append(desk.send(append("order-5"), user("5")))

        disk.at_proof = send_another
        await desk.do(append("order-4"), user("4"))
        await answers(desk, later)
        assert disk.proofs == before + 2


@pytest.mark.parametrize("waiting", [clear("clear-2"), append("order-0")])
async def test_a_proof_covers_nothing_behind_a_wait(disk: SharedDisk, waiting: Mutation) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
    async with Desk(disk).open() as desk:
        await desk.do(append("order-4"), user("4"))
        before = disk.proofs
        lines = [] if isinstance(waiting, Clear) else [user("0")]
        acks = await answers(
            desk,
            [
                desk.send(append("order-5"), user("5")),
                desk.send(waiting, *lines),
                desk.send(append("order-6"), user("6")),
            ],
        )
        assert [each.duplicate for each in acks] == [False, bool(lines), False]
        assert disk.proofs == before + 2


async def test_a_proof_covers_nothing_behind_an_opening(disk: SharedDisk) -> None:
    desk = WireDesk(disk)
    async with desk.open():
        await desk.do(append_wire("event-1"), event(1))
        proofs = disk.proofs
        # The context is closed, as a commit that failed closes it; another host may come first.
        disk.at_proof = desk.context._files.abandon
        refused = desk.send(append_wire("event-2", expect="0:9"), event(2))
        later = desk.send(append_wire("event-3"), event(3))
        await desk.wait_for(lambda: later.answer is not None)
        assert isinstance(refused.answer, Conflict)
        assert not later.ack.duplicate
        assert disk.proofs == proofs + 2


async def test_a_repeat_gets_its_first_answer(disk: SharedDisk) -> None:
    async with Desk(disk).open() as desk:
        await begin(desk)
    async with Desk(disk).open() as desk:
        for number in range(4):
            again = append(f"order-{number}", repeat=True)
            assert (await desk.do(again, user(str(number)))).ack.duplicate

"""D-Mail in the files: sending, delivery, and expiry."""

from collections.abc import Callable

import pytest

from steno_protocol import paths, timeline_entries
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position
from stenod.recovery.opened import Opened
from stenod.recovery.recovery_points import save_recovery_point
from support.lines import (
    append,
    checkpoint,
    clear,
    deliver,
    foreign,
    line,
    mail,
    prompt,
    restore,
    revert,
    stamped,
    user,
)
from support.simulated_disk import MOMENTS, Death, SimulatedDisk, Survival
from support.stored_session import StoredSession, apply, find_key, fresh, lines_of

PATH = "/disk/demo"

SEND = mail("m", 1, "do not open the door", by="sub-agent")


def prepared() -> tuple[SimulatedDisk, StoredSession]:
    """A session with two checkpoints, closed and durable."""
    disk, session, opened = fresh()
    apply(opened, append("k1"), user("one"))
    apply(opened, checkpoint("c0"))
    apply(opened, append("k2"), user("two"))
    apply(opened, checkpoint("c1", add_user_message=True))
    apply(opened, append("k3"), user("three"))
    opened.log.close()
    disk.sync_all()
    return disk, session


def check_sent_once(session: StoredSession, *, was_told: bool) -> None:
    """The mail waits or it does not; the same key leads to one that waits."""
    opened = session.open()
    waits = opened.machine.mail is not None
    assert waits or not was_told, "a mail that was acknowledged is gone"
    assert opened.machine.mail == session.mail()
    assert (find_key(opened, "m") is not None) == waits

    ack = apply(opened, SEND)

    assert ack.duplicate == waits
    assert (ack.head, ack.checkpoint_id) == ("0:6", 1)
    again = apply(opened, SEND)
    assert (again.duplicate, again.head, again.checkpoint_id) == (True, "0:6", 1)
    assert [entry.key for entry in session.timeline() if entry.kind == timeline_entries.SENT] == [
        "m"
    ]
    found = session.mail()
    assert found is not None
    assert (found.id, found.message, found.cursor) == ("m", "do not open the door", "0:3")
    opened.log.close()
    assert session.open().machine.mail == found


def calls_of_a_send() -> tuple[SimulatedDisk, range]:
    disk, _ = prepared()
    rehearsal = disk.clone()
    again = StoredSession(rehearsal, PATH)
    first = len(rehearsal.calls)
    apply(again.open(), SEND)
    return disk, range(first, len(rehearsal.calls))


def test_mail_is_sent_or_not_when_the_send_dies_at_any_call() -> None:
    disk, calls = calls_of_a_send()
    states = set[bool]()
    for call in calls:
        for moment in MOMENTS:
            for survival in (*Survival, None):
                world = disk.clone()
                world.reseed(call)
                session = StoredSession(world, PATH)
                arm = world.kill_at if survival is None else world.crash_at
                arm(call, moment)
                was_told = False
                try:
                    apply(session.open(), SEND)
                    was_told = True
                    world.heal()
                    world.crash()
                except Death:
                    world.restart(survival)
                states.add(session.mail() is not None)
                check_sent_once(session, was_told=was_told)
    assert states == {True, False}


# --- refusals ------------------------------------------------------------------------------------


def test_delivery_of_a_mail_that_is_not_pending_states_its_fate() -> None:
    _, session = prepared()
    opened = session.open()
    with pytest.raises(
        NotFound, match=r"D-Mail x is not pending: it was never sent.*no mail is pending"
    ):
        apply(opened, deliver("d", "x"))
    apply(opened, SEND)
    with pytest.raises(NotFound, match="never sent to this session; the mail m is pending"):
        apply(opened, deliver("d", "x"))
    apply(opened, deliver("d", "m"))
    with pytest.raises(NotFound, match="it was delivered as generation 1; no mail is pending"):
        apply(opened, deliver("d2", "m"))
    apply(opened, mail("m2", 0))
    apply(opened, clear("c"))
    with pytest.raises(NotFound, match="it expired when the session was cleared as generation 2"):
        apply(opened, deliver("d3", "m2"))


def test_a_mail_to_a_checkpoint_inside_a_batch_is_refused_before_it_waits() -> None:
    disk, session = prepared()
    first, second = stamped("b", ["x", "y"])
    disk.foreign.append(f"{PATH}/context.jsonl", first + line({"role": "_checkpoint", "id": 2}))
    disk.foreign.append(f"{PATH}/context.jsonl", second + foreign("end"))
    opened = session.open()

    with pytest.raises(BadRequest, match="inside the batch 'b'"):
        apply(opened, mail("m", 2))
    assert session.mail() is None


# --- delivery ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [False, True])
def test_a_delivery_is_a_revert_a_checkpoint_and_the_message(shown: bool) -> None:
    _, session = prepared()
    opened = session.open()
    kept = lines_of(opened)[:3]
    apply(opened, SEND)

    ack = apply(opened, deliver("d", "m", add_user_message=shown, by="parent"))

    now = lines_of(opened)
    assert now[:3] == kept
    count = 3 if shown else 2
    assert ack.head == f"1:{3 + count}"
    assert ack.checkpoint_id == 2
    stamps = [f'"_by":"parent","_id":"d.{index}/{count}"'.encode() for index in range(count)]
    assert all(stamp in data for stamp, data in zip(stamps, now[3:], strict=True))
    assert now[3].startswith(b'{"role":"_checkpoint","id":2,')
    assert (b"<system>CHECKPOINT 2</system>" in now[4]) == shown
    assert b"do not open the door" in now[-1]
    last = session.timeline()[-1]
    assert (last.kind, last.kept, last.details["mail"]) == ("delivered", 3, "m")
    assert opened.machine.counters.n_checkpoints == 3
    assert session.mail() is None


# --- expiry --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "is_left"),
    [
        (revert("r", 0), False),
        (revert("r", 1), False),
        (revert("r", 2), True),
        (clear("r"), False),
        (restore("r", 0), False),
        (prompt("r", "be kind"), True),
    ],
)
@pytest.mark.parametrize("with_mark", [False, True])
def test_a_mail_expires_in_the_very_rewrite_that_drops_its_checkpoint(
    command: object, is_left: bool, with_mark: bool
) -> None:
    disk, session = prepared()
    opened = session.open()
    apply(opened, prompt("p", "be good"))
    apply(opened, checkpoint("c2"))
    apply(opened, SEND)

    apply(opened, command)  # type: ignore[arg-type]

    expired = session.timeline()[-1].details.get("expired_mail")
    assert expired == (None if is_left else "m")
    assert (session.mail() is not None) == is_left
    reopen(disk, session, opened, with_mark=with_mark)
    assert (session.mail() is not None) == is_left


def reopen(
    disk: SimulatedDisk, session: StoredSession, opened: Opened, *, with_mark: bool
) -> Opened:
    if with_mark:
        save_recovery_point(opened)
    else:
        disk.plant(f"{PATH}/{paths.MARK}")
    opened.log.close()
    return session.open()


@pytest.mark.parametrize(
    "rotate",
    [
        lambda disk: disk.foreign.rename(f"{PATH}/context.jsonl", "context_1.jsonl"),
        lambda disk: disk.foreign.link(f"{PATH}/context.jsonl", "context_1.jsonl"),
    ],
    ids=["renamed", "linked"],
)
def test_a_mail_expires_when_another_program_rotates_the_session(
    rotate: Callable[[SimulatedDisk], None],
) -> None:
    disk, session = prepared()
    opened = session.open()
    apply(opened, SEND)
    opened.log.close()
    rotate(disk)
    disk.foreign.replace(f"{PATH}/context.jsonl", foreign("theirs"))

    opened = session.open()

    assert opened.machine.head == Position(1, 1)
    assert opened.machine.mail is None
    with pytest.raises(NotFound, match="it expired when its checkpoint was removed"):
        apply(opened, deliver("d", "m"))
    assert apply(opened, checkpoint("c")).checkpoint_id == 2
    apply(opened, mail("m2", 2))
    assert (found := session.mail()) is not None
    assert found.id == "m2"

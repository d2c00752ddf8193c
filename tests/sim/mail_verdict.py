"""What must be true of a session's D-Mail at the end: sent once, delivered at most once."""

from collections.abc import Sequence

from sim.clients import Fate, Follower, Order, is_mail
from sim.files import Files, Lines
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry


def check_mail(
    files: Files, happenings: Sequence[TimelineEntry], orders: Sequence[Order]
) -> str | None:
    """Follow every mail through the rewrites: it waits as long as its checkpoint's line is there.

    Returns:
        The id of the mail that waits at the end.
    """
    sent = [entry for entry in happenings if entry.kind == "sent"]
    for order in orders:
        if is_mail(order):
            _check_order(order, [entry for entry in sent if entry.key == order.key])
    waiting: str | None = None
    number, bound = 0, b""
    for entry in happenings:
        if entry.kind == "sent":
            given_up = entry.details.get("replaces")
            assert waiting == given_up, f"{entry.key} was sent while {waiting} waited"
            waiting, number = entry.key, entry.details["checkpoint_id"]
            bound = _bound_line(files, entry)
        elif files.rewrites.get(entry.generation) is entry:
            is_taken = entry.kind == "delivered"
            assert not is_taken or entry.details["mail"] == waiting, f"not there: {entry}"
            is_over = (
                not is_taken and waiting is not None and not _is_there(files, entry, number, bound)
            )
            told = entry.details.get("expired_mail")
            assert told == (waiting if is_over else None), f"{waiting} at {entry}"
            waiting = None if is_taken or is_over else waiting
    return waiting


def check_told(follower: Follower, waiting: str | None) -> None:
    """Whoever follows to the end knows which mail waits."""
    event = follower.mail
    if waiting is not None:
        assert event is not None, f"nobody was told of {waiting}"
        assert (event.state, event.id) == ("sent", waiting)
    else:
        assert event is None or event.state != "sent", f"{event.id} is gone, which nobody was told"


def _check_order(order: Order, entries: Sequence[TimelineEntry]) -> None:
    if order.fate is Fate.REFUSED:
        assert not entries, f"{order.key} was refused and sent"
        return
    assert len(entries) == 1, f"{order.key} was sent {len(entries)} times"
    for ack in order.acks:
        assert ack.checkpoint_id == entries[0].details["checkpoint_id"]
        assert ack.head == entries[0].details["head"]


def _bound_line(files: Files, entry: TimelineEntry) -> bytes:
    """The line of the checkpoint that a mail goes back to, which nobody else's line is."""
    generation, line = Position.parse(entry.details["cursor"])
    head = Position.parse(entry.details["head"])
    assert head.generation == entry.generation
    present = files.generations[entry.generation][: head.line]
    number = entry.details["checkpoint_id"]
    assert files.find_checkpoint(number, entry.generation, present) == (generation, line)
    return files.generations[generation][line]


def _is_there(files: Files, entry: TimelineEntry, number: int, bound: bytes) -> bool:
    """Whether a checkpoint's line can be gone back to after a rewrite, a restore left aside."""
    if entry.kind == "restored":
        return False
    after: Lines = files.generations[entry.generation][: entry.details["lines"]]
    place = files.find_checkpoint(number, entry.generation, after)
    return place is not None and files.generations[place.generation][place.line] == bound

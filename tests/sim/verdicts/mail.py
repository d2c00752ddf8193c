"""The promises about a session's D-Mail: sent once, delivered at most once."""

from collections.abc import Mapping

from sim.files import Folder
from sim.orders import Order
from steno_protocol.commands import SendDmail
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry


def check_mail(folder: Folder, orders: Mapping[str, Order]) -> str | None:
    """Follow every mail through the rewrites: it waits as long as its checkpoint's line is there.

    Returns:
        The id of the mail that waits at the end.
    """
    rewrites = folder.rewrites
    waiting: str | None = None
    number, bound = 0, b""
    for entry in folder.entries:
        if entry.kind == "sent":
            _check_replaced(entry, waiting, orders)
            waiting, number = entry.key, entry.details["checkpoint_id"]
            bound = _bound_line(folder, entry)
        elif rewrites.get(entry.generation) is entry:
            is_taken = entry.kind == "delivered"
            assert not is_taken or entry.details["mail"] == waiting, f"it does not wait: {entry}"
            is_over = (
                not is_taken and waiting is not None and not _is_there(folder, entry, number, bound)
            )
            expired = entry.details.get("expired_mail")
            assert expired == (waiting if is_over else None), f"{waiting} at {entry}"
            waiting = None if is_taken or is_over else waiting
    return waiting


def _check_replaced(entry: TimelineEntry, waiting: str | None, orders: Mapping[str, Order]) -> None:
    """A mail takes the place of another only if its sender asked for it."""
    replaced = entry.details.get("replaces")
    assert replaced == waiting, f"{entry.key} was sent while {waiting} waited"
    command = orders[entry.key or ""].command
    assert isinstance(command, SendDmail)
    assert replaced in (None, command.replaces), f"{entry.key} replaced {replaced}"


def _bound_line(folder: Folder, entry: TimelineEntry) -> bytes:
    """The line of the checkpoint that a mail goes back to, which is unique."""
    generation, line = Position.parse(entry.details["cursor"])
    head = Position.parse(entry.details["head"])
    assert head.generation == entry.generation
    present = folder.generations[entry.generation][: head.line]
    number = entry.details["checkpoint_id"]
    assert folder.find_checkpoint(number, entry.generation, present) == (generation, line)
    return folder.generations[generation][line]


def _is_there(folder: Folder, entry: TimelineEntry, number: int, bound: bytes) -> bool:
    """Whether a checkpoint's line can be gone back to after a rewrite that is no restore."""
    if entry.kind == "restored":
        return False
    place = folder.find_checkpoint(number, entry.generation, folder.after(entry))
    return place is not None and folder.generations[place.generation][place.line] == bound

"""The promises about what clients see: followers, mirrors, readers, and repeated replies."""

import json
from collections.abc import Mapping, Sequence, Set

from sim.agents import Agent, Look, Reading, Repeat, Watcher
from sim.files import Folder, Lines, stamp_of
from sim.followers import Follower
from sim.orders import Order
from sim.verdicts.orders import TEMPORARY, Tree
from sim.writers import WireSent
from steno._sansio.mirror import Mirror
from steno._sansio.wire_events import WireReader
from steno_protocol import commands
from steno_protocol.context import ContextState
from steno_protocol.errors import NotFound, Outcome, StorageFailed, Unreachable
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, MailReport

Waiting = Mapping[str, str | None]
"""The id of the D-Mail that waits in each session."""


# --- a writer's clients --------------------------------------------------------------------------


def check_follower(follower: Follower, generations: Sequence[Lines]) -> None:
    """Every line that a follower saw is in the files where it saw it."""
    for (generation, line), data in follower.seen.items():
        found = generations[generation][line]
        assert found == data, f"a follower saw {data!r} at {generation}:{line}, not {found!r}"


def check_mail_event(follower: Follower, waiting: str | None) -> None:
    """A follower at the end of a session knows which mail waits."""
    event = follower.mail
    if waiting is not None:
        assert event is not None, f"a follower got no event of {waiting}"
        assert (event.state, event.id) == ("sent", waiting)
    else:
        assert event is None or event.state != "sent", f"{event.id} is gone without an event"


def check_wire_answers(answers: Sequence[WireSent], tree: Tree) -> None:
    """Acks come in the order of the file, and each event has the durable head of its time."""
    acks = [sent.answer for sent in answers if isinstance(sent.answer, Ack)]
    fresh = [ack for ack in acks if ack.durability == "synced" and not ack.duplicate]
    firsts = [Position.parse(ack.first) for ack in fresh]
    assert firsts == sorted(set(firsts)), f"answered in another order: {firsts}"
    (folder,), (places,) = tree.folders.values(), tree.places.values()
    for sent in answers:
        place = places.get(sent.command.key)
        if not isinstance(sent.answer, Ack) or sent.answer.duplicate or place is None:
            continue
        if sent.answer.first != f"0:{place.line}":
            # It was acknowledged as written, and withdrawn.
            continue
        least, most = sent.heads
        for line in folder.wire[place.line : place.line + place.count]:
            at = Position.parse(json.loads(line)["_at"])
            assert least <= at <= most, f"{place} is joined to {at}, not in {least}..{most}"


# --- a daemon's clients --------------------------------------------------------------------------


def check_agent(agent: Agent, tree: Tree, waiting: Waiting, orders: Mapping[str, Order]) -> None:
    """Check everything that one agent saw."""
    for session, mirror in agent.mirrors.items():
        _check_mirror(f"{agent.name}'s mirror of {session}", mirror, tree.folders.get(session))
    for watcher in agent.watchers:
        _check_watcher(f"{agent.name}'s view", watcher, tree.folders)
        _check_watched_mail(agent.name, watcher, waiting)
    for look in agent.looks:
        _check_look(look, waiting, orders)


def _check_mirror(name: str, mirror: Mirror, folder: Folder | None) -> None:
    error = mirror.follower.error
    if error is not None:
        # An error before the end of the backlog is reported, and the agent asks again.
        is_reported = isinstance(error, NotFound) or not mirror.follower.is_live
        assert is_reported, f"{name} ended with {error!r}"
        return
    assert folder is not None, f"{name} goes on, and the session is gone"
    state = ContextState(len(folder.generations) - 1)
    state.apply_lines(folder.present)
    assert mirror.state.head == state.head, f"{name} is at {mirror.state.head}, not {state.head}"
    assert mirror.history == state.history, f"{name} is another history"
    assert mirror.state.token_count == state.token_count, f"{name} counts other tokens"


def _check_watcher(name: str, watcher: Watcher, folders: Mapping[str, Folder]) -> None:
    follower = watcher.follower
    if follower.error is not None:
        is_reported = isinstance(follower.error, NotFound | StorageFailed | Unreachable)
        assert is_reported, f"{name} ended with {follower.error!r}"
        return
    folder = folders.get(follower.session)
    assert folder is not None, f"{name} goes on, and {follower.session} is gone"
    is_wire = follower.file == "wire"
    assert watcher.generation == (0 if is_wire else len(folder.generations) - 1)
    found = folder.wire if is_wire else folder.present
    assert watcher.lines == found, f"{name} of {follower.session} has other lines"


def _check_watched_mail(name: str, watcher: Watcher, waiting: Waiting) -> None:
    """A watcher at the end of a session knows which mail waits."""
    follower, event = watcher.follower, watcher.mail
    if follower.error is not None:
        return
    if follower.file == "wire":
        assert event is None, f"{name} got {event} from the wire file"
        return
    mail = waiting[follower.session]
    if mail is not None:
        assert event is not None, f"{name} got no event of {mail}"
        assert (event.state, event.id) == ("sent", mail), f"{name}: {event}, {mail} waits"
    elif event is not None and watcher.mail_name == follower.name:
        assert event.state != "sent", f"{event.id} is gone without an event to {name}"


def _check_look(look: Look, waiting: Waiting, orders: Mapping[str, Order]) -> None:
    if (error := look.pending.error) is not None:
        assert not look.is_last or isinstance(error, NotFound), repr(error)
        return
    report = look.pending.reply
    assert isinstance(report, MailReport)
    found = report.mail
    if look.is_last:
        shown = None if found is None else found.id
        assert shown == waiting[look.session], f"{shown} is shown, {waiting[look.session]} waits"
    if found is None:
        return
    assert found.id not in look.gone, f"{found.id} waits, and was delivered"
    command = orders[found.id].command
    assert isinstance(command, commands.SendDmail)
    assert (command.session, command.message) == (look.session, found.message)
    assert command.checkpoint_id == found.checkpoint_id


def check_reading(reading: Reading, tree: Tree, repeated: Set[str]) -> None:
    """A reading is the beginning of a file, with all that was done before it began.

    Args:
        reading: the lines that were read.
        tree: all files.
        repeated: keys that were sent again after their acks: a withdrawn command may have come
            to the same place later.
    """
    if not reading.lines:
        return
    lines = [line for _, line in reading.lines]
    assert [position.line for position, _ in reading.lines] == list(range(len(lines)))
    number = reading.lines[0][0].generation
    is_wire = isinstance(reading.reader, WireReader)
    files = {name: each.wire if is_wire else each.lines(number)
             for name, each in tree.folders.items()}  # fmt: skip
    is_there = any(found[: len(lines)] == lines for found in files.values())
    assert is_there, f"what was read of {reading.session} is in no file"
    if not tree.has_lived_on(reading.session):
        return
    found = files[reading.session]
    for order in reading.done_before:
        ack = order.replies[0]
        is_certain = ack.durability == "synced" or order.key not in repeated
        if order.is_event is not is_wire or not is_certain:
            continue
        first = Position.parse(ack.first)
        is_there = first.line < len(found) and stamp_of(found[first.line]).key == order.key
        assert first.generation != number or not is_there or first.line < len(lines), (
            f"{order.key} at {first} was done, and then {len(lines)} lines were read"
        )


def check_repeat(repeat: Repeat, tree: Tree, *, is_sure: bool) -> None:
    """A command that is sent again after its reply gets that reply again."""
    order = repeat.order
    first = order.replies[0]
    is_certain = is_sure or first.durability == "synced"
    if not (is_certain and tree.has_lived_on(order.session)):
        return
    if (error := repeat.pending.error) is not None:
        is_open = error.outcome is Outcome.UNKNOWN or isinstance(error, TEMPORARY)
        assert is_open, f"{order.key} was acked, and now {error!r}"
        return
    ack = repeat.pending.reply
    assert isinstance(ack, Ack)
    assert ack.duplicate, f"{order.key} was applied again: {ack}"
    again = (ack.first, ack.last, ack.head, ack.checkpoint_id)
    assert again == (first.first, first.last, first.head, first.checkpoint_id), f"{order.key}"


def check_joins(folder: Folder, orders: Sequence[Order]) -> None:
    """An event has the context's head of its time: behind all that its agent had done before."""
    joined = {
        key: Position.parse(json.loads(line)["_at"])
        for line in folder.wire[1:]
        if (key := stamp_of(line).key)
    }
    keys = folder.keys()
    for order in orders:
        before = order.after
        if before is None or not {order.key, before.key} <= keys:
            continue
        if order.key in joined:
            head, at = Position.parse(before.replies[0].head), joined[order.key]
            assert at >= head, f"{order.key} is joined to {at}, and {before.key} made {head}"
        elif before.key in joined and order.replies and isinstance(order.replies[0], Ack):
            head, at = Position.parse(order.replies[0].head), joined[before.key]
            assert at <= head, f"{before.key} is joined to {at}, before {order.key} at {head}"

"""Damaged session folders: opening one is refused, or loses no whole record."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache

from fuzz.mutation import mutated
from fuzz.source import Source
from steno_protocol import paths
from steno_protocol.blocks import split_lines
from steno_protocol.commands import AppendWire, Mutation
from steno_protocol.context import ContextCounters, ContextState, Damaged, parse_line
from steno_protocol.errors import StenoError
from steno_protocol.positions import Position
from steno_protocol.records import stamp_of
from stenod.recovery import key_lookup, stream_opening
from stenod.recovery.opened import Opened, Opening
from stenod.recovery.recovery_points import save_recovery_point
from stenod.rewrite import compaction
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.handles import FileView
from support import lines
from support.lines import SESSION
from support.simulated_disk import SimulatedDisk
from support.stored_session import NOW_S, StoredSession, apply
from support.whole_sessions import PATH, World

DAMAGED = (
    paths.CONTEXT, paths.CONTEXT, paths.CONTEXT, paths.TIMELINE, paths.TIMELINE,
    paths.WIRE, paths.MARK, paths.recovery_point_file(paths.WIRE), paths.STATE,
    paths.generation_file(1), paths.generation_file(2),
)  # fmt: skip

Tree = dict[str, bytes]


def check(data: bytes) -> bool:
    """Damage the files of a session, then open it twice and work with it; True if it opened.

    Raises:
        AssertionError: a whole record is lost, the second opening changed something, or an error
            has no type.
    """
    source = Source(data)
    tree = dict(source.pick(good_trees()))
    _damage(tree, source)
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    for name, content in tree.items():
        disk.plant(f"{PATH}/{name}", content)
    stored = StoredSession(disk, PATH)
    _look(stored)
    assert _files(disk) == tree, "a query changed the session"
    assert not disk._handles, "a query left files open"
    first = _open_and_close(stored)
    after = _files(disk)
    assert not disk._handles, "opening a session left files open"
    _check_kept(tree, after, stored, is_stamped=first is None or first.is_stamped)
    second = _open_and_close(stored)
    assert second == first, f"opened as {first}, then as {second}"
    again = _files(disk)
    changed = {name for name in {*after, *again} if after.get(name) != again.get(name)}
    assert not changed, f"a second opening changed what the first had repaired: {changed}"
    if first is not None:
        _look(stored)
        _use(stored, source)
    return first is not None


@cache
def good_trees() -> tuple[Tree, ...]:
    """The files of short and long-lived sessions, as steno leaves them behind."""
    made = [_make(steps, stamp=stamp) for steps in (2, 5, 8, len(_LIFE)) for stamp in (True, False)]
    foreign = lines.foreign("theirs") + b'{"role":"_checkpoint","id":0}\n' + lines.foreign("more")
    return (*made, {}, {paths.CONTEXT: foreign}, {paths.CONTEXT: b"".join(_BATCH)})


_BATCH = [*lines.stamped("b", ["one", "two", "three"]), *lines.stamped("c", ["four"])]

_LIFE: tuple[tuple[Mutation, tuple[bytes, ...]], ...] = (
    (lines.prompt("p", "be kind"), ()),
    (lines.append("k1"), (lines.user("one"), lines.user("two"))),
    (lines.checkpoint("c0", add_user_message=True), ()),
    (lines.usage("u", 40), ()),
    (lines.append("k2"), (lines.user("three \u2028"),)),
    (lines.checkpoint("c1"), ()),
    (lines.mail("m", 0), ()),
    (lines.revert("r", 1), ()),
    (lines.append("k3"), (lines.user("four"), lines.user("five"), lines.user("six"))),
    (lines.compact("x", "1:3", "1:7", 1), (lines.user("summary"),)),
    (lines.deliver("d", "m"), ()),
    (lines.append("k4"), (lines.user("seven"), lines.user("eight"))),
)


def _make(steps: int, *, stamp: bool) -> Tree:
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    stored = StoredSession(disk, PATH)
    opened = stored.open(stamp=stamp)
    for command, records in _LIFE[:steps]:
        apply(opened, command, *records)
    with _wire(stored, opened) as wire:
        for number in range(steps):
            events = [_EVENT] * (1 + number % 3)
            decision = wire.machine.decide(AppendWire(session=SESSION, key=f"w{number}"), events)
            wire.log.append(getattr(decision, "data", b""))
        wire.log.sync()
        wire.machine.commit()
        save_recovery_point(wire)
    save_recovery_point(opened)
    _close(opened)
    return _files(disk)


_EVENT = b'{"timestamp":1.5,"message":{"type":"TextPart","payload":{"text":"hi"}}}'


def _damage(tree: Tree, source: Source) -> None:
    for _ in range(1 + source.number(3)):
        name = source.pick(DAMAGED)
        match source.number(8):
            case 0:
                tree.pop(name, None)
            case 1:
                tree[name] = source.take(40)
            case 2:
                tree[name] = tree.get(source.pick(DAMAGED), b"")
            case _:
                tree[name] = mutated(tree.get(name, b""), source)


# --- working with a session -----------------------------------------------------------------------


def _look(stored: StoredSession) -> None:
    """Use every query of a session that opens nothing for writing."""
    world = World(stored.disk)
    trees = world.trees
    place = trees.place(SESSION)
    looks: list[Callable[[], object]] = [
        lambda: trees.inspect(place),
        lambda: trees.pending_mail(place),
        lambda: trees.timeline(place),
        lambda: _release(trees.readable(place, 1).view),
        lambda: _verify(trees, place),
        world.listed,
    ]
    for look in looks:
        with suppress(StenoError, OSError):
            look()


def _release(view: FileView) -> None:
    view.release()


def _verify(trees: SessionFolders, place: Place) -> None:
    context = trees.readable(place, None)
    try:
        wire = trees.readable_stream(place, paths.WIRE)
        try:
            trees.verify(place, {paths.CONTEXT: context.view, paths.WIRE: wire.view}, live=None)
        finally:
            wire.view.release()
    finally:
        context.view.release()


@dataclass(slots=True)
class Seen:
    """The state of a session when it was opened."""

    head: Position
    counters: ContextCounters
    incarnation: str
    is_stamped: bool
    wire: Position | None = None


def _open_and_close(stored: StoredSession) -> Seen | None:
    """Open both files for their writers; return their state, None if they cannot be opened."""
    try:
        opened = stored.open()
    except (StenoError, OSError):
        return None
    machine = opened.machine
    found = Seen(machine.head, machine.counters, opened.incarnation, machine.stamp)
    try:
        with suppress(StenoError, OSError), _wire(stored, opened) as wire:
            found.wire = wire.machine.head
            save_recovery_point(wire)
    finally:
        save_recovery_point(opened)
        _close(opened)
    return found


@contextmanager
def _wire(stored: StoredSession, opened: Opened) -> Iterator[Opened]:
    opening = Opening(session=SESSION, path=PATH, now=NOW_S, incarnation="first")
    wire = stream_opening.open_stream(
        stored.disk,
        stored.disk.open_root(PATH),
        opening,
        name=paths.WIRE,
        stamp=opened.machine.stamp,
        context_head=lambda: opened.machine.head,
    )
    try:
        yield wire
    finally:
        _close(wire)


def _use(stored: StoredSession, source: Source) -> None:
    """Send commands to an opened session: each is applied, or refused with a type."""
    opened = stored.open()
    try:
        count = opened.machine.counters.n_checkpoints
        head = opened.machine.head
        state = ContextState(head.generation)
        state.apply_block(_durable(opened))
        assert (state.head, state.token_count) == (head, opened.machine.counters.token_count)
        key_lookup.build_filter(opened.log)
        view = opened.log.view(head.generation)
        compaction.choose_cut(view, 1, head.line)
        view.release()
        for command, records in _uses(count, head, source):
            try:
                apply(opened, command, *records)
            except (StenoError, OSError):
                continue
            stored_bytes = _durable(opened) + opened.log.timeline()
            assert not opened.machine.stamp or command.key.encode() in stored_bytes, command
    finally:
        _close(opened)


def _uses(
    count: int, head: Position, source: Source
) -> Iterator[tuple[Mutation, tuple[bytes, ...]]]:
    number = source.number(max(1, min(count, 200)))
    kinds: list[tuple[Mutation, tuple[bytes, ...]]] = [
        (lines.append("use-0"), (lines.user("used"),)),
        (lines.checkpoint("use-1"), ()),
        (lines.mail("use-2", number), ()),
        (lines.revert("use-3", number), ()),
        (lines.compact("use-4", str(Position(head.generation, 1)), str(head), count), _SUMMARY),
        (lines.restore("use-5", source.number(4)), ()),
        (lines.prompt("use-6", "again"), ()),
        (lines.deliver("use-7", source.pick(("use-2", "m"))), ()),
        (lines.revert("use-8", number, drop_damaged=True), ()),
        (lines.clear("use-9"), ()),
    ]
    start = source.number(len(kinds))
    yield from [(kinds[0][0], kinds[0][1]), *kinds[start:]] if start else kinds


_SUMMARY = (lines.user("in short"),)


# --- promises ------------------------------------------------------------------------------------


def _check_kept(before: Tree, after: Tree, stored: StoredSession, *, is_stamped: bool) -> None:
    """Check that cut bytes were copied first, and that no whole foreign record was cut."""
    for name in (paths.CONTEXT, paths.WIRE, paths.TIMELINE):
        old, new = before.get(name, b""), after.get(name, b"")
        kept = _common(old, new)
        cut = old[kept:]
        assert not cut or any(cut in piece for piece in stored.quarantined()), f"{name}: {cut!r}"
        if name == paths.CONTEXT:
            lost = [line for line in split_lines(cut) if _is_record(line, is_stamped=is_stamped)]
            assert not lost, f"whole records were cut: {lost}"
    for name, content in before.items():
        if name.startswith("context_"):
            assert after.get(name) in (content, None), f"{name} was changed"


def _common(old: bytes, new: bytes) -> int:
    """The count of bytes with which both files begin."""
    size = min(len(old), len(new))
    while old[:size] != new[:size]:
        size -= 1
    return size


def _is_record(line: bytes, *, is_stamped: bool) -> bool:
    """True for a whole record that may not be cut: one of steno's may be half a batch."""
    is_whole = line.endswith(b"\n") and b"\0" not in line and bool(line.strip())
    is_ours = is_stamped and stamp_of(line) is not None
    return is_whole and not is_ours and not isinstance(parse_line(line), Damaged)


def _files(disk: SimulatedDisk) -> Tree:
    """The files of the session and of its folders."""
    start = len(PATH) + 1
    return {path[start:]: data for path, data in disk.tree().items() if path.startswith(PATH)}


def _durable(opened: Opened) -> bytes:
    return opened.log.read(opened.log.generation, 0, opened.log.synced)


def _close(opened: Opened) -> None:
    opened.log.close()

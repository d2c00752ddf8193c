"""The promises beside a foreign program, which moves lines to other positions.

An acknowledged line stands as it was in the context or in a generation, or in the events; a piece
of the foreign program stands in some file of the folder. Both hold as soon as a power cut can take
them no more. A key is in no file twice, and in none if its command was refused.
"""

from collections.abc import Iterable, Mapping

from sim.files import Stamp, record_of, stamp_of
from sim.foreign_program import ASIDE, ForeignProgram
from sim.orders import Fate, Order
from steno_protocol import paths, records
from steno_protocol.errors import Internal, Outcome, StenoError
from steno_protocol.positions import Position
from steno_protocol.replies import Ack
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.recovery_point import decode_recovery_point
from support.happenings import check_facts
from support.simulated_disk import SimulatedDisk
from support.writing import PATH


class ForeignVerdict:
    """The promises about each order and each foreign piece, checked after every life.

    Args:
        disk: where the session lies.
        orders: everything that clients asked for.
        program: the foreign program.
        is_strict: the program changes nothing in place, so that positions stay.

    Attributes:
        faults: the faults of replies and events, found at the moment when they came.
    """

    def __init__(
        self, disk: SimulatedDisk, orders: list[Order], program: ForeignProgram, *, is_strict: bool
    ) -> None:
        self.faults: list[str] = []
        self._disk = disk
        self._orders = orders
        self._program = program
        self._is_strict = is_strict
        self._past: dict[str, bytes] = {}

    # --- answers -------------------------------------------------------------------------------

    def take(self, order: Order, answer: Ack | StenoError, durable: bytes | None) -> None:
        """Take an answer that came just now, with the durable bytes of the order's file."""
        order.copies = []
        try:
            if isinstance(answer, StenoError):
                self._take_error(order, answer)
            else:
                self._take_ack(order, answer, durable)
        except AssertionError as fault:
            self.faults.append(f"{order.key}: {fault}")

    def _take_ack(self, order: Order, ack: Ack, durable: bytes | None) -> None:
        if ack.durability != "synced":
            order.acknowledge(ack)
            return
        self._look_after(order)
        is_harmed = self._is_spoiled(order)
        if is_harmed or (ack.rotated is not None and (order.is_lost or not self._is_strict)):
            # Its lines may be gone, and then it is applied once more.
            order.replies = []
        order.acknowledge(ack)
        fresh = [each for each in order.acks if not each.duplicate]
        assert len(fresh) <= 1, f"applied {len(fresh)} times"
        if self._is_strict and not self._program.copied:
            distinct = {(each.first, each.head) for each in order.acks}
            assert len(distinct) == 1, f"answered differently: {distinct}"
        if ack.rotated is not None:
            return
        found = self._pieces_of(order)
        if not found and (order.is_lost or is_harmed):
            return  # known from memory, or from a file that lost its name
        assert found, "acked, and nowhere as one piece"
        order.is_lost = False
        order.lines = found[0]
        if not ack.duplicate and self._is_strict and durable is not None:
            first, head = Position.parse(ack.first), Position.parse(ack.head)
            there = durable.splitlines(keepends=True)[first.line : head.line]
            assert there == order.lines, f"acked at {ack.first}, where {there} is durable"

    def _take_error(self, order: Order, error: StenoError) -> None:
        assert not isinstance(error, Internal), repr(error)
        if error.outcome is Outcome.UNKNOWN:
            return
        self._look_after(order)
        # The program may have put an older copy in the place of the file that held it; then every
        # place where it stands now is such a copy, too, see `_check_nowhere`.
        may_be_gone = order.is_lost or not self._is_strict or bool(self._program.copied)
        assert not order.acks or may_be_gone, f"acked, and now {error!r}"
        self._check_nowhere(order)
        if order.is_refused_by(error) and not order.acks:
            order.fate = Fate.REFUSED

    def _check_nowhere(self, order: Order) -> None:
        if self._is_spoiled(order):
            return  # its lines were changed
        for piece in self._pieces_of(order):
            is_copied = any(b"".join(piece) in copied for copied in self._program.copied)
            assert is_copied, f"not applied, and {piece} is there"

    def _pieces_of(self, order: Order) -> list[list[bytes]]:
        """The lines of a command, for each place where it stands whole."""
        count = max(1, len(order.records))
        stamps = [Stamp(order.key, part, count) for part in range(count)]
        found: list[list[bytes]] = []
        for data in self._files(order).values():
            lines = data.splitlines(keepends=True) if order.key.encode() in data else []
            for number in range(len(lines)):
                piece = lines[number : number + count]
                if [_stamp_in(each) for each in piece] == stamps:
                    found.append(piece)
        return found

    def _files(self, order: Order) -> Mapping[str, bytes]:
        """The files that a command's lines may stand in."""
        files = self.files()
        if order.is_event:
            return {paths.WIRE: files.get(paths.WIRE, b"")}
        found = {name: data for name, data in files.items() if _is_context(name)}
        return found | self._program.held_orphans()

    def files(self) -> dict[str, bytes]:
        """The session's files by name, without those in its folders."""
        cached = self._disk.folder_at(PATH).cached
        return {name: self._disk.content(f"{PATH}/{name}") for name in cached if "." in name}

    # --- power cuts ----------------------------------------------------------------------------

    def note_durable(self) -> None:
        """Record which pieces a power cut could not take now."""
        durable = _joined(self._disk.durable_tree())
        for piece in self._program.pieces:
            piece.is_durable = piece.is_durable or piece.whole in durable

    def forget_unsynced(self) -> None:
        """The power was cut: unsynced pieces of the foreign program may be gone."""
        everything = self._everything()
        pieces = self._program.pieces
        pieces[:] = [each for each in pieces if each.is_durable or each.data in everything]
        for piece in pieces:
            piece.is_line = piece.is_line and (piece.is_durable or piece.whole in everything)
        self._past = {}
        self._forget_unmarked()

    def forgive(self, kept_open: Iterable[object]) -> None:
        """The daemon died with the open files that it had not yet kept."""
        held = list(kept_open)
        for file, data in self._program.orphans:
            if file in held:
                self._program.destroy(data)
        self._program.orphans.clear()
        self._forget_unmarked()

    def _forget_unmarked(self) -> None:
        """Give up rewrites whose file was replaced and that no recovery point shows.

        A recovery point is written behind the answer and not synced.
        """
        path = f"{PATH}/{paths.recovery_point_file(paths.CONTEXT)}"
        point = (
            decode_recovery_point(self._disk.content(path)) if self._disk.has_file(path) else None
        )
        generation = -1 if point is None else point.generation
        for order in self._orders if self._program.copied else ():
            heads = [Position.parse(ack.head) for ack in order.acks if ack.rotated is not None]
            order.is_lost |= any(head.generation > generation for head in heads)

    # --- the verdict ---------------------------------------------------------------------------

    def judge(self) -> None:
        """Check every order and every foreign piece.

        Raises:
            AssertionError: a promise is broken; the message says which.
        """
        assert not self.faults, self.faults[0]
        files = self.files()
        context = {name: data for name, data in files.items() if _is_context(name)}
        self._judge_ours()
        self._judge_theirs(context, files.get(paths.WIRE, b""))
        for name, data in [*context.items(), (paths.WIRE, files.get(paths.WIRE, b""))]:
            _check_keys(name, data)
        _check_joined(files.get(paths.WIRE, b""))
        self._judge_rewrites(timeline.decode(files.get(paths.TIMELINE, b"")))
        self._judge_past(context)

    def _judge_ours(self) -> None:
        for order in self._orders:
            self._look_after(order)
            if order.fate is Fate.REFUSED:
                self._check_nowhere(order)

    def _look_after(self, order: Order) -> None:
        """Acknowledged lines are there, unless another program destroyed them."""
        if order.is_lost:
            return
        data = b"".join(self._files(order).values())
        missing = [line for line in order.lines if line not in data]
        if missing:
            assert self._is_spoiled(order), f"{order.key} was acked, and {missing} is nowhere"
            order.is_lost = True

    def _is_spoiled(self, order: Order) -> bool:
        """True when another program destroyed a line of a command."""
        key = order.key.encode()
        if any(key in line for line in self._program.spared) or self._is_mixed(order):
            return True
        # All lines behind one that was damaged in place are torn, and the rest of its batch.
        is_aside = not self._is_strict and bool(order.lines)
        return is_aside and any(line in self._quarantined() for line in order.lines)

    def _is_mixed(self, order: Order) -> bool:
        """True when half a line of theirs came into a string of a line that was written in parts.

        It is JSON and bears the key: nothing distinguishes it from the given record.
        """
        lines = [line for data in self._files(order).values() for line in data.splitlines()]
        stamps = [records.stamp_of(line + b"\n") for line in lines if b"theirs" in line]
        return order.key in [stamp.key for stamp in stamps if stamp is not None]

    def _judge_theirs(self, context: Mapping[str, bytes], wire: bytes) -> None:
        everything = self._everything()
        quarantined = self._quarantined()
        lines = {line for data in [*context.values(), wire] for line in data.splitlines()}
        for piece in self._program.pieces:
            if self._program.is_spared(piece):
                continue
            assert piece.data in everything, f"{piece.data!r} of another program is nowhere"
            if piece.is_line:
                is_there = piece.data in lines or piece.data in quarantined
                assert is_there, f"{piece.data!r} is a line no more"

    def _judge_rewrites(self, happenings: list[TimelineEntry]) -> None:
        if not self._is_strict:
            return  # edits in place also change the names that show whether one took place
        check_facts(happenings)
        keys = [entry.key for entry in happenings]
        for order in self._orders:
            if any(ack.rotated is not None for ack in order.acks) and not order.is_lost:
                assert keys.count(order.key) == 1, (
                    f"{order.key} happened {keys.count(order.key)} times"
                )
            elif order.fate is Fate.REFUSED:
                assert order.key not in keys, f"{order.key} was refused, and happened"

    def _judge_past(self, context: Mapping[str, bytes]) -> None:
        """A generation never changes."""
        for name, data in self._past.items():
            assert context.get(name, data) == data, f"{name} was changed"
        present = self._inode(paths.CONTEXT)
        # A rewrite that was cut short leaves a second name of the present file.
        past = (name for name in context if self._inode(name) != present)
        self._past = {name: context[name] for name in past}

    def _inode(self, name: str) -> int | None:
        node = self._disk.folder_at(PATH).cached.get(name)
        return None if node is None else node.inode

    def _everything(self) -> bytes:
        return _joined(self._disk.tree())

    def _quarantined(self) -> bytes:
        tree = self._disk.tree().items()
        return b"\0".join(data for path, data in tree if paths.QUARANTINE in path)


def _joined(tree: Mapping[str, bytes]) -> bytes:
    """All files of a session, each between a newline and a NUL, so that no match spans two."""
    paths = (path for path in tree if path.startswith(PATH) and not path.endswith(ASIDE))
    return b"".join(b"\n%b\0" % tree[path] for path in paths)


def _is_context(name: str) -> bool:
    return name == paths.CONTEXT or paths.generation_of(name) is not None


def _stamp_in(line: bytes) -> Stamp | None:
    """The stamp of a whole line without foreign bytes, else None."""
    stamp = stamp_of(line)
    is_ours = line.endswith(b"\n") and b"theirs" not in line
    return stamp if is_ours and stamp.key else None


def _check_keys(name: str, data: bytes) -> None:
    """No command is applied twice in one file; a part of a torn one may be left."""
    seen = set[str]()
    expected: Stamp | None = None
    for line in data.splitlines(keepends=True):
        stamp = _stamp_in(line)
        is_next = stamp is not None and (stamp.index == 0 or stamp == expected)
        expected = stamp._replace(index=stamp.index + 1) if stamp and is_next else None
        if expected is not None and expected.index == expected.count:
            assert expected.key not in seen, f"{expected.key} is in {name} twice"
            seen.add(expected.key)


def _check_joined(wire: bytes) -> None:
    """The position in the context never falls along the events."""
    events = [record_of(line, has_foreign=True) for line in wire.splitlines()]
    found = [Position.parse(record["_at"]) for record in events if "_at" in record]
    assert found == sorted(found), f"the position in the context fell: {found}"

"""What was promised to those who wrote beside another program, and whether it was kept.

An acknowledged line stands as it was in the context or in a generation, or in the events; what
another program appended stands in some file of the folder. Both as soon as a power cut can take
them no more. A key is in no file twice, and where its command was refused in none.
"""

import json
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sim.clients import Make
from sim.intruder import ASIDE, Intruder
from steno_protocol import paths
from steno_protocol.commands import AppendWire
from steno_protocol.errors import (
    BadRequest,
    Conflict,
    Exists,
    NotFound,
    Outcome,
    StenoError,
    StorageFailed,
)
from steno_protocol.positions import Position
from steno_protocol.records import stamp_of
from steno_protocol.replies import Ack
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.recovery_point import decode_recovery_point
from support.happenings import check_facts
from support.simulated_disk import SimulatedDisk
from support.writing import PATH, Sent

TRIES_MAX = 80

_STAMP = re.compile(r"([A-Za-z0-9_-]+)(?:\.(\d+)/(\d+))?")


@dataclass(eq=False, slots=True)
class Wish:
    """One command that a client wants applied exactly once.

    Attributes:
        make: builds the command; True for a repeat.
        records: what comes with it.
        gives_up: leave it at the first definite failure.
        under_way: it was sent, and nobody answered yet.
        is_open: it is still wanted.
        is_refused: it definitely did not happen.
        acks: every synced answer.
        lines: what stands in the files because of it, once it was acknowledged.
        is_lost: what it wrote is gone by what another program did.
    """

    key: str
    make: Make
    records: list[bytes]
    gives_up: bool
    under_way: Sent | None = None
    tries: int = 0
    is_open: bool = True
    is_refused: bool = False
    acks: list[Ack] = field(default_factory=list[Ack])
    lines: list[bytes] = field(default_factory=list[bytes])
    is_lost: bool = False

    @property
    def is_event(self) -> bool:
        """True for one of the wire file."""
        return isinstance(self.make(False), AppendWire)


class Books:
    """Everything that was wanted, answered and written.

    Args:
        disk: where the session lies.
        intruder: the other program.
        is_strict: it changes nothing in place, so that positions are what they were.

    Attributes:
        faults: what was wrong with an answer at the moment when it was given.
    """

    def __init__(self, disk: SimulatedDisk, intruder: Intruder, *, is_strict: bool) -> None:
        self.wishes: list[Wish] = []
        self.faults: list[str] = []
        self._disk = disk
        self._intruder = intruder
        self._is_strict = is_strict
        self._past: dict[str, bytes] = {}

    def waiting(self) -> list[Wish]:
        """Those that a client would send again now."""
        return [wish for wish in self.wishes if wish.is_open and wish.under_way is None]

    def lose_answers(self) -> None:
        """The daemon is gone: what is on its way has no answer any more."""
        for wish in self.wishes:
            wish.under_way = None

    # --- answers -------------------------------------------------------------------------------

    def take(self, wish: Wish, answer: Ack | StenoError, durable: bytes | None) -> None:
        """A command was answered just now; `durable` is what is so of the file that it is in."""
        wish.under_way = None
        try:
            if isinstance(answer, StenoError):
                self._take_error(wish, answer)
            else:
                self._take_ack(wish, answer, durable)
        except AssertionError as fault:
            self.faults.append(f"{wish.key}: {fault}")

    def _take_ack(self, wish: Wish, ack: Ack, durable: bytes | None) -> None:
        wish.is_open = False
        if ack.durability != "synced":
            return
        self._look_after(wish)
        is_harmed = self._is_spoiled(wish)
        if is_harmed or (ack.rotated is not None and (wish.is_lost or not self._is_strict)):
            # It may be there no more, and then it is applied once more.
            wish.acks = []
        wish.acks.append(ack)
        fresh = [each for each in wish.acks if not each.duplicate]
        assert len(fresh) <= 1, f"applied {len(fresh)} times"
        if self._is_strict and not self._intruder.copied:
            told = {(each.first, each.head) for each in wish.acks}
            assert len(told) == 1, f"answered differently: {told}"
        if ack.rotated is not None:
            return
        found = self._pieces_of(wish)
        if not found and (wish.is_lost or is_harmed):
            return  # known from memory, or from a file that lost its name
        assert found, "acked, and nowhere as one piece"
        wish.is_lost = False
        wish.lines = found[0]
        if not ack.duplicate and self._is_strict and durable is not None:
            first, head = Position.parse(ack.first), Position.parse(ack.head)
            there = durable.splitlines(keepends=True)[first.line : head.line]
            assert there == wish.lines, f"acked at {ack.first}, where {there} is durable"

    def _take_error(self, wish: Wish, error: StenoError) -> None:
        assert type(error).__name__ != "Internal", repr(error)
        if error.outcome is Outcome.UNKNOWN:
            return
        self._look_after(wish)
        # An older copy may have been put in the place of a file that held it; where it stands now
        # has to be such a copy, too, see below.
        may_be_gone = wish.is_lost or not self._is_strict or bool(self._intruder.copied)
        assert not wish.acks or may_be_gone, f"acked, and now {error!r}"
        self._check_nowhere(wish)
        is_final = isinstance(error, (Conflict, NotFound, BadRequest, Exists))
        if is_final or (isinstance(error, StorageFailed) and wish.gives_up):
            wish.is_open, wish.is_refused = False, not wish.acks

    def _check_nowhere(self, wish: Wish) -> None:
        if self._is_spoiled(wish):
            return  # what is left of it is no longer what it was
        for piece in self._pieces_of(wish):
            is_copied = any(b"".join(piece) in copied for copied in self._intruder.copied)
            assert is_copied, f"not applied, and {piece} is there"

    def _pieces_of(self, wish: Wish) -> list[list[bytes]]:
        """The lines of a command, for each place where it stands whole."""
        count = max(1, len(wish.records))
        stamps = [f"{wish.key}.{part}/{count}" for part in range(count)]
        if count == 1:
            stamps = [wish.key]
        begin = b'"_id":"%b"' % stamps[0].encode()
        found: list[list[bytes]] = []
        for data in self._files(wish).values():
            lines = data.splitlines(keepends=True) if begin in data else []
            for number, line in enumerate(lines):
                piece = lines[number : number + count]
                if begin in line and [stamp_in(each) for each in piece] == stamps:
                    found.append(piece)
        return found

    def _files(self, wish: Wish) -> Mapping[str, bytes]:
        """The files that a command's lines may stand in."""
        files = self.files()
        if wish.is_event:
            return {paths.WIRE: files.get(paths.WIRE, b"")}
        found = {name: data for name, data in files.items() if _is_context(name)}
        return found | self._intruder.held_orphans()

    def files(self) -> dict[str, bytes]:
        """The session's files by name, those in its folders left out."""
        cached = self._disk.folder_at(PATH).cached
        return {name: self._disk.content(f"{PATH}/{name}") for name in cached if "." in name}

    # --- power cuts ----------------------------------------------------------------------------

    def note_durable(self) -> None:
        """Note which pieces a power cut could not take now."""
        durable = _joined(self._disk.durable_tree())
        for piece in self._intruder.pieces:
            piece.is_durable = piece.is_durable or piece.whole in durable

    def forget_unsynced(self) -> None:
        """The power was cut: what another program had not synced may be gone."""
        everything = self._everything()
        pieces = self._intruder.pieces
        pieces[:] = [each for each in pieces if each.is_durable or each.data in everything]
        for piece in pieces:
            piece.is_line = piece.is_line and (piece.is_durable or piece.whole in everything)
        self._past = {}
        self._forget_unmarked()

    def forgive(self, kept_open: Iterable[object]) -> None:
        """The daemon died, and so did what it had not yet kept of what it had open."""
        held = list(kept_open)
        for file, data in self._intruder.orphans:
            if file in held:
                self._intruder.destroy(data)
        self._intruder.orphans.clear()
        self._forget_unmarked()

    def _forget_unmarked(self) -> None:
        """What another program put in a rewrite's place tells not that it took place: a mark does.

        It is written behind the answer and not synced.
        """
        path = f"{PATH}/{paths.recovery_point_file(paths.CONTEXT)}"
        mark = (
            decode_recovery_point(self._disk.content(path)) if self._disk.has_file(path) else None
        )
        generation = -1 if mark is None else mark.generation
        for wish in self.wishes if self._intruder.copied else ():
            heads = [Position.parse(ack.head) for ack in wish.acks if ack.rotated is not None]
            wish.is_lost |= any(head.generation > generation for head in heads)

    # --- the verdict ---------------------------------------------------------------------------

    def judge(self) -> None:
        """Look for everything.

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
        for wish in self.wishes:
            self._look_after(wish)
            if wish.is_refused:
                self._check_nowhere(wish)

    def _look_after(self, wish: Wish) -> None:
        """What was acknowledged is there, unless another program destroyed it."""
        if wish.is_lost:
            return
        data = b"".join(self._files(wish).values())
        missing = [line for line in wish.lines if line not in data]
        if missing:
            assert self._is_spoiled(wish), f"{wish.key} was acked, and {missing} is nowhere"
            wish.is_lost = True

    def _is_spoiled(self, wish: Wish) -> bool:
        """True when another program destroyed a line of a command."""
        key = wish.key.encode()
        if any(key in line for line in self._intruder.spared) or self._is_mixed(wish):
            return True
        # Behind what was damaged in place all is torn, and of a batch that was, the rest.
        is_aside = not self._is_strict and bool(wish.lines)
        return is_aside and any(line in self._quarantined() for line in wish.lines)

    def _is_mixed(self, wish: Wish) -> bool:
        """True when half a line of theirs came into a string of a line that was written in parts.

        It is JSON and bears the key: nothing tells it from what was given.
        """
        lines = [line for data in self._files(wish).values() for line in data.splitlines()]
        stamps = [stamp_of(line + b"\n") for line in lines if b"theirs" in line]
        return wish.key in [stamp.key for stamp in stamps if stamp is not None]

    def _judge_theirs(self, context: Mapping[str, bytes], wire: bytes) -> None:
        everything = self._everything()
        quarantined = self._quarantined()
        lines = {line for data in [*context.values(), wire] for line in data.splitlines()}
        for piece in self._intruder.pieces:
            if self._intruder.is_spared(piece):
                continue
            assert piece.data in everything, f"{piece.data!r} of another program is nowhere"
            if piece.is_line:
                is_there = piece.data in lines or piece.data in quarantined
                assert is_there, f"{piece.data!r} is a line no more"

    def _judge_rewrites(self, happenings: list[TimelineEntry]) -> None:
        if not self._is_strict:
            return  # what tells whether one took place was changed, too
        check_facts(happenings)
        keys = [entry.key for entry in happenings]
        for wish in self.wishes:
            if any(ack.rotated is not None for ack in wish.acks) and not wish.is_lost:
                assert keys.count(wish.key) == 1, (
                    f"{wish.key} happened {keys.count(wish.key)} times"
                )
            elif wish.is_refused:
                assert wish.key not in keys, f"{wish.key} was refused, and happened"

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
    """All files of a session: each begins as behind a line, and ends as no line does."""
    paths = (path for path in tree if path.startswith(PATH) and not path.endswith(ASIDE))
    return b"".join(b"\n%b\0" % tree[path] for path in paths)


def _is_context(name: str) -> bool:
    return name == paths.CONTEXT or paths.generation_of(name) is not None


def stamp_in(line: bytes) -> str | None:
    """The stamp of a line that is a whole one, and nothing else."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    stamp = record.get("_id") if isinstance(record, dict) else None
    return stamp if isinstance(stamp, str) and b"theirs" not in line else None


def _check_keys(name: str, data: bytes) -> None:
    """No command is applied twice in one file; of a torn one a part may be left."""
    seen = set[str]()
    expected: str | None = None
    for line in data.splitlines(keepends=True):
        stamp = stamp_in(line)
        if stamp is None:
            expected = None
            continue
        match = _STAMP.fullmatch(stamp)
        key, index, size = ("", 0, 2) if match is None else _parts(match)
        is_next = index == 0 or stamp == expected
        expected = f"{key}.{index + 1}/{size}" if is_next else None
        if is_next and index + 1 == size:
            assert key not in seen, f"{key} is in {name} twice"
            seen.add(key)


def _parts(match: re.Match[str]) -> tuple[str, int, int]:
    return match[1], int(match[2] or 0), int(match[3] or 1)


def _check_joined(wire: bytes) -> None:
    """Along the events the place in the context never falls."""
    found: list[Position] = []
    for line in wire.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "_at" in record:
            found.append(Position.parse(record["_at"]))
    assert found == sorted(found), f"the place in the context fell: {found}"


def draw_kind(chance: random.Random) -> str:
    """What the next command is."""
    weights = {"append": 12, "batch": 5, "event": 6, "events": 3, "checkpoint": 4, "revert": 2,
               "clear": 1, "restore": 1}  # fmt: skip
    return chance.choices(list(weights), list(weights.values()))[0]

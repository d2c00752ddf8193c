"""What must be true of a daemon's files and of what its clients were told, from the bytes alone."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from sim.agents import Agent, Fate, Order, Reading, Watcher
from steno._sansio.mirror import Mirror
from steno._sansio.wire_events import WireReader
from steno_protocol import commands, paths, timeline_entries
from steno_protocol.context import ContextState
from steno_protocol.errors import NotFound, StorageFailed, Unreachable
from steno_protocol.replies import Ack
from support.daemon_in_process import ROOT
from support.simulated_disk import SimulatedDisk

_STAMP = re.compile(r"([A-Za-z0-9_-]+)(?:\.(\d+)/(\d+))?")
_GENERATION = re.compile(r"context_(\d+)\.jsonl")
TREE = f"{ROOT}/{paths.SESSIONS}/"

Key = tuple[str, int, int]
"""Key, index and count of a stamped line."""


@dataclass(frozen=True, slots=True)
class Folder:
    """One session's folder, in its place or in the trash.

    Attributes:
        generations: the lines of each.
        timeline: its entries, those that were taken back and what took them back, too.
        happenings: the bytes of the timeline.
        wire: the lines of the wire file.
    """

    generations: list[list[bytes]]
    timeline: list[dict[str, Any]]
    happenings: bytes = b""
    wire: list[bytes] = field(default_factory=list[bytes])

    @property
    def present(self) -> list[bytes]:
        """The lines of the present generation."""
        return self.generations[-1]

    def lines(self, generation: int) -> list[bytes]:
        """The lines of a generation, none if there is no such one."""
        return self.generations[generation] if generation < len(self.generations) else []


def judge(disk: SimulatedDisk, agents: Sequence[Agent], *, is_sure: bool) -> None:
    """Check everything that steno promises.

    Args:
        disk: what became of it.
        agents: what they asked for and were told.
        is_sure: nothing failed that could take back what was acknowledged as `written`.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    folders = folders_of(disk.tree())
    for path, folder in folders.items():
        if not path.startswith(paths.TRASH):
            for number, lines in enumerate(folder.generations):
                _check_file(path, lines, chain(*folder.generations[:number]))
    told = {path: keys_told(folder) for path, folder in folders.items()}
    for agent in agents:
        for order in agent.orders:
            _check_order(order, folders, told, is_sure=is_sure)
        for session, mirror in agent.mirrors.items():
            _check_mirror(f"{agent.name}'s mirror of {session}", mirror, folders.get(session))
        for watcher in agent.watchers:
            _check_watcher(f"{agent.name}'s view", watcher, folders)
        for reading in agent.readings:
            _check_reading(reading, folders)


def folders_of(tree: Mapping[str, bytes]) -> dict[str, Folder]:
    """Every session's folder by its path below the tree."""
    found: dict[str, Folder] = {}
    for path in tree:
        folder, _, name = path.rpartition("/")
        if not path.startswith(TREE) or name != paths.CONTEXT:
            continue
        if folder.startswith(f"{TREE}{paths.FORKS}/"):
            # What an unfinished fork left behind is no session.
            continue
        count = sum(
            1
            for other in tree
            if other.startswith(f"{folder}/") and _GENERATION.fullmatch(other[len(folder) + 1 :])
        )
        names = [*(paths.generation_file(each + 1) for each in range(count)), paths.CONTEXT]
        timeline = tree.get(f"{folder}/{paths.TIMELINE}", b"")
        found[folder.removeprefix(TREE)] = Folder(
            [tree[f"{folder}/{each}"].splitlines(keepends=True) for each in names],
            # What a power cut tore just before its session was deleted is never mended.
            [entry for line in timeline.splitlines() if (entry := _object(line))],
            timeline,
            tree.get(f"{folder}/{paths.WIRE}", b"").splitlines(keepends=True),
        )
    return found


def _check_file(path: str, lines: Sequence[bytes], before: Iterable[bytes]) -> None:
    """Every batch is whole, and nothing is there twice.

    Only its end may be left of one that was there `before`: a compaction drops heads.
    """
    keys = [stamp_of(line) for line in lines]
    earlier = {stamp_of(line) for line in before}
    for number, (key, _, count) in enumerate(keys):
        if key:
            begin = number
            while begin and keys[begin - 1] == (key, keys[begin][1] - 1, count):
                begin -= 1
            first = keys[begin][1]
            around = keys[begin : begin + count - first]
            wanted = [(key, each, count) for each in range(first, count)]
            assert around == wanted, f"{path}: a batch that is not whole at {number}: {around}"
            assert first == 0 or (key, first, count) in earlier, f"{path}: {key} lost its head"
    # A rewrite's own lines bear its key, each in a place of its own.
    assert len({key for key in keys if key[0]}) == sum(1 for key in keys if key[0]), (
        f"{path}: a line is there twice"
    )


def _object(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}


def stamp_of(line: bytes) -> Key:
    match = _STAMP.fullmatch(str(_object(line).get("_id", "")))
    return ("", 0, 1) if match is None else (match[1], int(match[2] or 0), int(match[3] or 1))


def keys_told(folder: Folder) -> set[str]:
    """Every key that the files of a folder speak of."""
    files = [*folder.generations, folder.wire]
    keys = {stamp_of(line)[0] for lines in files for line in lines}
    told = Counter[str]()
    for entry in folder.timeline:
        told[str(entry.get("key") or "")] += -1 if entry["kind"] == "voided" else 1
    return (keys | {key for key, times in told.items() if times > 0}) - {""}


def _check_order(
    order: Order,
    folders: Mapping[str, Folder],
    told: Mapping[str, set[str]],
    *,
    is_sure: bool,
) -> None:
    everywhere = [path for path, keys in told.items() if order.key in keys]
    # What was deleted answers no key; a session that was made in its place does not know it.
    where = [path for path in everywhere if not path.startswith(paths.TRASH)]
    if len(where) < len(everywhere):
        # Its forks keep what they began with.
        where = [path for path in where if not _began_with(order.key, folders[path])]
    if order.fate is Fate.REFUSED:
        assert not where, f"{order.key} was refused ({order.error!r}) and is told of in {where}"
        return
    if order.fate is Fate.GONE:
        return
    match order.command:
        case commands.Delete():
            pass
        case commands.Fork(new_session=new):
            assert new in folders, f"{order.key} was acked, and there is no {new}"
        case commands.Mutation(durability=durability):
            _check_answers(order)
            if durability == "synced" or is_sure:
                is_told = any(order.key in keys for keys in told.values())
                assert is_told, f"{order.key} was acked ({order.answers[0]}) and is nowhere"
                if not isinstance(order.command, commands.SendDmail):
                    _check_place(order, folders)
        case _:
            raise AssertionError(order.command)


def _began_with(key: str, folder: Folder) -> bool:
    """Whether a folder is a fork, made by another command, and may have a key from its source."""
    made = [entry for entry in folder.timeline if entry["kind"] == timeline_entries.FORKED]
    return any(entry.get("key") != key for entry in made)


def _check_answers(order: Order) -> None:
    acks = [answer for answer in order.answers if isinstance(answer, Ack)]
    assert len(acks) == len(order.answers)
    told = {(ack.first, ack.last, ack.head, ack.checkpoint_id) for ack in acks}
    assert len(told) == 1, f"{order.key} was answered differently: {told}"
    assert sum(not ack.duplicate for ack in acks) <= 1, f"{order.key} was applied twice"


def _check_place(order: Order, folders: Mapping[str, Folder]) -> None:
    """What was appended lies where its ack says, in one of the folders of that name."""
    ack = order.answers[0]
    if ack.rotated is not None:
        return
    generation, _, line = str(ack.first).partition(":")
    is_wire = isinstance(order.command, commands.AppendWire)
    for folder in folders.values():
        lines = folder.wire if is_wire else folder.lines(int(generation))
        if int(line) < len(lines) and stamp_of(lines[int(line)])[:2] == (order.key, 0):
            given = [public(json.loads(record)) for record in order.records]
            found = [public(json.loads(each)) for each in lines[int(line) :][: len(given)]]
            assert found == given, f"{order.key} at {ack.first}: {found} instead of {given}"
            return
    raise AssertionError(f"{order.key} is not at {ack.first}, where its ack says")


def public(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.startswith("_")}


def _check_mirror(name: str, mirror: Mirror, folder: Folder | None) -> None:
    error = mirror.follower.error
    if error is not None:
        # Before its backlog has come, whoever asked for it is told why and asks again.
        is_told = isinstance(error, NotFound) or not mirror.follower.is_live
        assert is_told, f"{name} ended with {error!r}"
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
        is_told = isinstance(follower.error, NotFound | StorageFailed | Unreachable)
        assert is_told, f"{name} ended with {follower.error!r}"
        return
    folder = folders.get(follower.session)
    assert folder is not None, f"{name} goes on, and {follower.session} is gone"
    is_wire = follower.file == "wire"
    assert watcher.generation == (0 if is_wire else len(folder.generations) - 1)
    found = folder.wire if is_wire else folder.present
    assert watcher.lines == found, f"{name} of {follower.session} has other lines"


def _check_reading(reading: Reading, folders: Mapping[str, Folder]) -> None:
    """What was read is the beginning of some generation, of some making of the session."""
    if not reading.lines:
        return
    lines = [line for _, line in reading.lines]
    assert [cursor.line for cursor, _ in reading.lines] == list(range(len(lines)))
    number = reading.lines[0][0].generation
    is_wire = isinstance(reading.reader, WireReader)
    files = (each.wire if is_wire else each.lines(number) for each in folders.values())
    assert any(found[: len(lines)] == lines for found in files), (
        f"what was read of {reading.session} is in no file"
    )

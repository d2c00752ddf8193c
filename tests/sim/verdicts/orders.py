"""The promises about each command: applied once, where its ack says, or not at all."""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass

from sim.files import Folder, Lines, public
from sim.orders import REWRITES, Fate, Order
from sim.verdicts.folders import Place, places_of
from sim.verdicts.moves import check_rename
from steno_protocol import commands, paths
from steno_protocol.errors import (
    Busy,
    Conflict,
    Expired,
    ShuttingDown,
    StorageFailed,
    Unreachable,
)
from steno_protocol.positions import Position
from steno_protocol.replies import Ack

TEMPORARY = (Busy, ShuttingDown, Unreachable)
"""Refusals that leave open what the command did when it was sent first."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Every session's folder and what can be found in it.

    Attributes:
        folders: the folders by their path.
        keys: the keys that the files of each contain.
        places: where each command stands first in each.
        moved: ids that a session left by a rename, or came to by one or by a restoration.
    """

    folders: Mapping[str, Folder]
    keys: Mapping[str, set[str]]
    places: Mapping[str, Mapping[str, Place]]
    moved: Set[str] = frozenset()

    def has_lived_on(self, session: str) -> bool:
        """True for a session that is there, was made once, and was always there."""
        deleted = (_deleted_id(path) for path in self.folders if _is_deleted(path))
        return session in self.folders and session not in deleted and not self.was_moved(session)

    def was_moved(self, session: str) -> bool:
        """True if a session, or one above it, left this id, or came to it, by a move."""
        return any(f"{session}/".startswith(f"{moved}/") for moved in self.moved)


def tree_of(
    folders: Mapping[str, Folder], *, has_foreign: bool = False, moved: Set[str] = frozenset()
) -> Tree:
    """Search all folders.

    Args:
        folders: the folders by their path.
        moved: ids that a session left or came to by a move.
        has_foreign: another program may have kept a torn command from being cut; then only a whole
            one counts.
    """
    places = {path: places_of(folder) for path, folder in folders.items()}
    keys = {path: folder.keys() for path, folder in folders.items()}
    if has_foreign:
        entries = {path: {each.key or "" for each in folders[path].entries} for path in folders}
        keys = {path: set(places[path]) | entries[path] for path in folders}
    return Tree(folders, keys, places, moved)


def check_order(order: Order, tree: Tree, *, is_sure: bool = False) -> None:
    """Check what is promised of one command.

    Args:
        order: the command.
        tree: all files.
        is_sure: nothing failed that could take back what was acknowledged as `written`.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    match order.fate:
        case Fate.OPEN:
            raise AssertionError(f"{order.key} was never answered")
        case Fate.REFUSED:
            _check_refused(order, tree)
        case Fate.DONE | Fate.WRITTEN:
            _check_done(order, tree, is_sure=is_sure)
        case Fate.GONE:
            pass


def _check_refused(order: Order, tree: Tree) -> None:
    if isinstance(order.command, commands.Rename):
        check_rename(order, order.command, tree, is_done=False)
    is_moved_fork = isinstance(order.command, commands.Fork) and tree.was_moved(
        order.command.new_session
    )
    if tree.was_moved(order.session) or is_moved_fork:
        # A session that was renamed or deleted meanwhile has the key, and the one that refused the
        # repeat does not know it.
        return
    where = [path for path, keys in tree.keys.items() if order.key in keys]
    # A deleted session answers no key; a session that was made in its place does not know it.
    alive = [path for path in where if not _is_deleted(path)]
    if len(alive) < len(where):
        # Its forks keep what they began with.
        alive = [path for path in alive if not _began_with(order.key, tree.folders[path])]
    assert not alive, f"{order.key} was refused ({order.error!r}) and is in {alive}"
    command, error = order.command, order.error
    if not isinstance(command, commands.CompactCommit) or error is None:
        return
    if isinstance(error, (*TEMPORARY, Expired, StorageFailed)):
        return
    if tree.has_lived_on(order.session):
        # Only a rewrite is a reason to refuse a compaction that was begun.
        assert isinstance(error, Conflict), f"{order.key}: {error!r}"
        present = len(tree.folders[order.session].generations) - 1
        is_overtaken = Position.parse(command.at).generation < present
        assert is_overtaken, f"{order.key}: {error!r}, but nothing was rewritten"


def _check_done(order: Order, tree: Tree, *, is_sure: bool) -> None:
    match order.command:
        case commands.Delete() | commands.Undelete():
            pass
        case commands.Rename() as command:
            check_rename(order, command, tree, is_done=True)
        case commands.Fork(new_session=new):
            is_there = new in tree.folders or new in tree.moved
            assert is_there, f"{order.key} was acked, and there is no {new}"
        case command:
            acks = order.replies if is_sure else order.acks
            _check_replies(order, command)
            if acks:
                found = any(order.key in keys for keys in tree.keys.values())
                assert found, f"{order.key} was acked ({acks[0]}) and is nowhere"
                faults = [_fault_in(order, acks, tree, path) for path in tree.folders]
                assert None in faults, f"{order.key} was acked ({acks[0]}): {faults}"


def _check_replies(order: Order, command: commands.Mutation) -> None:
    """All replies are the same, and at most one is of the first application."""
    assert all(isinstance(reply, Ack) for reply in order.replies)
    acks = order.acks
    distinct = {(ack.first, ack.last, ack.head, ack.checkpoint_id, ack.rotated) for ack in acks}
    assert len(distinct) <= 1, f"{order.key} was answered differently: {distinct}"
    fresh = [ack for ack in acks if not ack.duplicate]
    assert len(fresh) <= 1, f"{order.key} was applied {len(fresh)} times"
    # The first event of a wire file comes behind a header.
    is_first_event = order.is_event and command.expect == "0:0"
    expected = "0:1" if is_first_event else command.expect
    for ack in fresh:
        if expected is not None and not ack.rotated:
            is_met = ack.overtaken or ack.first == expected
            assert is_met, f"{order.key} broke its expectation"


def _fault_in(order: Order, acks: list[Ack], tree: Tree, path: str) -> str | None:
    """The reason why a command cannot have been applied to this folder, None if it was."""
    folder, ack = tree.folders[path], acks[0]
    if order.is_mail:
        entries = [each for each in folder.entries if (each.kind, each.key) == ("sent", order.key)]
        sent = [(each.details["checkpoint_id"], each.details["head"]) for each in entries]
        return None if sent == [(ack.checkpoint_id, ack.head)] else f"{path}: sent as {sent}"
    if ack.rotated is not None or isinstance(order.command, REWRITES):
        rewrites = [entry for entry in folder.rewrites.values() if entry.key == order.key]
        heads = [Position(entry.generation, entry.details["lines"]) for entry in rewrites]
        return None if heads == [Position.parse(ack.head)] else f"{path}: rewritten as {heads}"
    place = tree.places[path].get(order.key)
    if place is None:
        return f"{path}: not there"
    head = Position(place.generation, place.line + place.count)
    if (ack.first, ack.head) != (f"{place.generation}:{place.line}", str(head)):
        return f"{path}: at {place}"
    lines = folder.lines(place.generation)
    if order.is_event or order.is_stream:
        lines = folder.wire if order.is_event else folder.stream
    return _fault_in_content(order, ack, lines[place.line : head.line])


def _fault_in_content(order: Order, ack: Ack, lines: Lines) -> str | None:
    records = [json.loads(line) for line in lines]
    if order.records and list(map(public, records)) != list(map(json.loads, order.records)):
        return f"other records: {lines}"
    if any(record.get("_by") != order.repeated(repeat=False).by for record in records):
        return f"another author: {lines}"
    if ack.checkpoint_id is not None and records[0]["id"] != ack.checkpoint_id:
        return f"another checkpoint: {lines}"
    return None


def _began_with(key: str, folder: Folder) -> bool:
    """Whether a folder is a fork, made by another command, and may have a key from its source."""
    return any(entry.kind == "forked" and entry.key != key for entry in folder.entries)


def _is_deleted(path: str) -> bool:
    return path.startswith(paths.TRASH)


def _deleted_id(path: str) -> str:
    """The id of a session in the trash, which may have come there with one above it."""
    # .trash/<when>.<key>.<id, with ~ for />[/<what lay below it>]
    name, _, below = path.removeprefix(f"{paths.TRASH}/").partition("/")
    above = name.split(".", 2)[2].replace("~", "/")
    return f"{above}/{below}" if below else above

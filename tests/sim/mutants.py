"""Guards of the product taken out one at a time: seeds have to fail, or nothing tests that guard.

This is the only file of the simulation that names product functions to replace them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import PropertyMock, patch
from weakref import WeakSet

import msgspec

from sim import writers
from sim.play import play
from sim.session_simulation import SessionSimulation
from sim.simulation import first_error
from sim.worlds import WORLDS
from steno._sansio import exchange, follower
from steno._sansio.follower import Follower
from steno._sansio.pending import Pending
from steno_protocol import checkpoint_ids
from steno_protocol.blocks import split_lines
from steno_protocol.commands import Subscribe
from steno_protocol.context import ContextState
from steno_protocol.positions import Position
from steno_protocol.wire import metadata_line
from stenod.core import dmail, key_replay, lines, timeline
from stenod.core.compaction import Conversation
from stenod.core.journal_replay import JournalReplay
from stenod.core.keys import KeyFilter, KeyTable
from stenod.core.lines import Tail
from stenod.core.machine import FileMachine, Machine, Mailing
from stenod.core.stream_machine import StreamMachine
from stenod.core.wire_machine import WireMachine
from stenod.feed.feed import Feed
from stenod.operations.operation import Operation
from stenod.operations.renames import Renames
from stenod.recovery import (
    crash_recovery,
    file_opening,
    key_lookup,
    recent_keys,
    stream_opening,
    tail_repair,
)
from stenod.recovery.tail_repair import FileEnd
from stenod.rewrite import compaction, planner
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from stenod.sessions import registry, rename, streams
from stenod.sessions.moves import Moves
from stenod.sessions.session import _StreamOpener
from stenod.store import compressing, jsonl, names
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing, expanded_blocks, write_all
from stenod.store.jsonl import JsonlLog
from stenod.store.log import Log
from stenod.writer import writer
from stenod.writer.mailbox import Batch
from stenod.writer.writer import Writer
from stenod_cluster import mirror, ownership
from stenod_cluster.disk import ReplicatedDisk
from stenod_cluster.forks import Holds
from stenod_cluster.journal import Kind, Message, Publication
from stenod_cluster.mirror import Mirror
from stenod_cluster.owned_folder import OwnedFolder
from stenod_cluster.ownership import Ownership
from support.memory_journal import MemoryStream

Patch = tuple[Any, str, Any]
"""A class or module, a name in it, and what stands in its place."""

SEEDS = {
    "context": 200, "files": 300, "streams": 300, "successors": 300, "hosts": 500, "daemon": 200,
    "full": 120, "groups": 200, "moves": 300, "foreign": 400, "rough": 400,
}  # fmt: skip
"""Seeds of each world within which a missing guard has to be noticed."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard that is missing.

    Attributes:
        patches: the replacements of product functions.
        worlds: the worlds that have to notice it, each with a seed that noticed it once and is
            tried first; "model" is that of tests/model.
        options: attributes of `World` that are set as well.
    """

    patches: Sequence[Patch]
    worlds: Mapping[str, int]
    options: tuple[str, ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Take the guard out for a while."""
        with ExitStack() as held:
            for patched in self.patches:
                held.enter_context(patch.object(*patched))
            yield

    def first_failing_seed(self, world: str) -> int | None:
        """A seed of a world that notices that the guard is missing."""
        with ExitStack() as held:
            held.enter_context(self.applied())
            if world in ("files", "streams"):
                # The verdict of the other file has to notice it alone.
                held.enter_context(patch.object(SessionSimulation, "_judge_context", _nothing))
            for seed in (self.worlds[world], *range(SEEDS[world])):
                options = dict.fromkeys(self.options, True)
                try:
                    play(world, seed, replace(WORLDS[world](seed), **options))
                except AssertionError as error:
                    # A mutant that only crashes shows a mistake in the mutant.
                    if isinstance(first_error(error.__cause__ or error), AssertionError):
                        return seed
        return None


# --- what stands in the place of guards ----------------------------------------------------------


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _never(*_: Any, **__: Any) -> bool:
    return False


def _always(*_: Any, **__: Any) -> bool:
    return True


def _no_keys(*_: Any, **__: Any) -> Sequence[Any]:
    return ()


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _first_argument(first: Any, *_: Any, **__: Any) -> Any:
    return first


def _second_argument(_: Any, second: Any) -> Any:
    return second


async def _nothing_async(*_: Any) -> None:
    return None


def _as_the_client_says(self: UnknownOutcomes, command: Any) -> bool:
    return bool(command.repeat)


def _uncut_tail(region: bytes, marked: bool) -> Tail:
    return Tail(len(region))


def _whole_lines_alone(region: bytes, marked: bool) -> Tail:
    found = split_lines(region)
    end, reason = lines._damaged_end(found)
    return Tail(len(region)) if end is None else Tail(sum(map(len, found[:end])), reason)


def _keys_before_sync(self: FileMachine, command: Any, *args: Any, **how: Any) -> Any:
    decision = _put(self, command, *args, **how)
    for key, applied in self._tentative.keys.items():
        self.keys.add(key, applied)
    return decision


def _sync_without_writing_again(self: FileEnd, proven: int) -> int:
    size = self.size
    self.disk.fsync(self.handle)
    self.disk.fsync(self.folder)
    return size


def _believe_without_sync(self: FileEnd, proven: int) -> int:
    return self.size


def _repair_and_sync_no_more(self: FileEnd, point: Any, now: float, entries: Any, **_: Any) -> Any:
    return _repair(self, point, now, entries, durable=1 << 60)


def _replace_without_intent(self: JsonlLog, pieces: Any, intent: bytes) -> str:
    with patch.object(jsonl, "append_timeline", lambda disk, folder, line: None):
        rotated = _replace(self, pieces, intent)
    jsonl.append_timeline(self._disk, self._folder, intent)
    return rotated


def _half_of_the_folder_syncs(self: JsonlLog, pieces: Any, intent: bytes) -> str:
    fsync = self._disk.fsync
    with patch.object(
        self._disk, "fsync", lambda handle: None if handle == self._folder else fsync(handle)
    ):
        return _replace(self, pieces, intent)


def _publish_before_commit(self: Writer, *, synced: bool = False) -> Batch | None:
    batch = _sealed(self, synced=synced)
    if batch is not None and batch.synced and batch.data:
        files, head = self._files, batch.opened.machine.tentative_head
        files._feed.publish(head, b"".join([*files.unsynced._blocks, batch.data]))
    return batch


def _lines_of_any_generation(log: Any, machine: Machine, command: Any) -> tuple[int, int]:
    cut, at = Position.parse(command.cut), Position.parse(command.at)
    return min(cut.line, machine.head.line), min(at.line, machine.head.line)


def _look_up_by_time(self: KeyTable, key: str, *, repeat: bool) -> bool:
    return _must_be_looked_up(self, key, repeat=False)


def _a_generation_later(self: KeyFilter, key: bytes) -> int | None:
    oldest = _oldest(self, key)
    return None if oldest is None else oldest + 1


def _as_in_the_one_before(log: Log, generations: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yields a first generation only, as if each other one were like it."""
    return _new_blocks(log, generations[:1])


_proven: WeakSet[Writer] = WeakSet()


def _must_be_proven_once(self: Writer, *asked: Any) -> bool:
    if self._is_owner_proven:
        _proven.add(self)
    return self not in _proven and _must_be_proven(self, *asked)


def _tentative_head(context: Writer) -> Position:
    opened = context.opened
    return context.feed.head if opened is None else opened.machine.tentative_head


def _with_a_header_each_time(self: WireMachine, command: Any, data: Any) -> Any:
    decision = _decide(self, command, data)
    header = metadata_line() if self.head.line == 0 else b""
    return type(decision)(header + decision.data, decision.ack)


def _mail_at_any_time(self: Machine, command: Any) -> Mailing:
    return Mailing(command)


def _without_incarnation(**fields: Any) -> Subscribe:
    return Subscribe(**{**fields, "incarnation": None})


async def _found_and_forgotten(self: Writer, opened: Any, item: Any) -> Any:
    found = await _look_up(self, opened, item)
    opened.machine.keys._applied.pop(item.command.key, None)
    return found


async def _found_or_not(self: Operation, command: Any, find: Callable[[], Any]) -> Any:
    return await self._services.read(find)


def _found_if_complete(trees: Any, wanted: Any) -> Any:
    found = _find_rename(trees, wanted)
    return found if found is not None and found.is_complete else None


def _forget_without_a_time(self: KeyTable, count: int) -> None:
    youngest_ms = self._youngest_ms
    _forget_oldest(self, count)
    self._youngest_ms = youngest_ms


def _sync_each_log_by_itself(logs: Sequence[JsonlLog]) -> list[OSError | None]:
    errors = logs[0]._disk.fdatasync_all([log._file.handle for log in logs])
    for log, error in zip(logs, errors, strict=True):
        if error is None:
            log._finish_sync()
        else:
            log._failed_syncs.add(log._identity)
    return errors


def _link_any_file(self: JsonlLog, rotated: str) -> None:
    self._disk.link(self._folder, self._name, rotated)


def _stored_without_a_look(batch: Batch) -> bool:
    return batch.error is None


def _open_as_if_it_never_was(disk: Any, folder: int, opening: Any, **_: Any) -> int:
    return _open_context(disk, folder, opening, is_there=False)


def _copy_without_sync(disk: Any, folder: int, name: str, offset: int, data: bytes) -> str:
    with patch.object(disk, "fsync", _nothing):
        return _quarantine(disk, folder, name, offset, data)


def _discard_with_an_unsynced_name(
    disk: Any, folder: int, place: Any, command: Any, *how: Any
) -> Any:
    fsync, skipped = disk.fsync, list[int]()

    def sync(handle: int) -> None:
        if command.successor is None or handle != folder or skipped:
            fsync(handle)
        else:
            skipped.append(handle)

    with patch.object(disk, "fsync", sync):
        return _discard(disk, folder, place, command, *how)


def _keep_all(self: ContextState, generation: int, kept: int, floor: int) -> None:
    _reset(self, generation, self.head.line, floor)


def _store_without_a_fence(self: MemoryStream, publication: Publication) -> int | OSError:
    also = tuple(_behind_the_last(self, each) for each in publication.also)
    return _store(self, msgspec.structs.replace(_behind_the_last(self, publication), also=also))


def _behind_the_last(stream: MemoryStream, publication: Publication) -> Publication:
    last = _last_of(stream, publication.subject)
    return (
        publication if last is None else msgspec.structs.replace(publication, after=last.sequence)
    )


def _last_of(stream: MemoryStream, subject: str) -> Message | None:
    messages = stream._messages.get(subject)
    return messages[-1] if messages and isinstance(messages[-1], Message) else None


def _settle_as_stored(self: OwnedFolder, entries: int) -> Generator[Publication, int | OSError]:
    yield from _settle(self, 0)
    self._applied(entries)


def _settle_as_not_stored(self: OwnedFolder, entries: int) -> Generator[Publication, int | OSError]:
    yield from _settle(self, 0)


def _ack_before_publishing(
    self: ReplicatedDisk, files: Mapping[int, OwnedFolder]
) -> dict[int, OSError | None]:
    self._note_contents(files)
    return dict.fromkeys(files)


def _feed_with_old_parts(self: JournalReplay, kind: str, body: bytes) -> Any:
    return [] if kind == Kind.OWN else _feed(self, kind, body)


def _save_marks_unsynced(disk: Any, marks: Any) -> None:
    unsynced: Any = _Unsynced(disk)
    _save_marks(unsynced, marks)


_save_marks = mirror.save_marks


class _Unsynced:
    """A disk that syncs nothing."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return _all_synced if name == "fdatasync_all" else getattr(self._disk, name)


def _all_synced(handles: Sequence[int]) -> list[None]:
    return [None for _ in handles]


def _holds_by_size(self: Mirror, manifest: Any, mark: Any) -> bool:
    del mark
    names = mirror._lasting_names(manifest)
    found = {name: self._disk.stat_name(self._folder, name) for name in names}
    return all(
        stat is not None and stat.size >= manifest.files[names[name]].size
        for name, stat in found.items()
    )


def _own_by_reading(self: Ownership, path: str, identity: str, giver: str) -> Any:
    last = self.journal.last(identity)
    if last is None:
        return _own(self, path, identity, giver)
    self._check_free(path, last)
    return last.sequence, last, False


_generations_among = names.generations_among


def _plain_among(found: Iterable[str]) -> list[int]:
    return _generations_among(name for name in found if not name.endswith(".zst"))


def _expand_unsynced(disk: Disk, folder: int, packed: str, name: str) -> None:
    with closing(disk, disk.open_new(folder, name)) as handle:
        for block in expanded_blocks(disk, disk.open_read(folder, packed), packed):
            write_all(disk, handle, block)


def _held_by_itself(self: Holds, identity: str) -> Any:
    return [each for each in _held(self, identity) if each.holder == identity]


_store = MemoryStream._store
_settle = OwnedFolder._settle
_feed = JournalReplay.feed
_own = Ownership._own
_held = Holds._held
_find_rename = rename.find
_put = FileMachine._put
_replace = JsonlLog.replace
_sealed = Writer._sealed
_must_be_proven = Writer._must_be_proven
_look_up = Writer._look_up
_repair = FileEnd.repair
_must_be_looked_up = KeyTable.must_be_looked_up
_oldest = KeyFilter.oldest
_new_blocks = key_lookup._new_blocks
_forget_oldest = KeyTable._forget_oldest
_decide = WireMachine._decide
_open_context = file_opening._open_context
_quarantine = jsonl.quarantine
_reset = ContextState.reset
_discard = streams.discard

NOT_DURABLE_HEAD: Sequence[Patch] = [
    (writers, "context_head", _tentative_head),
    (_StreamOpener, "_context_head", lambda self: _tentative_head(self.context)),
]

MUTANTS = {
    # Syncs.
    "a file sync that does nothing": Mutant([], {"context": 0}, ("ignore_fdatasync",)),
    "a folder sync that does nothing": Mutant([], {"context": 0}, ("ignore_folder_fsync",)),
    "a failed sync that is believed at the next one": Mutant(
        [(FileEnd, "make_durable", _sync_without_writing_again)], {"context": 0, "rough": 0}
    ),
    "an opening that reads before it syncs": Mutant(
        [(FileEnd, "make_durable", _believe_without_sync)],
        {"context": 0, "files": 0, "streams": 0, "rough": 0},
    ),
    "a repair that does not sync what came since": Mutant(
        [(FileEnd, "repair", _repair_and_sync_no_more)], {"rough": 0}
    ),
    "a group whose files each have a verdict of their own": Mutant(
        [(JsonlLog, "sync_all", staticmethod(_sync_each_log_by_itself))], {"groups": 17}
    ),
    "a file with a failed sync that is read as any other": Mutant(
        [(FailedSyncs, "has", _never)], {"rough": 528}
    ),
    "a record that is published before it is durable": Mutant(
        [(Writer, "_sealed", _publish_before_commit)], {"context": 0}
    ),
    "a read that does not wait for what was written": Mutant(
        [(Writer, "settle", _nothing_async)], {"full": 197}
    ),
    # Torn and failed writes.
    "a torn tail that is not cut": Mutant(
        [(tail_repair, "examine_tail", _uncut_tail)],
        {"context": 0, "files": 0, "streams": 0, "rough": 0, "model": 0},
    ),
    "a torn batch of which the whole lines stay": Mutant(
        [(tail_repair, "examine_tail", _whole_lines_alone)], {"context": 50}
    ),
    "a failed group that is not taken back": Mutant(
        [(JsonlLog, "discard_unsynced", _nothing)],
        {"context": 26, "files": 97, "streams": 18, "rough": 6},
    ),
    "a failed group that is cut without a copy": Mutant(
        [(jsonl, "quarantine", _nothing)], {"rough": 49}
    ),
    "a tail that is cut before its copy is durable": Mutant(
        [(tail_repair, "quarantine", _copy_without_sync)], {"rough": 11}
    ),
    "a tail that is cut with what came since its copy": Mutant(
        [(FileEnd, "_is_unchanged", _always)], {"foreign": 1, "rough": 0}
    ),
    # Rewrites.
    "a rewrite that did not take place and is not voided": Mutant(
        [(crash_recovery, "_is_completed", _always)], {"context": 0}
    ),
    "a rewrite that is never believed": Mutant(
        [(crash_recovery, "_is_completed", _never)], {"context": 0}
    ),
    "a second name that is not taken back": Mutant(
        [(crash_recovery, "_unlink_second_name", _nothing)], {"context": 12}
    ),
    "a rewrite that is recorded only after it": Mutant(
        [(JsonlLog, "replace", _replace_without_intent)], {"context": 0}
    ),
    "a rewrite whose names are not synced": Mutant(
        [(JsonlLog, "replace", _half_of_the_folder_syncs)], {"context": 0}
    ),
    "a rewrite without an event for followers": Mutant([(Feed, "reset", _nothing)], {"daemon": 0}),
    "a rewrite without its recovery points": Mutant(
        [(crash_recovery, "_is_proven_completed", _never)], {"rough": 655}
    ),
    "a file that a rewrite left behind unsynced": Mutant(
        [(crash_recovery, "sync_past_generations", _nothing)], {"rough": 1584}
    ),
    "a compaction of a session that was rewritten since": Mutant(
        [(compaction, "_lines_named", _lines_of_any_generation)], {"context": 0, "full": 51}
    ),
    "a cut that a late result does not move": Mutant(
        [(Conversation, "whole", _second_argument)], {"context": 154}
    ),
    "a reserved id that the next daemon gives out": Mutant(
        [(timeline, "unreserved_id", _zero)], {"full": 219, "model": 0}
    ),
    "ids that are used again after a rewrite": Mutant(
        [(planner, "_with_next_id", _first_argument)], {"context": 12, "model": 0}
    ),
    "ids that begin again behind a cut": Mutant(
        [(checkpoint_ids, "checkpoint_floor", _zero)], {"model": 0}
    ),
    # Keys.
    "keys remembered before the sync": Mutant(
        [(FileMachine, "_put", _keys_before_sync)], {"context": 5}
    ),
    "a key that is not looked up": Mutant(
        [(KeyTable, "must_be_looked_up", _never)], {"context": 0}
    ),
    "a repeat that is not looked up because of its time": Mutant(
        [(KeyTable, "must_be_looked_up", _look_up_by_time)],
        {"context": 6},
        ("clock_jumps", "few_keys"),
    ),
    "a recovery point without the time of keys": Mutant(
        [(KeyTable, "youngest_ms", property(_zero))], {"context": 19}
    ),
    "a key that is looked up in vain": Mutant(
        [(writer.key_lookup, "look_up", _nothing)],
        {"context": 0, "files": 0, "streams": 0, "model": 0},
    ),
    "a key that is looked up in no file": Mutant(
        [(key_lookup, "_look_up_in", _nothing)], {"rough": 0}
    ),
    "a key whose oldest generation is not looked into": Mutant(
        [(KeyFilter, "oldest", _a_generation_later)], {"context": 0}, ("few_keys",)
    ),
    "a filter without the keys of later generations": Mutant(
        [(key_lookup, "_new_blocks", _as_in_the_one_before)], {"context": 0}, ("few_keys",)
    ),
    # Two rules about keys that are found again cannot be noticed here. An opening that keeps the
    # time of the newest key and forgets the keys themselves is equivalent: each key is looked up in
    # the files. `KeyTable.carry_on` and `FileMachine.keep_but` give keys to a file without stamps,
    # which has them nowhere else; sessions of the worlds have stamps, and
    # tests/stenod/operations/test_unstamped.py fails without either.
    "keys that are not found again at an opening": Mutant(
        [(recent_keys, "applied_in", _no_keys)],
        {"context": 59, "daemon": 3, "rough": 0, "full": 5},
    ),
    "a key that is found and not remembered": Mutant(
        [(Writer, "_look_up", _found_and_forgotten)], {"context": 26, "rough": 174, "full": 64}
    ),
    "a key whose contents are not compared": Mutant(
        [(Machine, "_contents", _nothing)], {"context": 0}
    ),
    "a key of a stream whose contents are not compared": Mutant(
        [(StreamMachine, "_contents", _nothing)], {"streams": 0}
    ),
    "a key of a stream that is taken for a message's": Mutant(
        [(key_replay, "_appended", key_replay._applied)], {"streams": 0}
    ),
    "an expectation of a stream that is not checked": Mutant(
        [(StreamMachine, "_check_expected", _nothing)], {"streams": 1}
    ),
    "a key that is forgotten without a trace": Mutant(
        [(KeyTable, "_forget_oldest", _forget_without_a_time)], {"daemon": 0, "context": 0}
    ),
    "a resend that does not say that it is one": Mutant(
        [(exchange, "Mutation", ())], {"daemon": 26}
    ),
    "a refusal of a repeat that does not say that it is one": Mutant(
        [(UnknownOutcomes, "may_be_applied", _as_the_client_says)], {"context": 0, "streams": 19}
    ),
    "a key of an unknown outcome that is forgotten": Mutant(
        [(UnknownOutcomes, "add", _nothing)], {"context": 810}
    ),
    "a refusal of a repeat that could not be looked up": Mutant(
        [(registry, "doubted", _first_argument), (writer, "doubted", _first_argument)],
        {"daemon": 26},
    ),
    "a timeout that counts as a refusal": Mutant(
        [(Pending, "outcome", _second_argument)], {"daemon": 15}
    ),
    "a fork that was made before and cannot be seen": Mutant(
        [(Operation, "_done_before", _found_or_not)], {"daemon": 1247}
    ),
    # Renames and restorations.
    "a move that is not recorded before it": Mutant(
        [(Moves, "begin", _nothing), (Moves, "finish", _nothing)], {"moves": 1}
    ),
    "a rename that was cut short and is not found": Mutant(
        [(rename, "find", _found_if_complete)], {"moves": 25}
    ),
    "a rename whose parents are not synced": Mutant([], {"moves": 0}, ("ignore_folder_fsync",)),
    "an earlier rename that is not recorded before the next": Mutant(
        [(Renames, "_complete_earlier", _nothing_async)], {"moves": 37}
    ),
    # Events.
    "an event that is joined to what is not durable": Mutant(
        NOT_DURABLE_HEAD, {"files": 0, "full": 2}
    ),
    "a header in each group until one is synced": Mutant(
        [(WireMachine, "_decide", _with_a_header_each_time)], {"files": 0, "full": 0}
    ),
    "a wire file that does not know its last event": Mutant(
        [(stream_opening, "_last_joined_position", lambda log: Position(0, 0))], {"rough": 0}
    ),
    # D-Mails.
    "a second mail in place of the one that waits": Mutant(
        [(Machine, "_send", _mail_at_any_time)], {"full": 11}
    ),
    "a mail that outlives its checkpoint": Mutant(
        [(dmail, "outlives", _always)], {"context": 0, "full": 0, "model": 0}
    ),
    "a mail without an event for late followers": Mutant(
        [(Feed, "load_state", _nothing)], {"context": 0, "full": 11}
    ),
    # Followers.
    "a follower that begins anew after each reconnect": Mutant(
        [(Follower, "resume_after", PropertyMock(return_value="start"))], {"daemon": 0}
    ),
    "a follower that does not know which session it followed": Mutant(
        [(follower, "Subscribe", _without_incarnation)], {"daemon": 393}
    ),
    "a mirror that ends when the disk fails for a moment": Mutant(
        [(Follower, "is_asked_again_after", _never)], {"daemon": 21}
    ),
    "a follower with no room for live that is not tried again": Mutant(
        [(Feed, "_stall", _nothing)], {"full": 5}
    ),
    "a follower that keeps what a rewrite dropped": Mutant(
        [(ContextState, "reset", _keep_all)], {"model": 0}
    ),
    "a compressed generation that counts as removed": Mutant(
        [(names, "generations_among", _plain_among)], {"context": 0}
    ),
    "a compressed stream that counts as missing": Mutant(
        [(stream_opening, "expand_stream", _nothing)], {"streams": 1}
    ),
    "an expanded stream whose bytes are not synced": Mutant(
        [(compressing, "_expand", _expand_unsynced)], {"streams": 54}
    ),
    # Deletions of streams.
    "a deletion of a stream whose second name is not synced": Mutant(
        [(streams, "discard", _discard_with_an_unsynced_name)], {"successors": 25}
    ),
    "a void deletion of a stream that counts": Mutant(
        [(names, "_is_void", _never)], {"successors": 1}
    ),
    # Replication.
    "a message that the journal takes behind any other": Mutant(
        [(MemoryStream, "_store", _store_without_a_fence)], {"hosts": 0}
    ),
    "a message in doubt that counts as stored": Mutant(
        [(OwnedFolder, "_settle", _settle_as_stored)], {"hosts": 0}
    ),
    "a message in doubt that counts as not stored": Mutant(
        [(OwnedFolder, "_settle", _settle_as_not_stored)], {"hosts": 0}
    ),
    "an ack before the journal has the record": Mutant(
        [
            (ReplicatedDisk, "_sync", _ack_before_publishing),
            (ReplicatedDisk, "sync_on_loop", _nothing_async),
        ],
        {"hosts": 0},
    ),
    "the parts of a change that nobody finished": Mutant(
        [(JournalReplay, "feed", _feed_with_old_parts)], {"hosts": 0}
    ),
    "a place in the journal that is believed unchecked": Mutant(
        [(Mirror, "_holds", _holds_by_size)], {"hosts": 21}
    ),
    "a mark that is not synced": Mutant(
        [(each, "save_marks", _save_marks_unsynced) for each in (mirror, ownership)], {"hosts": 175}
    ),
    "a collection that no fork holds": Mutant(
        [(Holds, "_held", _held_by_itself), (Holds, "_is_held_by_fork", _never)], {"hosts": 6}
    ),
    "a takeover without a message": Mutant([(Ownership, "_own", _own_by_reading)], {"hosts": 0}),
    "a repeat that a stale owner refuses": Mutant(
        [(JsonlLog, "confirm_owner", _nothing)], {"hosts": 129}
    ),
    "a proof of the owner that counts for later commands": Mutant(
        [(Writer, "_must_be_proven", _must_be_proven_once)], {"hosts": 57}
    ),
    # Foreign programs.
    "foreign lines that are not noticed": Mutant(
        [(JsonlLog, "is_foreign_changed", _never)], {"context": 0}
    ),
    "a foreign write between a look and a write": Mutant(
        [(writer, "_is_stored", _stored_without_a_look)], {"rough": 0}
    ),
    "a file that another program replaced": Mutant(
        [(JsonlLog, "keep_replaced", _never)], {"foreign": 2}
    ),
    "a rewrite that leaves another file behind": Mutant(
        [(JsonlLog, "_link_present", _link_any_file), (JsonlLog, "_check_in_place", _nothing)],
        {"foreign": 22},
    ),
    "a file that was there until now": Mutant(
        [(file_opening, "_open_context", _open_as_if_it_never_was)], {"rough": 165}
    ),
    "a replaced file at the end of a writer": Mutant(
        [(JsonlLog, "keep_replaced_at_close", _nothing)], {"rough": 17}
    ),
}
"""Every guard that the simulation or the model misses when it is gone."""

CASES = [(name, world) for name, mutant in MUTANTS.items() for world in mutant.worlds]
"""Each mutant with each world that has to notice it."""

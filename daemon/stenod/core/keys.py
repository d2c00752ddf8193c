"""Idempotency keys of a session's commands, so that each is applied once.

A repeat is compared with the first use of its key by a fingerprint, the CRC-32 of the caller's
input. It is computed from the command when it is decided, and from the files when the key is looked
up, so it is not stored.

Source: the IETF draft "The Idempotency-Key HTTP Header Field", section 2.6: reusing a key with
another payload is an error.
"""

import re
import zlib
from array import array
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from steno_protocol import limits, timeline_entries
from steno_protocol.commands import (
    Checkpoint,
    DeliverDmail,
    Mutation,
    RestoreGeneration,
    RevertTo,
    SendDmail,
    UpdateTokenCount,
    WriteSystemPrompt,
)
from steno_protocol.paths import UUID_CHARS, key_time_ms
from steno_protocol.positions import Position
from steno_protocol.records import unstamped
from steno_protocol.timeline_entries import TimelineEntry

_STAMP: Final = b'"_id":"'
_STAMPED: Final = re.compile(_STAMP + rb'([A-Za-z0-9_-]{1,64})(?:\.\d{1,4}/\d{1,4})?"')
_RECORDED: Final = re.compile(rb'"key":"([A-Za-z0-9_-]{1,64})"')

_INSTANT_CHARS: Final = 13
"""Characters of a uuid7 that contain its time."""

_RANK_MASK: Final = 0xFFF
_HASH_MASK: Final = 0xFFFFF000
"""An entry of a filter is 20 bits of a key's hash and the rank of a generation. The 12 bits below
them choose the bucket."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """An applied command, with the facts of its first answer.

    Attributes:
        command: its name on the wire.
        first: cursor of its first record; the new head for a rewrite.
        count: records that it appended, 0 for a rewrite.
        checkpoint_id: the id of its checkpoint.
        rotated: the path of the file with the previous generation, for a rewrite.
        contents: its fingerprint; None if nothing is compared.
        checkpoint_at: the position of the checkpoint that a rewrite set.
    """

    command: str
    first: Position
    count: int
    checkpoint_id: int | None = None
    rotated: str | None = None
    contents: int | None = None
    checkpoint_at: Position | None = None


class KeyTable:
    """The last keys of an open session, and a test for keys that are certainly unused.

    A uuid7 contains its creation time. A key that is newer than every key used so far is unused,
    whatever the clocks were. If the newest key is unknown, a key that is newer than the opening
    counts as unused, unless the command is a repeat; a wrong clock could break this assumption.

    Args:
        opened_ms: Unix time in milliseconds at which the session was opened.
        youngest_ms: creation time of the newest key used before, 0 without keys; None if unknown.
        keys_max: the number of remembered keys, exceeded by an eighth at most.

    Attributes:
        knows_youngest: the creation time of the newest key is known.
    """

    def __init__(
        self, opened_ms: int, youngest_ms: int | None = None, keys_max: int = limits.KEYS_MAX
    ) -> None:
        self._applied: dict[str, Applied] = {}
        self._keys_max = keys_max + keys_max // 8
        self._opened_ms = opened_ms
        self.knows_youngest = youngest_ms is not None
        # The newest known key among those that were used and are not in the table.
        self._youngest_ms = youngest_ms or 0
        self._filter: KeyFilter | None = None

    @property
    def youngest_ms(self) -> int | None:
        """The creation time of the newest key ever used, 0 without keys; None if unknown."""
        if not self.knows_youngest:
            return None
        # A copy, because a thread may call this.
        return max(self._youngest_ms, *(key_time_ms(key) or 0 for key in list(self._applied)), 0)

    def youngest_ms_with(self, key: str) -> int | None:
        """Return what `youngest_ms` will be when a key has been added."""
        youngest_ms = self.youngest_ms
        return None if youngest_ms is None else max(youngest_ms, key_time_ms(key) or 0)

    def get(self, key: str) -> Applied | None:
        """Return the command of this key, if the table has it."""
        return self._applied.get(key)

    def add(self, key: str, applied: Applied) -> None:
        """Remember an applied command; its bytes must have the durability of its reply."""
        self.add_all({key: applied})

    def add_all(self, applied: Mapping[str, Applied]) -> None:
        """Remember several applied commands."""
        self._applied.update(applied)
        if self._filter is not None:
            for key, each in applied.items():
                self._filter.add(key.encode(), each.first.generation)
        # Many at once: a dict with deleted first keys skips their slots at each iteration.
        if len(self._applied) > self._keys_max:
            self._forget_oldest(len(self._applied) - self._keys_max + self._keys_max // 9)

    def drop_filter(self) -> None:
        """Release the filter, which a later lookup builds again."""
        self._filter = None

    def _forget_oldest(self, count: int) -> None:
        instant = ""
        for key in list(islice(self._applied, count)):
            del self._applied[key]
            # Many are of one millisecond, and begin alike.
            if key[:_INSTANT_CHARS] != instant and (made_ms := key_time_ms(key)) is not None:
                instant = key[:_INSTANT_CHARS]
                self._youngest_ms = max(self._youngest_ms, made_ms)

    def __len__(self) -> int:
        return len(self._applied)

    def carry_on(self, before: "KeyTable") -> None:
        """Take over the keys of the previous table of the same file."""
        self.add_all(
            {key: applied for key, applied in before._applied.items() if key not in self._applied}
        )

    def must_be_looked_up(self, key: str, *, repeat: bool) -> bool:
        """Whether a key that is not in the table may still be in the files."""
        made_ms = key_time_ms(key)
        if made_ms is not None and made_ms > self._youngest_ms:
            is_believed = self.knows_youngest or (not repeat and made_ms > self._opened_ms)
            if is_believed:
                return False
        if key in self._applied:
            return False
        return self._filter is None or key.encode() in self._filter

    @property
    def needs_filter(self) -> bool:
        """Whether a filter is missing, or has become too small."""
        return self._filter is None or self._filter.is_full

    def use_filter(self, key_filter: "KeyFilter") -> None:
        """Use a filter with every key in the files, and add new keys to it from now on."""
        for key, applied in self._applied.items():
            key_filter.add(key.encode(), applied.first.generation)
        self._filter = key_filter
        self._youngest_ms = max(self._youngest_ms, key_filter.youngest_ms)
        self.knows_youngest = True

    def oldest_generation(self, key: str) -> int:
        """Return a generation; no older one has the key."""
        oldest = None if self._filter is None else self._filter.oldest(key.encode())
        return 0 if oldest is None else oldest


class KeyFilter:
    """Short hashes of a session's keys, each with the oldest generation that may have its key.

    `in` may be true for an unknown key, and never false for a known one. The hashes are divided
    into buckets that are small enough to be searched on the event loop.

    Args:
        keys: about how many keys will be added.
        first: the oldest generation.

    Attributes:
        youngest_ms: creation time of the newest key in the added blocks, 0 without keys.
    """

    def __init__(self, keys: int, first: int = 0) -> None:
        count, wanted = limits.KEY_FILTER_BUCKETS_MIN, keys // limits.KEY_FILTER_BUCKET_KEYS_MAX
        while count < min(wanted, limits.KEY_FILTER_BUCKETS_MAX):
            count *= 2
        self._buckets = [array("I") for _ in range(count)]
        self._appends = [bucket.append for bucket in self._buckets]
        self._first = first
        self._left = limits.KEY_FILTER_KEYS_MAX
        self._room = max(keys, limits.KEY_FILTER_KEYS_MIN)
        # Keys of this generation and later ones may be missing.
        self._incomplete_from: int | None = None
        self.youngest_ms = 0

    @property
    def is_full(self) -> bool:
        """Whether so many keys came one by one that another size is better, and allowed."""
        return self._room < 0 and self._incomplete_from is None

    def add(self, key: bytes, generation: int) -> None:
        """Add the key of a command that was applied in a generation."""
        known = self.oldest(key)
        if known is None or known > generation:
            self._room -= 1
            self._add_all([key], generation)

    def __contains__(self, key: bytes) -> bool:
        return self.oldest(key) is not None

    def oldest(self, key: bytes) -> int | None:
        """Return the oldest generation that may have a key; None if no generation has it."""
        digest = hash(key)
        wanted = digest & _HASH_MASK
        bucket = self._buckets[digest & len(self._buckets) - 1]
        ranks = [each & _RANK_MASK for each in bucket if each & _HASH_MASK == wanted]
        return self._first + min(ranks) if ranks else self._incomplete_from

    def add_lines(self, block: bytes, generation: int) -> None:
        """Add every key in a block of lines of a context, a wire file or a stream.

        Args:
            block: the lines.
            generation: theirs, or an older one.
        """
        # The files of other programs have none, and this search is faster than the expression.
        if _STAMP in block:
            self._add_block(_STAMPED.findall(block), generation)

    def add_timeline(self, lines: bytes) -> None:
        """Add every key in the lines of a timeline."""
        self._add_block(_RECORDED.findall(lines), self._first)

    def _add_block(self, keys: list[bytes], generation: int) -> None:
        # A batch has its key in each line.
        found = set(keys)
        self._add_all(found, generation)
        if UUID_CHARS in map(len, found):
            times = (key_time_ms(key.decode()) or 0 for key in found)
            self.youngest_ms = max(self.youngest_ms, *times, 0)

    def _add_all(self, keys: Collection[bytes], generation: int) -> None:
        self._left -= len(keys)
        if self._left < 0:
            if self._incomplete_from is None or self._incomplete_from > generation:
                self._incomplete_from = generation
            return
        # A key of a later generation than the last rank is searched for from that one on.
        rank = min(max(generation - self._first, 0), _RANK_MASK)
        appends, choice, kept = self._appends, len(self._buckets) - 1, _HASH_MASK
        for digest in map(hash, keys):
            appends[digest & choice](digest & kept | rank)


# --- fingerprints ---

_MESSAGE: Final = b'"message":'

_ARGUMENTS: Final[Mapping[str, Sequence[str]]] = {
    timeline_entries.REVERTED: ["checkpoint_id"],
    timeline_entries.RESTORED: ["from"],
    timeline_entries.DELIVERED: ["mail"],
    timeline_entries.SENT: ["checkpoint_id", "message"],
}
"""The details of an entry that are its command's arguments, in the order of its fingerprint."""


def fingerprint_of_records(records: Sequence[bytes]) -> int:
    """Return the fingerprint of an append, from its checked records."""
    return zlib.crc32(records[0] if len(records) == 1 else b"\n".join(records))


def fingerprint_of_events(events: Sequence[bytes]) -> int:
    """Return the fingerprint of wire events, without the timestamps before their messages.

    A process that repeats another's append creates the same event with another timestamp.
    """
    return fingerprint_of_records([event[max(0, event.find(_MESSAGE)) :] for event in events])


def fingerprint_of_lines(lines: Sequence[bytes], *, are_events: bool) -> int:
    """Return the fingerprint of lines of a file, after removing steno's own keys."""
    records = [unstamped(line) for line in lines]
    return fingerprint_of_events(records) if are_events else fingerprint_of_records(records)


def fingerprint_of_arguments(*arguments: object) -> int:
    """Return the fingerprint of a command without records."""
    return zlib.crc32("\0".join(map(str, arguments)).encode(errors="surrogatepass"))


def fingerprint_of_command(command: Mutation) -> int | None:
    """Return the fingerprint of a command by its arguments; None if it has none to compare."""
    match command:
        case Checkpoint():
            return fingerprint_of_arguments(int(command.add_user_message))
        case UpdateTokenCount():
            return fingerprint_of_arguments(command.token_count)
        case WriteSystemPrompt():
            return fingerprint_of_arguments(command.prompt)
        case RevertTo():
            named = command.checkpoint_id if command.position is None else command.position
            return fingerprint_of_arguments(named)
        case RestoreGeneration():
            return fingerprint_of_arguments(command.generation)
        case DeliverDmail():
            return fingerprint_of_arguments(command.mail_id)
        case SendDmail():
            return fingerprint_of_arguments(command.checkpoint_id, command.message)
        case _:
            # A repeated compaction has another summary, because its model is asked again; a clear
            # and a repair have no arguments.
            return None


def fingerprint_of_entry(entry: TimelineEntry) -> int | None:
    """Return the fingerprint of a command from its timeline entry, a rewrite or a sent mail."""
    if entry.kind == timeline_entries.PROMPTED:
        found = entry.details.get("contents")
        return found if isinstance(found, int) else None
    names = _ARGUMENTS.get(entry.kind)
    if entry.kind == timeline_entries.REVERTED and "position" in entry.details:
        names = ["position"]
    if names is None or not all(name in entry.details for name in names):
        return None
    return fingerprint_of_arguments(*(entry.details[name] for name in names))

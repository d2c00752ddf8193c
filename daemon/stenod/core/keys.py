"""What a session remembers of the keys of its commands, so that each is applied once."""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec

from steno_protocol import limits
from steno_protocol.paths import key_time_ms
from steno_protocol.positions import Position
from stenod.core.key_budget import KeyRoom

_STAMPED: Final = re.compile(rb'"_id":"([A-Za-z0-9_-]{1,64})(?:\.\d{1,4}/\d{1,4})?"')
_TOLD: Final = re.compile(rb'"key":"([A-Za-z0-9_-]{1,64})"')

_INSTANT_CHARS: Final = 13
"""The bits of a uuid7 that hold its time."""

_HASHES: Final = 6


class Applied(msgspec.Struct, frozen=True, gc=False):
    """A command that was applied: enough to give its first answer again.

    Attributes:
        command: its name on the wire.
        first: cursor of its first record; the new head for a rewrite.
        count: records that it appended, 0 for a rewrite.
        checkpoint_id: the id that a checkpoint got.
        rotated: name of the file that a rewrite left behind.
        contents: the fingerprint of what it asked for, see `core.contents`; None if nothing is
            compared.
    """

    command: str
    first: Position
    count: int
    checkpoint_id: int | None = None
    rotated: str | None = None
    contents: int | None = None


class KeyTable:
    """The last keys of an open session, and the knowledge which others cannot have been used.

    A uuid7 bears its time, and one that is younger than all that were ever used was never used:
    that is so whatever clocks said. Where the newest is unknown, one that is younger than the
    opening was not used before it, unless a clock was wrong; this is not assumed of a repeat.

    Args:
        opened_ms: Unix time in milliseconds when the session was opened.
        youngest_ms: creation time of the newest key used before that is not added here, 0 without
            keys; None if unknown.
        keys_max: how many it remembers, and with an eighth more at most; fewer where `share` has
            less room.

    Attributes:
        knows_youngest: `youngest_ms` is known; that stays so.
    """

    def __init__(
        self, opened_ms: int, youngest_ms: int | None = None, keys_max: int = limits.KEYS_MAX
    ) -> None:
        self._applied: dict[str, Applied] = {}
        self._keys_max = keys_max + keys_max // 8
        self._most = self._given = self._keys_max
        self._room: KeyRoom | None = None
        self._opened_ms = opened_ms
        self.knows_youngest = youngest_ms is not None
        # Of the keys that were used and are not in the table, as far as that is known.
        self._youngest_ms = youngest_ms or 0
        self._filter: KeyFilter | None = None

    @property
    def youngest_ms(self) -> int | None:
        """The creation time of the newest key ever used, 0 without keys; None if unknown."""
        if not self.knows_youngest:
            return None
        # A copy: it may be asked for in a thread.
        return max(self._youngest_ms, *(key_time_ms(key) or 0 for key in list(self._applied)), 0)

    def get(self, key: str) -> Applied | None:
        """The command of this key, if the table has it."""
        return self._applied.get(key)

    def add(self, key: str, applied: Applied) -> None:
        """Remember an applied command; only after its bytes are where its reply says."""
        self.add_all({key: applied})

    def add_all(self, applied: Mapping[str, Applied]) -> None:
        """As `add`, for several."""
        self._applied.update(applied)
        if self._filter is not None:
            for key in applied:
                self._filter.add(key.encode())
        if len(self._applied) > self._most:
            self._fit()

    def share(self, room: KeyRoom) -> None:
        """Remember only as many from now on as there is room for, until `leave`."""
        self._room = room
        room.enter(self)
        self._give(room.piece)
        self._fit()

    def leave(self) -> None:
        """Nothing is added here any more: what room it had is others', and it needs no filter."""
        self._filter = None
        if self._room is not None:
            self._room.leave(self)
            self._room = None

    def give_back(self, count: int) -> None:
        """See `Tenant`."""
        self._give(self._given - count)
        if len(self._applied) > self._most:
            self._forget_oldest(len(self._applied) - self._most)
            # A dict keeps the place of what it had; another one takes as much as it needs.
            self._applied = dict(self._applied)

    def drop_filter(self) -> None:
        """See `Tenant`."""
        self._filter = None

    def _give(self, count: int) -> None:
        self._given, self._most = count, min(count, self._keys_max)

    def _fit(self) -> None:
        """Get as much room as is needed, or forget what there is none for."""
        room = self._room
        while room is not None and self._most < min(len(self._applied), self._keys_max):
            if not room.ask(self):
                break
            self._give(self._given + room.piece)
        # Many at once: a dict with deleted first keys skips their slots at each iteration.
        if len(self._applied) > self._most:
            self._forget_oldest(len(self._applied) - self._most + self._most // 9)

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
        """Remember what a table remembered that knew the same file before this one."""
        self.add_all(
            {key: applied for key, applied in before._applied.items() if key not in self._applied}
        )

    def must_be_looked_up(self, key: str, *, repeat: bool) -> bool:
        """True when a key that is not in the table may still be in the files."""
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
        """True until `use_filter`, and again when the filter has become too small."""
        return self._filter is None or self._filter.is_full

    def use_filter(self, key_filter: "KeyFilter") -> None:
        """Take a filter that knows every key in the files, and keep it up to date from now on."""
        for key in self._applied:
            key_filter.add(key.encode())
        self._filter = key_filter
        self._youngest_ms = max(self._youngest_ms, key_filter.youngest_ms)
        self.knows_youngest = True
        if self._room is not None:
            self._room.filtered(self, key_filter.size)


class KeyFilter:
    """A Bloom filter of keys: `in` may say yes for a key it never saw, never no for one it did.

    A false alarm costs a look through all files, so it is made with room for twice the keys.

    Args:
        keys: how many it is made for.

    Attributes:
        youngest_ms: as old is the youngest key of the blocks that it saw, 0 if they had none.

    Source: B. H. Bloom, Space/time trade-offs in hash coding with allowable errors, 1970.
    """

    def __init__(self, keys: int) -> None:
        wanted = keys * limits.KEY_FILTER_KEY_BITS
        bits = limits.KEY_FILTER_BITS_MIN
        while bits < wanted and bits < limits.KEY_FILTER_BITS_MAX:
            bits *= 2
        self._mask = bits - 1
        self._bits = bytearray(bits // 8)
        self._room = bits // limits.KEY_FILTER_KEY_BITS
        self.youngest_ms = 0

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self._bits)

    @property
    def is_full(self) -> bool:
        """True when it holds more keys than it was made for, and a larger one can be made."""
        return self._room < 0 and len(self._bits) * 8 < limits.KEY_FILTER_BITS_MAX

    def add(self, key: bytes) -> None:
        """Remember a key."""
        self._room -= 1
        for bit in self._places(key):
            self._bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, key: bytes) -> bool:
        return all(self._bits[bit >> 3] >> (bit & 7) & 1 for bit in self._places(key))

    def add_block(self, block: bytes) -> None:
        """Remember every key that a block of context, wire or timeline lines names."""
        for pattern in (_STAMPED, _TOLD):
            for key in set(pattern.findall(block)):
                self.add(key)
                self.youngest_ms = max(self.youngest_ms, key_time_ms(key.decode()) or 0)

    def _places(self, key: bytes) -> list[int]:
        digest = hash(key)
        step = (digest >> 32) | 1
        return [(digest + number * step) & self._mask for number in range(_HASHES)]

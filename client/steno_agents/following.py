"""A transcript that grows: where its reader is, and the messages that it adds; pure.

A file of another program is kept in a stream of its session, line by line. The key of each append
is a `Cursor`: it names the bytes of the file that the stream has then, so the stream alone says
where to go on, whatever was killed.

    file-0-48211-1f6e0c2b9a7d4e35      generation of the stream, offset in the file, digest

The context is what the reader makes of the file up to there. `Conversation` converts what was
added, and raises `Changed` if the reader sees earlier messages otherwise now; then `agreement`
finds the messages that stay.
"""

import copy
import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from steno_agents.json_lines import lenient_object, objects_of
from steno_agents.limits import (
    DAMAGED_NAMED_MAX,
    FOLLOWED_LINE_BYTES,
    LONG_LINE_BYTES,
    RAW_BYTES,
    TAIL_BYTES,
)
from steno_agents.transcript import (
    Converter,
    ForeignTranscript,
    History,
    Lookup,
    Message,
)
from steno_protocol.errors import BadRequest, TooLarge
from steno_protocol.limits import RECORD_BYTES_MAX
from steno_protocol.records import check_message, check_record

RecordAt = Callable[[int], dict[str, Any] | None]
"""Reads the record at an offset of the file again."""

_KEY: Final = re.compile(r"file-(\d{1,9})-(\d{1,16})-([0-9a-f]{16})")
_DIGEST_BYTES: Final = 8
_RAW: Final = "steno_raw"
"""The field of a record with the bytes of a line that is no record itself."""

_CONTROL: Final = b'{"role":"_'
"""Begins a record that is no message."""

_encode = msgspec.json.Encoder().encode


class Cursor(NamedTuple):
    """The bytes of a file that a stream has.

    Attributes:
        generation: the generation of the stream.
        offset: the number of the bytes.
        digest: a digest of them.

    Example:
        >>> Cursor.of_key("file-0-12-00112233445566ff").offset
        12
    """

    generation: int
    offset: int
    digest: str

    @property
    def key(self) -> str:
        """The idempotency key of the append that leads here."""
        return f"file-{self.generation}-{self.offset}-{self.digest}"

    @classmethod
    def of_key(cls, key: str) -> "Cursor | None":
        """Return the cursor in a key; None if another command has it."""
        found = _KEY.fullmatch(key)
        return None if found is None else cls(int(found[1]), int(found[2]), found[3])


class Digest:
    """The number and a digest of the bytes that were given."""

    def __init__(self) -> None:
        self.offset: int = 0
        self._hash = blake2b(digest_size=_DIGEST_BYTES)

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self._hash.update(data)
        self.offset += len(data)

    def cursor(self, generation: int, following: bytes | memoryview = b"") -> Cursor:
        """Return the cursor behind the bytes, and behind some that follow."""
        found = self._hash
        if following:
            found = found.copy()
            found.update(following)
        return Cursor(generation, self.offset + len(following), found.hexdigest())


class Piece(NamedTuple):
    """A record of the stream.

    Attributes:
        record: the bytes of a JSON object.
        size: the bytes of the file that it stands for.
    """

    record: bytes
    size: int


def pieces_of(
    line: bytes, mask: Callable[[bytes], bytes] | None = None, *, is_rest: bool = False
) -> Iterator[Piece]:
    """Return the records that keep a line.

    A line that a stream takes as it is stays so. Others, which are damaged or too long, become
    Base64, and several records if need be.

    Args:
        line: the line with its newline.
        mask: hides secrets in a line; the daemon's client cannot look into Base64.
        is_rest: the beginning of the line is in the stream already.
    """
    record = None if is_rest else _record_of(line)
    if record is not None:
        yield Piece(record, len(line))
        return
    for begin in range(0, len(line), RAW_BYTES):
        part = line[begin : begin + RAW_BYTES]
        shown = part if mask is None else mask(part)
        yield Piece(_encode({_RAW: b64encode(shown).decode()}), len(part))


def lines_of(records: Iterable[bytes]) -> Iterator[bytes]:
    """Return the bytes that the records of a stream keep, in the order of the file."""
    for record in records:
        raw = _raw_of(record) if _RAW.encode() in record[: len(_RAW) + 4] else None
        yield record + b"\n" if raw is None else raw


def _raw_of(record: bytes) -> bytes | None:
    value = msgspec.json.decode(record)
    raw = value.get(_RAW)
    return b64decode(raw) if isinstance(raw, str) and len(value) == 1 else None


def _record_of(line: bytes) -> bytes | None:
    """The record of a stream that keeps the bytes of a line as they are; None if none does."""
    if len(line) > RECORD_BYTES_MAX + 1 or _RAW.encode() in line[: len(_RAW) + 4]:
        return None
    record = line[:-1]
    try:
        return record if check_record(record) == record else None
    except (BadRequest, TooLarge):
        return None


class Damage(NamedTuple):
    """A line that has no whole record: its offset and its bytes."""

    offset: int
    size: int


class Reading:
    """One transcript as far as it was read.

    Args:
        kind: the format of the file.
        lookup: finds the sessions that it continues.
        is_bounded: records beyond those of a followed conversation are only counted.

    Attributes:
        transcript: what the records were given to.
        salvaged: the number of records that share their lines with damage.
        damaged: the first lines without a whole record.
        damaged_count: the number of all of them.
        tail: the last bytes that were read.
        records: the number of records that were read.
        is_full: the file has more records than a conversation may have; the rest is only counted.
    """

    def __init__(
        self,
        kind: type[ForeignTranscript],
        lookup: Lookup | None = None,
        *,
        is_bounded: bool = True,
    ) -> None:
        self.transcript = kind()
        if lookup is not None:
            self.transcript.lookup = lookup
        self.salvaged = 0
        self.damaged: list[Damage] = []
        self.damaged_count = 0
        self.tail = b""
        self.is_full = False
        self.records: int = 0
        self._kind = kind
        # The bytes of each record that is not a short line of its own, by offset.
        self._sizes: dict[int, int] = {}
        self._is_bounded = is_bounded
        self._digest = Digest()

    @property
    def offset(self) -> int:
        """The bytes of the whole lines that were read."""
        return self._digest.offset

    def feed(self, line: bytes) -> None:
        """Read the next line, which has its newline."""
        if not self._is_bounded or self.records < self._kind.followed_records():
            self._scan(line)
        else:
            self.is_full = True
        self._digest.feed(line)
        self.tail = (self.tail + line[-TAIL_BYTES:])[-TAIL_BYTES:]

    def _scan(self, line: bytes) -> None:
        is_long = len(line) > FOLLOWED_LINE_BYTES
        records = [] if is_long else objects_of(line, self._kind.is_record)
        self.records += len(records)
        for record in records:
            place, size = self.offset + record.start, record.end - record.start
            self.salvaged += size != len(line)
            if size != len(line) or size > LONG_LINE_BYTES:
                self._sizes[place] = size
            self.transcript.scan(place, record.value)
        if not records and not line.isspace():
            self.damaged_count += 1
            if len(self.damaged) < DAMAGED_NAMED_MAX:
                self.damaged.append(Damage(self.offset, len(line)))

    def record_at(self, file: BinaryIO, place: int) -> dict[str, Any] | None:
        """Read the record at a place again, from the file or from another that it continues."""
        if place < 0:
            return self.transcript.inherited(place)
        file.seek(place)
        size = self._sizes.get(place)
        # A search for the end of a long line takes its memory twice.
        return lenient_object(file.readline() if size is None else file.read(size))

    def cursor(self, generation: int, following: bytes | memoryview = b"") -> Cursor:
        """Return the cursor behind what was read, and behind some bytes that follow."""
        return self._digest.cursor(generation, following)


class Changed(Exception):  # not an error: it ends a conversation that went on
    """The reader sees messages otherwise that were added before."""


class Conversation:
    """The messages of the live history, converted as the transcript grows.

    A message may wait for a later record, such as the parts of an answer. It is added early when
    the file is settled, and compared once it is complete.

    Attributes:
        skipped: the number of messages that no context takes.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self._places: Sequence[int] = ()
        self._converter: Converter | None = None
        self._early: list[int] = []

    def more(
        self,
        transcript: ForeignTranscript,
        record_at: RecordAt,
        *,
        is_settled: bool,
        present: int = 0,
    ) -> Iterator[bytes]:
        """Yield the messages that were added since the last call; each must be taken.

        Args:
            transcript: what has scanned the file.
            record_at: reads a record again.
            is_settled: nothing was written for a while, so that messages need not wait.
            present: the number of messages that another conversation added before; these do not
                wait, either.

        Raises:
            Changed: messages that were yielded before are others now; this object is spent.
        """
        places = transcript.live()
        known = len(self._places)
        if known and places[:known] != self._places:
            raise Changed
        converter = self._converter = self._converter or transcript.converter()
        early = deque(self._early)
        for line in self._lines(_converted(converter, places[known:], record_at)):
            present -= 1
            if not early:
                yield line
            elif early.popleft() != hash(line):
                raise Changed
        # The converter goes on later: a copy of it ends here.
        waiting = list(self._lines(copy.deepcopy(converter).finish()))
        added, self._places = len(early), places
        hashes = list(map(hash, waiting))
        if hashes[:added] != list(early):
            if is_settled:
                raise Changed
            self._early = list(early)
            return
        ready = max(added, _ready(waiting), min(present, len(waiting)))
        ready = len(waiting) if is_settled else ready
        yield from waiting[added:ready]
        self._early = hashes[:ready]

    def _lines(self, messages: Iterator[Message]) -> Iterator[bytes]:
        # No message stays in memory while its line is sent.
        for line in _lines_of(messages):
            if line is not None:
                yield line
            else:
                self.skipped += 1


def messages_of(
    transcript: ForeignTranscript,
    history: History,
    record_at: RecordAt,
    skip: Callable[[], None] = lambda: None,
) -> Iterator[bytes]:
    """Yield the messages of a history, as a context has them.

    Args:
        transcript: what has scanned the file.
        history: one of its histories.
        record_at: reads a record again.
        skip: called for each message that no context takes.
    """
    converter = transcript.converter()
    messages = chain(_converted(converter, history.places, record_at), converter.finish())
    for line in _lines_of(messages):
        if line is not None:
            yield line
        else:
            skip()


def _lines_of(messages: Iterable[Message]) -> Iterator[bytes | None]:
    """Yield messages as a context has them; None for each that no context takes."""
    # A message leaves the memory before its line is checked, which decodes it once more.
    return map(_checked, map(_encode, messages))


def _checked(line: bytes) -> bytes | None:
    if line.startswith(_CONTROL):
        return line if len(line) <= RECORD_BYTES_MAX else None
    try:
        # ASCII from this encoder is compact and escaped: another copy would show that.
        return check_message(line, verbatim=line.isascii()).data
    except (BadRequest, TooLarge):
        return None


def _ready(waiting: list[bytes]) -> int:
    """The number of waiting messages that are complete: all before the last answer."""
    answers = [at for at, line in enumerate(waiting) if b'"role":"assistant"' in line[:64]]
    return answers[-1] if answers else 0


def _converted(
    converter: Converter, places: Iterable[int], record_at: RecordAt
) -> Iterator[Message]:
    for place in places:
        record = record_at(place)
        messages = deque(() if record is None else converter.messages(place, record))
        # What its messages do not take leaves the memory before they are sent.
        record = None
        while messages:
            yield messages.popleft()


class Agreement(NamedTuple):
    """How far a context has the messages that it should have.

    Attributes:
        same: the number of its first lines that stay.
        has_more: the context has other lines behind them.
        missing: the messages that come behind them.
    """

    same: int
    has_more: bool
    missing: Iterator[bytes]


def agreement(
    present: Iterable[Message],
    wanted: Iterator[bytes],
    is_same: Callable[[Message, Message], bool],
) -> Agreement:
    """Compare a context with the messages that it should have.

    Args:
        present: the records of the context without the keys of steno.
        wanted: the messages; they are read as far as both agree, and one further.
        is_same: whether a record is the wanted message.
    """
    same = 0
    for record in present:
        line = next(wanted, None)
        if line is None:
            return Agreement(same, has_more=True, missing=iter(()))
        if not is_same(record, msgspec.json.decode(line)):
            return Agreement(same, has_more=True, missing=chain([line], wanted))
        same += 1
    return Agreement(same, has_more=False, missing=wanted)

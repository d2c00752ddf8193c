"""kimi-cli's WireFile with steno as the one writer.

Methods and file are the same; these differences to kimi-cli 1.52 are deliberate:

* However many first writers race, the file has one header.
* Torn lines, also in the middle of a character, are skipped, counted in `damaged`, and logged; they
  do not end the reading. An unreadable file is an error.
* An empty file has the version that its header will have.
* An event that could not be read back, because it has NaN in it or is too large, is refused.
"""

import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from steno.adapters._optional import KIMI_CLI, program
from steno.adapters._turns import Turns
from steno.adapters._wire_session import WireFileSession
from steno.parts import encode_messages, in_thread
from steno_protocol import limits, wire
from steno_protocol.errors import BadRequest

_log = logging.getLogger(__name__)


class RecordLike(Protocol):
    """An event of kimi-cli: a pydantic model with a timestamp and a message."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """The event as JSON values."""
        ...


@dataclass(slots=True)
class WireFile:
    """The wire file at `path`.

    When an append returns, its bytes can be read at the path and survive the death of this process
    and of the daemon; they are on the disk within a second.

    Attributes:
        path: the file, as it was given.
        protocol_version: of the file, or of the file that the first append will begin.
        damaged: how many lines this object has skipped.
    """

    path: Path
    protocol_version: str = wire.WIRE_VERSION
    damaged: int = field(default=0, init=False, repr=False, compare=False)
    _lock: Turns = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        self._lock = Turns()
        self.protocol_version = self._session.version()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def version(self) -> str:
        """The version of the events: from the header; 1.1 for a file without one."""
        return self.protocol_version

    @property
    def _session(self) -> WireFileSession:
        # Made for each use: a program may give the object another path.
        return WireFileSession(self.path)

    def is_empty(self) -> bool:
        """True when there is no event; False also when the file cannot be read."""
        return self._session.is_empty()

    async def iter_records(self) -> AsyncIterator[Any]:
        """The events, as kimi-cli's records, of the whole file as it is now.

        Raises:
            BadRequest: kimi-cli is not installed.
            OSError: the file cannot be read.
        """
        record_type = _record_type()
        try:
            file = await in_thread(lambda: self.path.open("rb"))
        except FileNotFoundError:
            return
        try:
            while lines := await in_thread(lambda: _some_lines(file)):
                for line in lines:
                    record = self._read(record_type, line)
                    if record is not None:
                        yield record
        finally:
            file.close()

    async def append_message(self, msg: Any, *, timestamp: float | None = None) -> None:
        """Append a message; `timestamp` is Unix time in seconds, None is now.

        A message may be a plain dict of its `type` and `payload`.
        """
        at = time.time() if timestamp is None else timestamp
        if isinstance(msg, Mapping):
            await self.append_record({"timestamp": at, "message": msg})
            return
        await self.append_record(_record_type().from_wire_message(msg, timestamp=at))

    async def append_record(self, record: RecordLike | Mapping[str, Any]) -> None:
        """Append an event, and make missing folders.

        Raises:
            BadRequest: the event is neither a pydantic model nor a dict, or a dict that JSON cannot
                hold.
        """
        data = _encoded(record)
        async with self._lock:
            await in_thread(lambda: self._session.append(data))

    def _read(self, record_type: Any, line: bytes) -> Any:
        """The event of a line; None for a line that has none."""
        if isinstance(wire.parse_wire_line(line), (wire.BlankLine, wire.Metadata)):
            return None
        try:
            return record_type.model_validate_json(line)
        except ValueError as error:
            # pydantic's ValidationError is a ValueError.
            self.damaged += 1
            _log.warning("a line of %s is no event and is skipped: %s", self.path, error)
            return None


def _encoded(record: RecordLike | Mapping[str, Any]) -> bytes:
    if isinstance(record, Mapping):
        [data] = encode_messages({**record}, "event")
        return data
    if not hasattr(record, "model_dump"):
        raise BadRequest(
            "an event is a dict or a pydantic model here, as kimi-cli's WireMessageRecord is, and"
            f" not a {type(record).__name__}: make one of it, or append it with steno.connect"
        )
    values = record.model_dump(mode="json")
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _some_lines(file: BinaryIO) -> list[bytes]:
    return file.readlines(limits.BLOCK_BYTES)


def _record_type() -> Any:
    return program("kimi_cli.wire.file", KIMI_CLI).WireMessageRecord

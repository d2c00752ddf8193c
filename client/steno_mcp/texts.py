"""The texts of the resources, each with a bounded size: the end of what is too long."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from steno import Client, Session
from steno_mcp.addresses import Address, View
from steno_mcp.limits import RESOURCE_BYTES_MAX, SCAN_BYTES_MAX
from steno_mcp.turns import in_turns
from steno_present import contract
from steno_present.markdown import Markdown, head_of
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat
from steno_redact.records import masked_line, masked_record, masked_stat
from steno_redact.redactor import Redactor


class Tail:
    """The last pieces of a text that fit into a resource."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self.is_cut: bool = False

    def add(self, piece: bytes) -> None:
        """Add a piece, and drop the first ones if there is no more room."""
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size > RESOURCE_BYTES_MAX:
            self._size -= len(self._pieces.popleft())
            self.is_cut = True

    def joined(self, between: bytes = b"") -> str:
        """The text."""
        return between.join(self._pieces).decode(errors="replace")


async def text_of(client: Client, redactor: Redactor, address: Address) -> str:
    """The text of a resource, with its secrets masked before it is cut.

    Raises:
        NotFound: there is no such session or stream.
    """
    return await _TEXTS[address.view](client.session(address.session), redactor, address)


async def _markdown(session: Session, redactor: Redactor, _: Address) -> str:
    stat = masked_stat(redactor, await session.stat())
    start, head = _span(stat)
    tail, rendering = Tail(), Markdown()
    async for record in in_turns(session.records(start, head)):
        tail.add(
            ("\n".join(rendering.record(masked_record(redactor, record))) + "\n").encode(
                errors="replace"
            )
        )
    left = "*earlier messages are left out*\n\n" if tail.is_cut or start.line else ""
    return "\n".join(head_of(stat)) + f"\n{left}" + tail.joined()


async def _json(session: Session, redactor: Redactor, _: Address) -> str:
    stat = masked_stat(redactor, await session.stat())
    start, head = _span(stat)
    tail = Tail()
    async for record in in_turns(session.records(start, head)):
        tail.add(contract.record(masked_record(redactor, record)).rstrip(b"\n"))
    described = contract.document(stat)
    fields = {name: described[name] for name in contract.EXPORT_HEAD}
    document = {**fields, "cut": tail.is_cut or start.line > 0}
    encoded = msgspec.json.encode(document).decode()
    return f'{encoded[:-1]},"records":[\n' + tail.joined(b",\n") + "]}"


async def _wire(session: Session, redactor: Redactor, _: Address) -> str:
    tail = Tail()
    async for event in in_turns(session.wire_records()):
        tail.add(masked_line(redactor, contract.record(event)))
    return tail.joined()


async def _stream(session: Session, redactor: Redactor, address: Address) -> str:
    tail = Tail()
    stream = await session.stream(address.stream)
    async for record in in_turns(stream.records()):
        tail.add(masked_line(redactor, contract.stream_record(record)))
    return tail.joined()


def _span(stat: SessionStat) -> tuple[Position, Position]:
    """The part of a session that is read; of a large one, the end."""
    head = Position.parse(stat.head)
    kept = head.line
    if stat.bytes > SCAN_BYTES_MAX:
        kept = max(1, head.line * SCAN_BYTES_MAX // stat.bytes)
    return Position(head.generation, head.line - kept), head


_TEXTS: Final[dict[View, Callable[[Session, Redactor, Address], Awaitable[str]]]] = {
    "markdown": _markdown,
    "json": _json,
    "wire": _wire,
    "stream": _stream,
}

"""The session behind the path of a wire file.

Everything here blocks, and runs in a thread of the adapter's event loop.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from steno.adapters import _twin
from steno.adapters._address import Address, find_address
from steno.adapters._daemons import client_of
from steno.local import make_private
from steno.values import Ack
from steno_protocol import limits, paths, wire
from steno_protocol.errors import NotFound


class WireFileSession:
    """The session with the wire file at `path`.

    `wire.jsonl` belongs to the session of its folder. A file of another name is the second name of
    the `wire.jsonl` in a folder beside it; it is never rewritten, so both stay one file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: bytes) -> Ack:
        """Append one event; when this returns its bytes can be read at `path`."""
        make_private(self.path.parent)
        address = self._look()
        if not address.is_companion or self.path.exists():
            return _append(address, event)
        address.folder.mkdir(mode=0o700, exist_ok=True)
        # The first append gives the file its name; no other reader may see it empty.
        with _twin.alone(address.folder):
            own = address.folder / paths.WIRE
            if not self.path.exists():
                # The caller's file was removed, if it was ever there: a new one begins.
                own.unlink(missing_ok=True)
            ack = _append(address, event)
            if not self.path.exists():
                os.link(own, self.path)
        return ack

    def version(self) -> str:
        """Return the version of the events, as `Session.wire_version` does."""
        for line in self._lines():
            match wire.parse_wire_line(line):
                case wire.BlankLine():
                    continue
                case wire.Metadata(version):
                    return version
                case _:
                    return wire.LEGACY_VERSION
        return wire.WIRE_VERSION

    def is_empty(self) -> bool:
        """True when there are only blank lines and the header; False when that is unknown."""
        try:
            parsed = map(wire.parse_wire_line, self._lines())
            return all(isinstance(each, (wire.BlankLine, wire.Metadata)) for each in parsed)
        except OSError:
            return False

    def _look(self) -> Address:
        is_own = self.path.name == paths.WIRE
        address = find_address(self.path.with_name(paths.CONTEXT) if is_own else self.path)
        if address.is_companion and self.path.exists():
            _twin.adopt(self.path, address.folder / paths.WIRE)
        return address

    def _lines(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                while line := file.readline(limits.RECORD_BYTES_MAX + limits.HEADER_BYTES_MAX):
                    yield line
        except FileNotFoundError:
            return


def _append(address: Address, event: bytes) -> Ack:
    client = client_of(address)
    try:
        return client.session(address.session).append_wire([event])
    except NotFound:
        # Without stamps, as the context's adapter, which keeps every line byte for byte.
        made = client.open(address.session, follow=False, stamp=False)
        return made.append_wire([event])

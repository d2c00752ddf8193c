"""Rendered rows that are kept for the next page; pure."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from steno_view.limits import ROW_KEPT_BYTES_MAX, ROWS_KEPT_BYTES_MAX, ROWS_KEPT_MAX


class Place(NamedTuple):
    """A generation of a session: its lines never change."""

    session: str
    incarnation: str
    generation: int


class KeptRows:
    """The rows that were used last, bounded by number and size.

    Attributes:
        bytes: the size of all rows.
    """

    def __init__(self) -> None:
        self.bytes: int = 0
        self._rows: OrderedDict[tuple[Place, int], bytes] = OrderedDict()

    def take(self, place: Place, first: int, end: int) -> list[msgspec.Raw]:
        """The rows of a range up to the first line that has none; they are used now."""
        rows: list[msgspec.Raw] = []
        for line in range(first, end):
            row = self._rows.get((place, line))
            if row is None:
                break
            self._rows.move_to_end((place, line))
            rows.append(msgspec.Raw(row))
        return rows

    def add(self, place: Place, first: int, rows: Iterable[msgspec.Raw]) -> None:
        """Keep the rows from line `first` on; those that were used least recently make room."""
        for line, row in enumerate(map(bytes, rows), first):
            self.bytes -= len(self._rows.pop((place, line), b""))
            if len(row) <= ROW_KEPT_BYTES_MAX:
                self._rows[place, line] = row
                self.bytes += len(row)
        while len(self._rows) > ROWS_KEPT_MAX or self.bytes > ROWS_KEPT_BYTES_MAX:
            _, row = self._rows.popitem(last=False)
            self.bytes -= len(row)

"""The record lists of a session that the first change creates, through a client of either kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import steno
from steno.adapters._batches import batches_of
from steno.adapters._either_client import ready
from steno_protocol import limits


@dataclass(frozen=True, slots=True)
class RecordLists:
    """The lists of one session.

    Attributes:
        client: an open client.
        session: the id of the session.
    """

    client: steno.Client | steno.BlockingClient
    session: str

    async def change(self, name: str, change: Callable[[Any], Any]) -> Any:
        """Change a list; create the session if it is missing."""
        items = await self.list(name)
        try:
            return await ready(change(items))
        except steno.NotFound:
            await ready(self.client.open(self.session, follow=False))
            return await ready(change(items))

    async def append(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Add items; up to 4 096 are stored as a whole or not at all."""
        for batch in _batches(items, self.session):
            await self.change(name, _appending(batch))

    async def replace_all(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Replace all items; up to 4 095 at one instant, more in several steps."""
        first, *others = _batches(items, self.session, 1) or [items]
        await self.change(name, lambda stored: stored.replace_all(first))
        for batch in others:
            await self.change(name, _appending(batch))

    async def delete(self, name: str, at: int | str) -> dict[str, Any] | None:
        """Delete an item and return it; None if there is none."""
        items = await self.list(name)
        try:
            found: dict[str, Any] = await ready(items.delete(at))
        except steno.NotFound:
            return None
        return found

    async def read(self, name: str, last: int | None = None) -> steno.ListState | None:
        """Read a list, or its last items; None if there is no session."""
        items = await self.list(name)
        try:
            found: steno.ListState = await ready(items.read(last))
        except steno.NotFound:
            return None
        return found

    async def get(self, name: str, item: str) -> dict[str, Any] | None:
        """Return the item of a name; None if there is none."""
        items = await self.list(name)
        try:
            found: dict[str, Any] | None = await ready(items.get(item))
        except steno.NotFound:
            return None
        return found

    async def list(self, name: str) -> Any:
        """Return a list; it may be missing."""
        return await ready(self.client.session(self.session).record_list(name))


def _batches(
    items: Sequence[Mapping[str, Any]], session: str, taken: int = 0
) -> Sequence[Sequence[Mapping[str, Any]]]:
    """The items in batches; an odd item is an error before the first one is stored."""
    size = limits.BATCH_RECORDS_MAX - taken
    if len(items) > size:
        batches_of(items, session)
    return [items[start : start + size] for start in range(0, len(items), size)]


def _appending(batch: Sequence[Mapping[str, Any]]) -> Callable[[Any], Any]:
    return lambda stored: stored.append(batch)

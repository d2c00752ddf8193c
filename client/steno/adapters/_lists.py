"""The record lists of a session that the first change creates, through a client of either kind.

A stream of a list grows with each change. After some of them a deletion rewrites it with the items
that there are, if these are less than half of its records.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

import steno
from steno.adapters._batches import batches_of
from steno.adapters._checkpoint_log import records_of
from steno.adapters._either_client import ready
from steno.adapters._names import DIGEST, name_of, segment_or_digest
from steno.adapters._stream_rewrite import rewrite
from steno.parts import original
from steno_protocol import limits

_CHANGES: Final = 64
"""Records of a stream after which a deletion looks whether to rewrite it: that reads the list."""

Items = Sequence[Mapping[str, Any]]

_NAME: Final = "name"
"""The stream of a session whose id has no more than a digest of its name."""


@dataclass(frozen=True, slots=True)
class RecordLists:
    """The lists of one session.

    Attributes:
        client: an open client.
        session: the id of the session.
        name: the name to note in a new session, if its id does not show it.
    """

    client: steno.Client | steno.BlockingClient
    session: str
    name: str | None = None

    async def change(self, name: str, change: Callable[[Any], Any]) -> Any:
        """Change a list; create the session if it is missing."""
        items = await self._list(name)
        try:
            return await ready(change(items))
        except (steno.NotFound, steno.OutcomeUnknown) as error:
            # The daemon does not deny that a deleted session had the key of the change.
            if error.code != "not_found":
                raise
            await self._create()
            return await ready(change(items))

    async def append(self, name: str, items: Items, expect: Any = None) -> None:
        """Add items; up to 4 096 are stored as a whole or not at all."""
        for batch in _batches(items, self.session):
            await self.change(name, _appending(batch, expect))
            expect = None

    async def replace_all(self, name: str, items: Items) -> None:
        """Replace all items; up to 4 095 at one instant, more in several steps."""
        first, *others = _batches(items, self.session, 1) or [items]
        await self.change(name, lambda stored: stored.replace_all(first))
        for batch in others:
            await self.change(name, _appending(batch))
        await self._free(name, len(items))

    async def delete(self, name: str, at: int | str) -> dict[str, Any] | None:
        """Delete an item and return it; None if there is none."""
        found: dict[str, Any] | None = await _found((await self._list(name)).delete, at)
        if found is not None:
            await self._free(name)
        return found

    async def read(self, name: str, last: int | None = None) -> steno.ListState | None:
        """Read a list, or its last items; None if there is no session."""
        found: steno.ListState | None = await _found((await self._list(name)).read, last)
        return found

    async def get(self, name: str, item: str) -> dict[str, Any] | None:
        """Return the item of a name; None if there is none."""
        found: dict[str, Any] | None = await _found((await self._list(name)).get, item)
        return found

    async def remove(self, name: str) -> list[dict[str, Any]] | None:
        """Remove a list, and return its items; None if there is none."""
        stream = (await self._list(name)).stream
        while (state := await self.read(name)) is not None:
            try:
                await ready(stream.delete(expect=state.head))
            except steno.NotFound:
                return None
            except steno.Conflict:
                # Another process changed it since it was read.
                continue
            return state.items
        return None

    async def _free(self, name: str, count: int | None = None) -> None:
        """Rewrite the stream of a list if that frees space; without its count rarely."""
        session = self.client.session(self.session)
        try:
            line = (await ready((await ready(session.stream(name))).head())).line
            is_due = line % _CHANGES == 0 if count is None else 2 * count <= line
            if line < _CHANGES or not is_due:
                return
            state = await self.read(name)
            if state is None or 2 * len(state.items) > state.head.line:
                return
            start = steno.Position(state.head.generation, 0)
            records = records_of(await ready(session.stream(name)), start, state.head)
            if len([each.cursor async for each in records]) == state.head.line:
                # Damaged lines stay where they are.
                await rewrite(session, name, state.head, partial(self._fill, state))
        except steno.StenoError:
            # The items are deleted, whatever becomes of their space: a later deletion frees it.
            return

    async def _fill(self, state: steno.ListState, stream: Any) -> None:
        target = await self._list(stream.name)
        # Also without an item there is a list.
        await ready(target.replace_all())
        named = zip(state.names, state.items, strict=True)
        for is_named, group in groupby(named, key=lambda each: each[0] is not None):
            found = list(group)
            if is_named:
                for each in found:
                    await ready(target.put(*each))
                continue
            for batch in _batches([item for _, item in found], self.session):
                await ready(target.append(batch))

    async def _create(self) -> None:
        session = await ready(self.client.open(self.session, follow=False))
        if self.name is not None:
            [line] = batches_of([{"name": self.name}], self.session)
            await ready((await ready(session.stream(_NAME))).append(line))

    async def _list(self, name: str) -> Any:
        return await ready(self.client.session(self.session).record_list(name))


@dataclass(frozen=True, slots=True)
class NamedLists:
    """The lists of sessions with any names, which can be listed.

    Attributes:
        client: an open client.
        prefix: the first segment of the ids of the sessions.
    """

    client: steno.Client | steno.BlockingClient
    prefix: str

    def of(self, name: str) -> RecordLists:
        """Return the lists of a name."""
        segment = segment_or_digest(name)
        noted = name if segment.startswith(DIGEST) else None
        return RecordLists(self.client, f"{self.prefix}/{segment}", noted)

    async def names(self, list_name: str) -> AsyncIterator[str]:
        """Yield the names that have a list."""
        start = f"{self.prefix}/"
        for each in await ready(self.client.sessions(start)):
            segment = each.session.removeprefix(start)
            session = self.client.session(each.session)
            try:
                streams = {stream.name for stream in await ready(session.streams())}
                if "/" not in segment and list_name in streams:
                    yield await self._name(session, segment)
            except steno.NotFound:
                # It was deleted since it was listed.
                continue

    async def _name(self, session: Any, segment: str) -> str:
        if not segment.startswith(DIGEST):
            return name_of(segment)
        [noted] = await ready((await ready(session.stream(_NAME))).last(1))
        return str(original(noted.record)["name"])


async def _found(look: Callable[[Any], Any], what: Any) -> Any:
    try:
        return await ready(look(what))
    except steno.NotFound:
        return None


def _batches(items: Items, session: str, taken: int = 0) -> Sequence[Items]:
    """The items in batches; an odd item is an error before the first one is stored."""
    size = limits.BATCH_RECORDS_MAX - taken
    if len(items) > size:
        batches_of(items, session)
    return [items[start : start + size] for start in range(0, len(items), size)]


def _appending(batch: Items, expect: Any = None) -> Callable[[Any], Any]:
    return lambda stored: stored.append(batch, expect=expect)

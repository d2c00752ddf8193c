"""A list with edits on a stream, through an async client."""

from collections.abc import Callable, Sequence
from typing import Any

from steno._async.stream import Stream
from steno._sansio import edits
from steno._sansio.argument_checks import given_count
from steno._sansio.edits import Edit, Found, StoredEdit
from steno._sansio.messages import JsonObject
from steno._sansio.requests import Durability, PositionLike, position_text
from steno._sansio.view import NotPicklable
from steno.values import Ack, ListState
from steno_protocol.errors import Conflict
from steno_protocol.positions import Position


class RecordList(NotPicklable):
    """A list of JSON objects whose items can change; made by `Session.record_list`.

    Each change is one or more records of a stream, which only grows: the list is what its records
    say, in the order in which the daemon stored them. An item has a number, as in a list of Python,
    and may have a name, which stays when others come and go. Half a surrogate pair in a text is
    kept.

    A change of an item by its number means the one that has it when the change is stored: another
    writer in between makes the list be read again, or is `Conflict` if the caller gave `expect`.

    Attributes:
        stream: the stream of the changes; it can be followed, and deleted.

    Example:
        >>> todo = await session.record_list("todo")
        >>> ack = await todo.append([{"text": "a"}, {"text": "b"}])
        >>> ack = await todo.put("owner", {"text": "Ada"})
        >>> ack = await todo.replace(-1, {"text": "Grace"})
        >>> (await todo.read()).items
        [{'text': 'a'}, {'text': 'b'}, {'text': 'Grace'}]
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.stream!r}>"

    async def append(
        self,
        items: JsonObject | Sequence[JsonObject],
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Add one item, or a sequence of them as one atomic batch, at the end.

        Args:
            items: a dict or another object that JSON can hold, or a sequence of them.
            key: the idempotency key: the items are added once, however often it is sent.
            expect: the head that the caller assumes; with another head nothing is added.
            durability: `synced`, or `written`, as for a stream.

        Returns:
            The ack.

        Raises:
            BadRequest, TooLarge: an item is not JSON or too large, or there are too many.
            NotFound: there is no such session.
            Conflict: another writer was faster, or the key was used before with other items.
            OutcomeUnknown: the items may be there; repeat with the error's `key`.

        Example:
            >>> todo = await session.record_list("todo")
            >>> ack = await todo.append([{"text": "a"}, {"text": "b"}])
            >>> (await todo.read()).items
            [{'text': 'a'}, {'text': 'b'}]
        """
        records = edits.encoded(edits.additions(items))
        return await self.stream.append(records, key=key, expect=expect, durability=durability)

    async def put(
        self,
        name: str,
        item: JsonObject,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Replace the item of a name in its place, or add it at the end; the last one wins.

        Nothing is read before.

        Args:
            name: any text.
            item: the item.
            key: as for `append`.
            expect: as for `append`.
            durability: as for `append`.

        Returns:
            The ack.

        Raises:
            BadRequest, TooLarge: the item is not JSON or too large.
            NotFound: there is no such session.
            Conflict, OutcomeUnknown: as for `append`.

        Example:
            >>> todo = await session.record_list("todo")
            >>> ack = await todo.put("owner", {"text": "Ada"})
            >>> ack = await todo.put("owner", {"text": "Grace"})
            >>> (await todo.read()).items
            [{'text': 'Grace'}]
        """
        records = edits.encoded([edits.put(name, item)])
        return await self.stream.append(records, key=key, expect=expect, durability=durability)

    async def replace(
        self,
        at: int | str,
        item: JsonObject,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> Ack:
        """Replace an item that is there.

        A negative number, and a name, read the end of the list before; another number, and a `key`,
        read all of it.

        Args:
            at: its number, negative from the end, or its name.
            item: the new item.
            key: the idempotency key: repeated with it, the change is made once.
            expect: the head that the caller assumes; with another head nothing is replaced.

        Returns:
            The ack.

        Raises:
            NotFound: there is no such session or item.
            BadRequest, TooLarge: the item is not JSON or too large.
            Conflict: another writer was faster than `expect`, or the key was used before with
                another change.
            OutcomeUnknown: it may be replaced; repeat with the error's `key`.

        Example:
            >>> todo = await session.record_list("todo")
            >>> ack = await todo.append([{"text": "a"}, {"text": "b"}])
            >>> ack = await todo.replace(0, {"text": "c"}, expect=ack.head)
            >>> (await todo.read()).items
            [{'text': 'c'}, {'text': 'b'}]
        """
        changed = await self._change(at, lambda place: edits.replacement(place, item), key, expect)
        return changed[1]

    async def delete(
        self, at: int | str, *, key: str | None = None, expect: PositionLike | None = None
    ) -> dict[str, Any]:
        """Delete an item that is there, and return it; each item is returned to one caller only.

        What is read before is the same as for `replace`.

        Args:
            at: its number, negative from the end, or its name.
            key: as for `replace`.
            expect: as for `replace`.

        Returns:
            The item.

        Raises:
            NotFound: there is no such session or item.
            Conflict, OutcomeUnknown: as for `replace`.

        Example:
            >>> todo = await session.record_list("todo")
            >>> ack = await todo.append([{"text": "a"}, {"text": "b"}])
            >>> await todo.delete(-1)
            {'text': 'b'}
        """
        return (await self._change(at, edits.deletion, key, expect))[0]

    async def replace_all(
        self,
        items: Sequence[JsonObject] = (),
        *,
        last: int | None = None,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> Ack:
        """Replace all items, or the last ones, by others, as one atomic batch.

        Args:
            items: the new items; none empties the list.
            last: how many of the last items go; None is all. Give `expect` with it.
            key: as for `append`.
            expect: as for `append`.

        Returns:
            The ack.

        Raises:
            BadRequest, TooLarge: an item is not JSON or too large, or `last` and the items are more
                records than a batch may have.
            NotFound: there is no such session.
            Conflict, OutcomeUnknown: as for `append`.

        Example:
            >>> todo = await session.record_list("todo")
            >>> ack = await todo.append([{"text": "a"}, {"text": "b"}])
            >>> ack = await todo.replace_all([{"text": "c"}], last=1, expect=ack.head)
            >>> (await todo.read()).items
            [{'text': 'a'}, {'text': 'c'}]
        """
        gone = edits.removals(None if last is None else given_count(last, "last"))
        records = edits.encoded([*gone, *edits.additions(items)])
        return await self.stream.append(records, key=key, expect=expect)

    async def read(self, last: int | None = None) -> ListState:
        """Read the items.

        Args:
            last: how many of the last items; None is all. Without names the end of the stream is
                read, however long it is; what lies before the last `replace_all` is never read.

        Returns:
            The items, and the head of the stream of which they follow.

        Raises:
            NotFound: there is no such session.
            BadRequest: the number is below 0.

        Example:
            >>> todo = await session.record_list("todo")
            >>> ack = await todo.append([{"text": "a"}, {"text": "b"}])
            >>> (await todo.read(1)).items
            [{'text': 'b'}]
        """
        wanted = None if last is None else given_count(last, "last")
        latest, head = await self._latest(lambda found: edits.is_enough(found, wanted))
        return edits.state_of(latest, head, wanted)

    async def get(self, name: str) -> dict[str, Any] | None:
        """Return the item of a name, read from the end of the stream.

        Args:
            name: the name.

        Returns:
            The item; None if there is none.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> todo = await session.record_list("todo")
            >>> ack = await todo.put("owner", {"text": "Ada"})
            >>> await todo.get("owner")
            {'text': 'Ada'}
        """
        latest, head = await self._latest(lambda found: edits.names_item(found, name))
        state = edits.state_of(latest, head, None)
        return dict(zip(state.names, state.items, strict=True)).get(name)

    async def _change(
        self,
        at: int | str,
        edit_at: Callable[[int | str], Edit],
        key: str | None,
        expect: PositionLike | None,
    ) -> tuple[dict[str, Any], Ack]:
        """Find an item and append its change, on the condition that nothing came between."""
        expected = None if expect is None else position_text(expect)
        while True:
            found = await self._find(at, key, expected)
            records = edits.encoded([edit_at(found.place)])
            try:
                ack = await self.stream.append(records, key=key, expect=found.head)
            except Conflict as error:
                # The same head: not another writer is the reason, but what the key was used for.
                if expected is not None or error.head == str(found.head):
                    raise
                continue
            return found.item, ack

    async def _find(self, at: int | str, key: str | None, expected: str | None) -> Found:
        """The item at a place, as it was before the key was used."""
        last = edits.wanted_items(at)
        is_repeat = False
        if key is not None:
            everything, head = await self._latest(lambda _: False)
            latest = edits.before_key(everything, key)
            is_repeat = len(latest) < len(everything)
        elif isinstance(at, str):
            name = at
            latest, head = await self._latest(lambda found: edits.names_item(found, name))
        else:
            latest, head = await self._latest(lambda found: edits.is_enough(found, last))
        state = edits.state_of(latest, head, last)
        if not is_repeat:
            edits.check_expected(expected, head, self.stream.session)
        return edits.find(state, at, self.stream.session, self.stream.name)

    async def _latest(
        self, is_enough: Callable[[Sequence[StoredEdit]], bool]
    ) -> tuple[list[StoredEdit], Position]:
        """The records from the latest back, until there are enough, and the head behind them."""
        head = await self.stream.head()
        found: list[StoredEdit] = []
        for start, end in edits.spans(head):
            lines = self.stream.lines(start, end)
            block = [edit async for line in lines if (edit := edits.stored_edit(line)) is not None]
            found.extend(reversed(block))
            if is_enough(found):
                break
        return found, head

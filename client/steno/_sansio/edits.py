"""Edits of a list as the records of a stream, and the list that they make.

    {"item": {...}}                  adds an item at the end
    {"item": {...}, "name": "a"}     replaces the item of that name, or adds it at the end
    {"item": {...}, "at": -2}        replaces an item, counted from the end: -1 is the last one
    {"delete": -2}, {"delete": "a"}  deletes an item
    {"clear": true}                  deletes all

A place is counted from the end, so that the last items follow from the last edits. What is no edit,
and an edit of an item that is not there, changes nothing.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

import msgspec

from steno._sansio.argument_checks import briefly
from steno._sansio.messages import JsonObject, encode_exactly, encode_messages, is_message, original
from steno.values import ListState, decode_object
from steno_protocol import limits
from steno_protocol.errors import BadRequest, Conflict, NotFound, TooLarge
from steno_protocol.positions import Position

WINDOW_RECORDS: Final = 64
"""Records that a reading of the end begins with.

Each further block has sixteen times as many, because the daemon counts the lines before each.
"""

Edit = dict[str, Any]
"""A record of the stream."""


class StoredEdit(msgspec.Struct, frozen=True, gc=False):
    """An edit in the stream, and the stamp that it came with.

    Attributes:
        stamp: the idempotency key, and its place in a batch behind a dot; None without a key.
        edit: the edit.
    """

    stamp: Any
    edit: Edit

    @property
    def key(self) -> str | None:
        """The idempotency key of its batch."""
        return self.stamp.partition(".")[0] if isinstance(self.stamp, str) else None


class Found(msgspec.Struct, frozen=True):
    """An item that is about to be changed.

    Attributes:
        place: its name, or its number from the end.
        item: the item.
        head: the end of the stream when it was read.
    """

    place: int | str
    item: Any
    head: Position


# --- edits ----------------------------------------------------------------------------------------


def additions(items: JsonObject | Sequence[JsonObject]) -> list[Edit]:
    """Return the edits that add one item, or a sequence of them."""
    if is_message(items) or isinstance(items, str) or not hasattr(items, "__iter__"):
        return [{"item": _given(items)}]
    return [{"item": _given(each)} for each in cast("Sequence[JsonObject]", items)]


def put(name: str, item: JsonObject) -> Edit:
    """Return the edit that replaces the item of a name, or adds it."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadRequest(f"the name of an item is {briefly(name)}: give it as text")
    return {"item": _given(item), "name": name}


def replacement(place: int | str, item: JsonObject) -> Edit:
    """Return the edit that replaces an item."""
    return put(place, item) if isinstance(place, str) else {"item": _given(item), "at": place}


def deletion(place: int | str) -> Edit:
    """Return the edit that deletes an item."""
    return {"delete": place}


def removals(last: int | None) -> list[Edit]:
    """Return the edits that delete the last items, or all."""
    return [{"clear": True}] if last is None else [deletion(-1)] * last


def encoded(edits: Sequence[Edit]) -> list[bytes]:
    """Return the edits of one batch as bytes.

    Raises:
        BadRequest, TooLarge: an item is not JSON, too deep or too large; or there are too many.
    """
    if len(edits) > limits.BATCH_RECORDS_MAX:
        raise TooLarge(
            f"the change has {len(edits)} records, at most {limits.BATCH_RECORDS_MAX} are allowed:"
            " make it in several steps"
        )
    return encode_exactly(edits, "item")


def _given(item: Any) -> Any:
    if isinstance(item, bytes) or not is_message(item):
        # It names the type, and what it could be.
        encode_messages([item], "item")
        raise BadRequest("an item is an object, and this is the bytes of one: decode them first")
    return item


def stored_edit(line: bytes) -> StoredEdit | None:
    """Return the edit in a line of the stream; None for a damaged or blank line.

    The keys that steno inserted stay in it: no edit has one of them.
    """
    record = decode_object(line)
    if record is None:
        return None
    return StoredEdit(record.get("_id"), original(record))


# --- the list -------------------------------------------------------------------------------------


def state_of(latest: Sequence[StoredEdit], head: Position, last: int | None) -> ListState:
    """Return the list that the edits make, or its last items.

    Args:
        latest: the edits from the latest back, as far as `is_enough` wants them.
        head: the end of the stream.
        last: how many items; None for all.
    """
    tail = None if last is None else _last_items(latest, last)
    if tail is not None and tail[1]:
        items = tail[0]
        return ListState(items=items, names=[None] * len(items), head=head)
    listed = [*_listed(latest)]
    wanted = listed if last is None else listed[max(0, len(listed) - last) :]
    names = [name for name, _ in wanted]
    return ListState(items=[item for _, item in wanted], names=names, head=head)


def is_enough(latest: Sequence[StoredEdit], last: int | None) -> bool:
    """Whether no earlier edit can change the list, or its last items."""
    if any("clear" in each.edit for each in latest):
        return True
    if last is None:
        return False
    tail = _last_items(latest, last)
    return tail is not None and tail[1]


def names_item(latest: Sequence[StoredEdit], name: str) -> bool:
    """Whether no earlier edit can change the item of a name."""
    for stored in latest:
        edit = stored.edit
        if "at" in edit or isinstance(edit.get("delete"), int):
            # Which item that is, only the whole list shows.
            return is_enough(latest, None)
        if "clear" in edit or name in (edit.get("name"), edit.get("delete")):
            return True
    return False


def find(state: ListState, at: int | str, session: str, stream: str) -> Found:
    """Return the item that a caller wants to change.

    Args:
        state: the whole list, or for a negative number as many of its last items.
        at: a name, or a number as for a sequence of Python.
        session: the session's id.
        stream: the stream's name.

    Raises:
        NotFound: there is none.
        BadRequest: it is neither a name nor a number.
    """
    if isinstance(at, str):
        if at in state.names:
            return Found(at, state.items[state.names.index(at)], state.head)
        described = f"no item named {at!r:.80}"
    elif isinstance(at, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        if -len(state.items) <= at < len(state.items):
            place = at if at < 0 else at - len(state.items)
            return Found(place, state.items[place], state.head)
        described = f"no item {at}"
    else:
        raise BadRequest(f"the place of an item is {briefly(at)}: give a number or a name")
    raise NotFound(
        f"the list {stream!r} has {described} now: read it again",
        session=session,
        head=str(state.head),
    )


def wanted_items(at: int | str) -> int | None:
    """How many of the last items show the one at a place; None if all are needed."""
    return -at if isinstance(at, int) and at < 0 else None


def before_key(latest: Sequence[StoredEdit], key: str) -> Sequence[StoredEdit]:
    """Return the edits before those of a key, if it was used; otherwise all."""
    numbers = [number for number, each in enumerate(latest) if each.key == key]
    return latest[numbers[-1] + 1 :] if numbers else latest


def check_expected(expect: str | None, head: Position, session: str) -> None:
    """Raise Conflict if the list has another end than the caller assumes."""
    if expect is not None and expect != str(head):
        raise Conflict(
            f"another writer was faster: {expect} was expected and the list ends at {head};"
            " read it again, then decide",
            session=session,
            head=str(head),
        )


def spans(head: Position) -> Iterator[tuple[Position, Position]]:
    """Yield the spans of a stream from its end back."""
    end, window = head.line, WINDOW_RECORDS
    while end > 0:
        start = max(0, end - window)
        yield Position(head.generation, start), Position(head.generation, end)
        end, window = start, window * 16


def _listed(latest: Sequence[StoredEdit]) -> Iterator[tuple[str | None, Any]]:
    """The items, with their names."""
    items: dict[int, tuple[str | None, Any]] = {}
    numbers: dict[str | None, int] = {}
    for number, edit in enumerate(_after_clear(latest)):
        if "item" in edit and "at" not in edit and "name" not in edit:
            # Most edits are this one, and a pattern takes several times as long.
            items[number] = None, edit["item"]
            continue
        match edit:
            case {"item": item, "at": int(at)}:
                if (found := _numbered(items, at)) is not None:
                    items[found] = items[found][0], item
            case {"item": item, "name": str(name)}:
                items[numbers.setdefault(name, number)] = name, item
            case {"item": item} if "at" not in edit:
                items[number] = None, item
            case {"delete": str(name)} if name in numbers:
                del items[numbers.pop(name)]
            case {"delete": int(at)} if (found := _numbered(items, at)) is not None:
                numbers.pop(items.pop(found)[0], None)
            case _:
                continue
    yield from items.values()


def _after_clear(latest: Sequence[StoredEdit]) -> Iterator[Edit]:
    """The edits after the last one that deletes all, in their order."""
    clears = (number for number, each in enumerate(latest) if "clear" in each.edit)
    return (each.edit for each in reversed(latest[: next(clears, len(latest))]))


def _numbered(items: Mapping[int, Any], at: int) -> int | None:
    """The key of an item by its number from the end; None if there are fewer."""
    return next(islice(reversed(items), -at - 1, None), None) if at < 0 else None


_STAYS: Final = object()
_GOES: Final = object()


def _last_items(latest: Sequence[StoredEdit], count: int) -> tuple[list[Any], bool] | None:
    """The last items by the edits from the latest back, and whether no earlier edit matters.

    Returns:
        None if an edit names an item: where it is, only the edits before show.
    """
    items: list[Any] = []
    # What later edits made of the last items, the last one first; of those before it, nothing.
    later: deque[Any] = deque()
    for stored in latest:
        if len(items) >= count:
            break
        match stored.edit:
            case {"clear": _}:
                return items[::-1], True
            case {"item": item, "at": int(at)} if at < 0:
                _extend(later, -at)
                if later[-at - 1] is _STAYS:
                    later[-at - 1] = item
            case {"delete": int(at)} if at < 0:
                _extend(later, -at - 1)
                later.insert(-at - 1, _GOES)
            case {"name": str()} | {"delete": str()}:
                return None
            case {"item": item, **others} if "at" not in others:
                fate = later.popleft() if later else _STAYS
                if fate is not _GOES:
                    items.append(item if fate is _STAYS else fate)
            case _:
                continue
    return items[::-1], len(items) >= count


def _extend(later: deque[Any], length: int) -> None:
    later.extend([_STAYS] * (length - len(later)))

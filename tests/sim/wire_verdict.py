"""What must be true of a session's wire file after everything, told from its bytes alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sim.clients import Fate, Order
from steno_protocol.positions import Position
from steno_protocol.replies import Ack
from support.writing import Sent

Placed = dict[str, tuple[int, int]]
"""First line and size of each command."""


def check(
    lines: Sequence[bytes],
    orders: Sequence[Order],
    answers: Sequence[Sent],
    seen: Mapping[Position, bytes],
) -> None:
    """Check everything that steno promises of a wire file.

    Args:
        lines: the file.
        orders: what was wanted of it.
        answers: every answer, oldest first.
        seen: what somebody who followed it was shown, by its place.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    records = [json.loads(line) for line in lines]
    if records:
        assert records[0] == {"type": "metadata", "protocol_version": "1.10"}, records[0]
    assert all(line.endswith(b"\n") for line in lines)
    placed = _placed(records)
    for order in orders:
        _check_order(order, records, placed)
    places_at = [Position.parse(record["_at"]) for record in records[1:]]
    assert places_at == sorted(places_at), "the place in the context fell"
    _check_order_of_answers(answers)
    for sent in answers:
        _check_place(sent, records, placed)
    for position, line in seen.items():
        assert lines[position.line] == line, f"a follower saw {line!r} at {position}"


def _placed(records: Sequence[dict[str, Any]]) -> Placed:
    """Where each command is: whole, once, in one piece."""
    placed: Placed = {}
    number = 1
    while number < len(records):
        key, _, part = records[number]["_id"].partition(".")
        size = int(part.split("/")[1]) if part else 1
        names = [key] if size == 1 else [f"{key}.{index}/{size}" for index in range(size)]
        found = [record["_id"] for record in records[number : number + size]]
        assert found == names, f"a batch that is not whole: {found}"
        assert key not in placed, f"{key} is there twice"
        placed[key] = number, size
        number += size
    return placed


def _check_order(order: Order, records: Sequence[dict[str, Any]], placed: Placed) -> None:
    assert order.fate is not Fate.OPEN, f"{order.key} was never answered"
    if order.fate is Fate.REFUSED:
        assert order.key not in placed, f"{order.key} was refused and is there"
    if order.fate is not Fate.DONE:
        return
    assert order.key in placed, f"{order.key} was acked and is nowhere"
    first, size = placed[order.key]
    told = {(ack.first, ack.head) for ack in order.acks}
    assert told == {(f"0:{first}", f"0:{first + size}")}, f"{order.key}: {told}, it is at {first}"
    for record, given in zip(records[first : first + size], order.records, strict=True):
        public = {key: value for key, value in record.items() if key[0] != "_"}
        assert public == json.loads(given)
        assert record.get("_by") == order.command.by


def _check_order_of_answers(answers: Sequence[Sent]) -> None:
    """Whoever was answered first stands first."""
    acks = [sent.answer for sent in answers if isinstance(sent.answer, Ack)]
    fresh = [ack for ack in acks if ack.durability == "synced" and not ack.duplicate]
    firsts = [Position.parse(ack.first) for ack in fresh]
    assert firsts == sorted(set(firsts)), f"answered in another order: {firsts}"


def _check_place(sent: Any, records: Sequence[dict[str, Any]], placed: Placed) -> None:
    """An event is joined to the context as it was durable when the event was decided upon."""
    answer, key = sent.answer, sent.command.key
    if not isinstance(answer, Ack) or answer.duplicate or key not in placed:
        return
    first, size = placed[key]
    if answer.first != f"0:{first}":
        # It was written, acknowledged as no more than that, and withdrawn.
        return
    least, most = sent.heads
    for record in records[first : first + size]:
        at = Position.parse(record["_at"])
        assert at >= least, f"{key} is joined to {at}, and was sent at {least}"
        assert at <= most, f"{key} is joined to {at}, and only {most} was durable"

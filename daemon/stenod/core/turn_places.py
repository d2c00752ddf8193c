"""Positions of turns without `_at` in a rewritten context.

A rewrite leaves user messages that began no turn: the summary of a compaction, preserved messages,
a D-Mail. The number of a turn therefore identifies no message. Instead, the time of its `TurnBegin`
event gives the generation, and the event's text, which the turn's message repeats, gives the line.
A turn that these do not identify stays unplaced.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from stenod.core.timeline import Beginning
from stenod.core.turns import Turn, UserMessage


class Unplaced(msgspec.Struct, frozen=True):
    """The reason why the position of a turn is unknown, as a clause after "because"."""

    why: str


def generations_of(
    turns: Sequence[Turn], beginnings: Sequence[Beginning | None]
) -> list[int | None]:
    """Return the generation in which each turn began; None if it is unknown.

    Args:
        turns: the turns of the wire file.
        beginnings: the beginnings of all generations.
    """
    times = [beginning.at if beginning is not None else None for beginning in beginnings[1:]]
    starts = [time for time in times if time is not None]
    are_ordered = len(starts) == len(times) and starts == sorted(starts)
    found: list[int | None] = []
    least = 0
    for turn in turns:
        generation = _generation_of(turn, least, starts if are_ordered else None, len(beginnings))
        found.append(generation)
        least = least if generation is None else max(least, generation)
    return found


def _generation_of(
    turn: Turn, least: int, starts: Sequence[float] | None, count: int
) -> int | None:
    if turn.at is not None:
        return turn.at.generation
    most = count - 1 if turn.before is None else turn.before.generation
    if least == most:
        return most
    if turn.began is None or starts is None:
        return None
    began = turn.began
    generation = sum(start <= began for start in starts)
    return generation if least <= generation <= most else None


def place(
    turns: Sequence[Turn],
    number: int,
    messages: Sequence[UserMessage],
    generation: int,
    *,
    is_recorded: bool,
) -> UserMessage | Unplaced | None:
    """Return the message with which a turn began.

    Args:
        turns: the turns that began in the generation, in order.
        number: the index of the turn.
        messages: the user messages of the generation, without those that a rewrite put there.
        generation: its number.
        is_recorded: the timeline has the beginnings of this and the next generation, so `turns` is
            certain.

    Returns:
        The message; for a turn without a message the first one of a later turn, or None if there
        is none.
    """
    own = matched(turns, messages)
    if number in own:
        return own[number]
    if generation == 0 and not own and is_recorded:
        # The program writes different texts to the two files. No rewrite put a message into this
        # generation, so turns are counted as in a session without rewrites.
        return messages[number] if number < len(messages) else None
    content = turns[number].content
    if content is not None and any(message.content == content for message in messages):
        return Unplaced(
            f"generation {generation} does not hold its text as often as there are turns with it"
        )
    following = min((other for other in own if other > number), default=None)
    preceding = max((other for other in own if other < number), default=None)
    begin = -1 if preceding is None else own[preceding].line
    end = None if following is None else own[following]
    between = [
        message for message in messages
        if begin < message.line and (end is None or message.line < end.line)
    ]  # fmt: skip
    if between or not is_recorded:
        return Unplaced(f"generation {generation} holds no message of the user with its text")
    return end


def matched(turns: Sequence[Turn], messages: Sequence[UserMessage]) -> dict[int, UserMessage]:
    """Return the messages of the turns that their text identifies, by turn number.

    A text identifies its turns if as many messages as turns have it.
    """
    given = Counter(turn.content for turn in turns)
    held = Counter(message.content for message in messages)
    by_content: dict[bytes, list[UserMessage]] = {}
    for message in reversed(messages):
        if message.content is not None:
            by_content.setdefault(message.content, []).append(message)
    found: dict[int, UserMessage] = {}
    for number, turn in enumerate(turns):
        if turn.content is not None and given[turn.content] == held[turn.content]:
            found[number] = by_content[turn.content].pop()
    lines = [message.line for message in found.values()]
    return found if lines == sorted(lines) else {}

"""The messages of a context as turns that any model takes.

A service refuses what its own program would never send: a call without a result, a result without
a call, two calls with one id, a thought that it did not sign. A context of another program, or of a
session that was interrupted, has all of these. So a turn is one of three things, and each call is
followed by its result:

    Prompt(pieces)            what a person says
    Answer(texts, calls)      what the model says, and all tools that it calls at once
    Result(call, pieces)      what a tool returns
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from steno_agents.limits import CALL_ID_CHARS_MAX, TOOL_NAME_CHARS_MAX
from steno_agents.transcript import object_field, objects, text_field
from steno_protocol._json import is_object
from steno_protocol.paths import UUID_CHARS, key_time_ms

INTERRUPTED: Final = "The call was interrupted: its result is not known."
"""The result of a call that has none."""

_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{CALL_ID_CHARS_MAX}}}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_DATA: Final = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,(.+)", re.DOTALL | re.IGNORECASE)

_NOTES: Final = frozenset({"system", "developer", "_system_prompt"})
"""What a program tells the model by itself, and tells it anew in its own words."""


class Picture(NamedTuple):
    """An image.

    Attributes:
        media: its type, such as `image/png`; empty for one that has only an address.
        data: its bytes in base64; empty for one that has only an address.
        link: its address, for one that has only that.
    """

    media: str
    data: str
    link: str = ""

    @property
    def url(self) -> str:
        """The image as an address."""
        return self.link or f"data:{self.media};base64,{self.data}"


Piece = str | Picture
"""A part of a prompt or of a result; a text has at least one character."""


class Call(NamedTuple):
    """A call of a tool.

    Attributes:
        identity: its id, unique in the conversation.
        name: the name of the tool.
        arguments: what it is called with.
    """

    identity: str
    name: str
    arguments: dict[str, Any]


class Prompt(NamedTuple):
    """What a person says.

    Attributes:
        pieces: at least one.
        at_ms: Unix time in milliseconds; times of turns rise.
    """

    pieces: tuple[Piece, ...]
    at_ms: int


class Answer(NamedTuple):
    """What the model says; it has a text or a call.

    Attributes:
        texts: its texts.
        calls: the tools that it calls; as many results follow.
        at_ms: Unix time in milliseconds.
    """

    texts: tuple[str, ...]
    calls: tuple[Call, ...]
    at_ms: int


class Result(NamedTuple):
    """What a tool returns.

    Attributes:
        call: the call that it answers.
        pieces: the result; may be empty.
        failed: the tool failed.
        at_ms: Unix time in milliseconds.
    """

    call: Call
    pieces: tuple[Piece, ...]
    failed: bool
    at_ms: int


Turn = Prompt | Answer | Result


class Conversation(NamedTuple):
    """A conversation, and what is not in it.

    Attributes:
        turns: the turns in their order.
        left_out: how often something is left out, by its name in the singular.
        interrupted: the calls that got a result which says that they were interrupted.
        renamed: the calls whose tool has a name with signs that services refuse.
    """

    turns: list[Turn]
    left_out: dict[str, int]
    interrupted: int
    renamed: int


def conversation(
    messages: Iterable[dict[str, Any]], now_ms: int, *, takes_links: bool
) -> Conversation:
    """Return the messages and control records of a context as turns.

    Args:
        messages: the records, the first one first.
        now_ms: the time of turns without one, if no other turn has a time.
        takes_links: the program takes images that have only an address.
    """
    reading = _Reading(takes_links=takes_links)
    for message in messages:
        reading.message(message)
    turns = list(_timed(reading.turns(), now_ms))
    return Conversation(turns, dict(reading.left_out), reading.interrupted, reading.renamed)


@dataclass(slots=True)
class _Step:
    """An answer with the results of its calls, or a prompt."""

    pieces: list[Piece]
    at_ms: int | None
    is_prompt: bool = False
    calls: list[Call] = field(default_factory=list[Call])
    results: dict[str, Result] = field(default_factory=dict[str, Result])


class _Reading:
    def __init__(self, *, takes_links: bool) -> None:
        self._takes_links = takes_links
        self._steps: list[_Step] = []
        # The answer and the call that a result belongs to, by the id in the context.
        self._open: dict[str, tuple[_Step, Call]] = {}
        self._ids: set[str] = set()
        self.left_out: Counter[str] = Counter()
        self.interrupted = 0
        self.renamed = 0

    def message(self, message: dict[str, Any]) -> None:
        """Read the next record; a control record without words is no part of a conversation."""
        role = message.get("role")
        match role:
            case "user":
                pieces = self._pieces(message)
                if pieces:
                    self._steps.append(_Step(pieces, _time_of(message), is_prompt=True))
            case "assistant":
                self._answer(message)
            case "tool":
                self._result(message)
            case str() if role in _NOTES:
                self.left_out["system message"] += 1
            case str() if role.startswith("_"):
                pass
            case _:
                self.left_out["unknown message"] += 1

    def _answer(self, message: dict[str, Any]) -> None:
        said = self._pieces(message)
        texts = [each for each in said if isinstance(each, str)]
        self._leave_out("image in an answer", len(said) - len(texts))
        calls = objects(message.get("tool_calls"))
        if not (texts or calls):
            return
        last = self._steps[-1] if self._steps else None
        # Codex writes the parts of one answer one by one. Services want one message of them.
        if last is None or last.is_prompt or last.results:
            last = _Step([], _time_of(message))
            self._steps.append(last)
        last.pieces += texts
        for each in calls:
            call = self._call(each)
            last.calls.append(call)
            self._open[str(each.get("id"))] = (last, call)

    def _call(self, call: dict[str, Any]) -> Call:
        function = object_field(call, "function")
        given = text_field(function, "name") or "unknown"
        name = _NOT_IN_NAMES.sub("_", given)[:TOOL_NAME_CHARS_MAX]
        self.renamed += name != given
        return Call(self._identity(str(call.get("id"))), name, _arguments(function))

    def _identity(self, given: str) -> str:
        """The id of a call; a new one if services refuse it, or an earlier call has it."""
        identity, number = given, len(self._ids)
        while identity in self._ids or not _ID.fullmatch(identity):
            number += 1
            identity = f"call_{number}"
        self._ids.add(identity)
        return identity

    def _result(self, message: dict[str, Any]) -> None:
        found = self._open.pop(str(message.get("tool_call_id")), None)
        if found is None:
            self.left_out["result without its call"] += 1
            return
        step, call = found
        failed = message.get("is_error") is True
        pieces = tuple(self._pieces(message))
        at_ms = _time_of(message) or 0
        step.results[call.identity] = Result(call, pieces, failed, at_ms)

    def _pieces(self, message: dict[str, Any]) -> list[Piece]:
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        pieces = (self._piece(each) for each in objects(parts))
        return [each for each in pieces if each is not None]

    def _piece(self, part: dict[str, Any]) -> Piece | None:
        match part.get("type"):
            case "text":
                return text_field(part, "text")
            case "think":
                self._leave_out("thought", 1 if part.get("think") else 0)
                return None
            case "image_url":
                return self._picture(part)
            case _:
                self._leave_out("unknown part", 1)
                return None

    def _picture(self, part: dict[str, Any]) -> Picture | None:
        named = part.get("image_url")
        url = named.get("url") if is_object(named) else named
        data = _DATA.fullmatch(url) if isinstance(url, str) else None
        if data is not None:
            return Picture(data[1].lower(), data[2])
        if self._takes_links and isinstance(url, str) and url.startswith(("https://", "http://")):
            return Picture("", "", url)
        self._leave_out("linked image", 1)
        return None

    def _leave_out(self, what: str, number: int) -> None:
        if number:
            self.left_out[what] += number

    def turns(self) -> Iterator[Turn]:
        """The turns, with times that may be 0."""
        for step in self._steps:
            if step.is_prompt:
                yield Prompt(tuple(step.pieces), step.at_ms or 0)
                continue
            texts = tuple(each for each in step.pieces if isinstance(each, str))
            yield Answer(texts, tuple(step.calls), step.at_ms or 0)
            yield from step.results.values()
            for call in step.calls:
                if call.identity not in step.results:
                    self.interrupted += 1
                    yield Result(call, (INTERRUPTED,), failed=True, at_ms=0)


def _arguments(function: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call; a text that is no object becomes one, as all services want it."""
    given = function.get("arguments")
    try:
        value = json.loads(given) if isinstance(given, str) and given else given
    except (ValueError, RecursionError):
        value = given
    if value is None or value == "":
        return {}
    return value if is_object(value) else {"input": value}


def _time_of(message: dict[str, Any]) -> int | None:
    """The time of a message: the one that it names, else that of the request that wrote it."""
    stamp = text_field(message, "_id")
    named = text_field(message, "timestamp")
    if named is not None:
        try:
            when = datetime.fromisoformat(named)
        except ValueError:
            pass
        else:
            zoned = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
            return int(zoned.timestamp() * 1000)
    return None if stamp is None else key_time_ms(stamp[:UUID_CHARS])


def _timed(turns: Iterable[Turn], now_ms: int) -> Iterator[Turn]:
    """Give each turn a time behind that of the one before: programs sort by it."""
    listed = list(turns)
    last = next((each.at_ms for each in listed if each.at_ms > 0), now_ms) - 1
    for turn in listed:
        last = max(last + 1, turn.at_ms)
        yield turn._replace(at_ms=last)

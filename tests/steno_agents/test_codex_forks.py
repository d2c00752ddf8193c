"""A fork of Codex begins with the records of another rollout, which a lookup finds."""

from collections.abc import Iterator, Mapping
from typing import Any

from steno_agents.codex import Codex
from steno_agents.transcript import Message, text_of

Record = dict[str, Any]


class Rollout:
    """A rollout in memory; its places are ten times the numbers of its records."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def records(self) -> Iterator[tuple[int, Record]]:
        for number, record in enumerate(self._records):
            yield 10 * number, record

    def record(self, place: int) -> Record | None:
        return self._records[place // 10]


def line(ordinal: int, kind: str, payload: Record) -> Record:
    return {"timestamp": "2026-01-02T03:04:05Z", "ordinal": ordinal, "type": kind,
            "payload": payload}  # fmt: skip


def head(ordinal: int, session: str, prompt: str | None = None, **fields: Any) -> Record:
    base = {} if prompt is None else {"base_instructions": {"text": prompt}}
    return line(ordinal, "session_meta", {"id": session, "cwd": "/srv", **base, **fields})


def fork(ordinal: int, session: str, of: str, end: int, prompt: str | None = None) -> Record:
    forked = {"forked_from_id": of, "forked_from_ordinal_exclusive": end}
    return head(ordinal, session, prompt, **forked)


def said(ordinal: int, role: str, text: str) -> Record:
    content = [{"type": "input_text", "text": text}]
    return line(ordinal, "response_item", {"type": "message", "role": role, "content": content})


PARENT = [
    head(0, "a", "be good"),
    said(1, "user", "one"), said(2, "assistant", "first"),
    said(3, "user", "two"), said(4, "assistant", "second"),
    said(5, "user", "after the fork"),
]  # fmt: skip


def scanned(records: list[Record], others: Mapping[str, list[Record]]) -> Codex:
    found = Codex()
    rollouts = {name: Rollout(each) for name, each in others.items()}
    found.lookup = rollouts.get
    for place, record in enumerate(records):
        found.scan(place, record)
    return found


def told(found: Codex, records: list[Record]) -> list[list[str]]:
    """The roles and texts of each history."""
    shown: list[list[str]] = []
    for history in found.histories():
        converter = found.converter()
        messages: list[Message] = []
        for place in history.places:
            record = records[place] if place >= 0 else found.inherited(place)
            assert record is not None
            messages += converter.messages(place, record)
        shown.append([f"{each['role'][:4]} {text_of(each['content'])}" for each in messages])
    return shown


def test_a_fork_begins_with_what_came_before_it() -> None:
    own = [fork(5, "b", "a", 5), said(6, "user", "three")]
    found = scanned(own, {"a": PARENT})
    assert told(found, own) == [[
        "_sys be good", "user one", "assi first", "user two", "assi second", "user three",
    ]]  # fmt: skip
    assert (found.session, found.elsewhere) == ("b", None)
    assert found.title(found.histories()) == "one"


def test_the_instructions_of_a_fork_take_the_place_of_those_before() -> None:
    own = [fork(3, "b", "a", 3, "be brief"), said(4, "user", "three")]
    found = scanned(own, {"a": PARENT})
    assert told(found, own) == [["_sys be brief", "user one", "assi first", "user three"]]


def test_a_fork_of_a_fork_goes_back_to_the_first() -> None:
    middle = [fork(5, "b", "a", 5), said(6, "user", "three"), said(7, "assistant", "third")]
    own = [fork(7, "c", "b", 7), said(8, "user", "four")]
    found = scanned(own, {"a": PARENT, "b": middle})
    assert told(found, own)[0][-3:] == ["assi second", "user three", "user four"]
    # A fork of the part that the middle one has itself from the first.
    early = [fork(3, "c", "b", 3), said(4, "user", "four")]
    found = scanned(early, {"a": PARENT, "b": middle})
    assert told(found, early) == [["_sys be good", "user one", "assi first", "user four"]]


def test_turns_before_a_fork_can_be_withdrawn_in_it() -> None:
    back = line(6, "event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    own = [fork(5, "b", "a", 5), back, said(7, "user", "two again")]
    found = scanned(own, {"a": PARENT})
    assert [each.end for each in found.histories()] == ["roll-back", "live"]
    assert told(found, own) == [
        ["_sys be good", "user one", "assi first", "user two", "assi second"],
        ["_sys be good", "user one", "assi first", "user two again"],
    ]


def test_a_fork_whose_beginning_is_not_there_says_where_it_is() -> None:
    own = [fork(5, "b", "a", 5), said(6, "user", "three")]
    found = scanned(own, {})
    assert told(found, own) == [["user three"]]
    assert found.elsewhere == "a"
    found = scanned([fork(7, "c", "b", 7), said(8, "user", "four")], {"b": own})
    assert found.elsewhere == "a"


def test_a_rollout_that_names_itself_ends() -> None:
    own = [fork(5, "b", "b", 5), said(6, "user", "three")]
    found = scanned(own, {"b": own})
    assert found.elsewhere == "b"
    assert told(found, own) == [["user three"]]


def test_an_old_fork_which_is_a_copy_looks_for_nothing() -> None:
    copied = [head(0, "b", forked_from_id="a"), *PARENT[:3], said(3, "user", "three")]
    found = scanned(copied, {})
    assert found.elsewhere is None
    assert found.session == "b"
    assert told(found, copied)[0][-1] == "user three"

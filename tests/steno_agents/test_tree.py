"""Transcripts that are trees: the live branch of a long one, and what a record costs."""

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from steno_agents.claude_code import ClaudeCode
from steno_agents.pi import Pi
from steno_agents.transcript import ForeignTranscript
from support.agent_files import claude_node

Maker = Callable[[random.Random], Iterator[dict[str, Any]]]

_MANY = 120


def claude(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Records of Claude Code, of which each has any of the earlier ones as its parent."""
    known, groups, calls, typed = ["gone"], ["g"], ["c"], ["q"]
    for number in range(_MANY):
        identity = f"u{number}"
        parent = _parent(chance, known, f"u{number + chance.randint(1, 3)}")
        kinds = ["prompt", "answer", "result", "queue", "queued", "leaf", "boundary"]
        match chance.choices(kinds, [6, 8, 8, 3, 3, 2, 1])[0]:
            case "prompt":
                yield claude_node(identity, parent, "user", f"say {number}")
            case "answer":
                group = groups[-1] if chance.random() < 0.5 else f"g{number}"
                groups.append(group if chance.random() < 0.9 else chance.choice(groups))
                calls += (new := [f"c{number}-{each}" for each in range(chance.randrange(3))])
                used = [{"type": "tool_use", "id": each, "name": "Bash"} for each in new]
                content = used or [{"type": "text", "text": "yes"}]
                message = {"id": groups[-1]}
                yield claude_node(identity, parent, "assistant", content, message=message)
            case "result":
                answered = [calls[-1], chance.choice(calls)][: chance.randint(1, 2)]
                content = [{"type": "tool_result", "tool_use_id": each} for each in answered]
                yield claude_node(identity, parent, "user", content)
            case "queue":
                typed.append(f"q{number}")
                yield {"type": "queue-operation", "operation": "enqueue", "content": typed[-1]}
                yield {"type": "queue-operation", "operation": "remove"}
                continue
            case "queued":
                attached = {"type": "queued_command", "prompt": chance.choice(typed)}
                yield {"type": "attachment", "attachment": attached} | _node(identity, parent)
            case "leaf":
                yield {"type": "last-prompt", "leafUuid": chance.choice(known[-9:])}
                continue
            case _:
                kept = {"anchorUuid": f"u{number + 1}", "uuids": known[-3:]}
                yield {
                    "type": "system", "subtype": "compact_boundary", "logicalParentUuid": known[-1],
                    "compactMetadata": {"preservedMessages": kept}, **_node(identity, None),
                }  # fmt: skip
        known.append(identity)


def _parent(chance: random.Random, known: list[str], later: str) -> str | None:
    others = [None, later, chance.choice(known[-6:]), chance.choice(known)]
    return chance.choices([known[-1], *others], [88, 1, 4, 6, 2])[0]


def _node(identity: str, parent: str | None) -> dict[str, Any]:
    return {"uuid": identity, "parentUuid": parent, "sessionId": "s"}


def pi(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Entries of pi, of which each has any of the earlier ones as its parent."""
    known = ["gone"]
    for number in range(_MANY):
        entry: dict[str, Any] = {"id": f"e{number}"}
        entry["parentId"] = _parent(chance, known, f"e{number + chance.randint(1, 3)}")
        if chance.random() < 0.08:
            yield {"type": "compaction", "firstKeptEntryId": chance.choice(known[-5:]), **entry}
        else:
            yield {"type": "message", "message": {"role": "user", "content": "x"}, **entry}
        known.append(entry["id"])


@pytest.mark.parametrize("tail", [2, 20])
@pytest.mark.parametrize(("kind", "maker"), [(ClaudeCode, claude), (Pi, pi)])
def test_the_live_branch_is_found_from_its_end(
    monkeypatch: pytest.MonkeyPatch, kind: type[ForeignTranscript], maker: Maker, tail: int
) -> None:
    monkeypatch.setattr("steno_agents.tree.LIVE_TAIL_RECORDS", tail)
    for seed in range(8):
        found = kind()
        for place, record in enumerate(maker(random.Random(seed))):
            found.scan(place, record)
            histories = found.histories()
            assert list(found.live()) == list(histories[-1].places if histories else ()), seed


def test_a_parent_that_comes_later_is_in_the_live_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steno_agents.tree.LIVE_TAIL_RECORDS", 2)
    found, parents = ClaudeCode(), {"a": None, "b": "d", "c": "b", "d": "a", "e": "c", "f": "e"}
    for place, (identity, parent) in enumerate(parents.items()):
        found.scan(place, claude_node(identity, parent, "user", identity))
    assert list(found.live()) == list(found.live()) == [0, 1, 2, 3, 4, 5]


def test_a_root_that_comes_last_takes_a_look_no_square_of_the_records() -> None:
    found, many = ClaudeCode(), 20_000
    for place in range(many):
        parent = "r0" if place == 0 else f"r{place}"
        found.scan(place, claude_node(f"r{place + 1}", parent, "user", "x"))
    found.scan(many, claude_node("r0", None, "user", "x"))
    found.scan(many + 1, claude_node("end", f"r{many}", "user", "x"))
    begun = time.process_time()
    assert len(found.live()) == many + 2
    # Each record's path to the root takes 2.5 s.
    assert time.process_time() - begun < 1


def test_a_record_takes_a_hundred_bytes_and_a_look_at_a_long_branch_little() -> None:
    found, many = ClaudeCode(), 3000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(0, many, 3):
            texts = [{"type": "text", "text": "I look"}]
            used = [{"type": "tool_use", "id": f"call-{number}", "name": "Bash"}]
            result = [{"type": "tool_result", "tool_use_id": f"call-{number}"}]
            message = {"id": f"answer-{number}"}
            for at, (role, content) in enumerate(
                [("assistant", texts), ("assistant", used), ("user", result)], number
            ):
                parent = f"record-{at - 1}" if at else None
                more = message if role == "assistant" else None
                found.scan(at, claude_node(f"record-{at}", parent, role, content, message=more))
        after, _ = tracemalloc.get_traced_memory()
        assert after - before < found.record_bytes * many
        assert list(found.live()) == list(range(many))
        tracemalloc.reset_peak()
        found.live()
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The places of the history, twice, and marks of the records.
    assert peak - now < 24 * many


def compacted_claude(parent: str, identity: str) -> dict[str, Any]:
    fields = {"subtype": "compact_boundary", "logicalParentUuid": parent}
    return claude_node(identity, None, "system", "", **fields)


def compacted_pi(parent: str, identity: str) -> dict[str, Any]:
    kept = {"firstKeptEntryId": parent, "summary": "x"}
    return {"type": "compaction", "id": identity, "parentId": parent, **kept}


@pytest.mark.parametrize(("kind", "compact"), [(ClaudeCode, compacted_claude), (Pi, compacted_pi)])
def test_the_histories_of_a_long_transcript_take_little_beside_it(
    kind: type[ForeignTranscript], compact: Callable[[str, str], dict[str, Any]]
) -> None:
    found, many = kind(), 20_000
    said = {"type": "message"} if kind is Pi else {}
    for place in range(many):
        parent, identity = f"r{place - 1}", f"r{place}"
        record = claude_node(identity, parent if place else None, "user", "x", **said)
        record["parentId"], record["id"] = record["parentUuid"], identity
        found.scan(place, compact(parent, identity) if place == 9 else record)
    tracemalloc.start()
    try:
        past, live = found.histories()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(past.places), len(live.places)) == (9, many - (9 if kind is ClaudeCode else 8))
    # The path, its places and marks; a list of the records takes 36 bytes for each.
    assert peak < 40 * many

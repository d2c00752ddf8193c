"""The timeline: decoding, voided entries, and entries inferred from files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import checkpoint_ids, limits, timeline_entries
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.keys import Applied
from support.lines import line


def rewrite(
    generation: int, key: str = "k", kind: str = "reverted", lines: int = 5
) -> TimelineEntry:
    details = {"lines": lines, "old": (10, 20), "new": (30, 40)}
    return TimelineEntry(kind=kind, generation=generation, key=key, at=1.0, details=details)


def encoded(*entries: TimelineEntry) -> bytes:
    return b"".join(map(timeline.encode, entries))


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")), max_size=4))
def test_lines_that_cannot_be_read_are_passed_over(rubbish: list[bytes]) -> None:
    data = b"\n".join([*rubbish, timeline.encode(rewrite(1, "a"))])

    assert [entry.key for entry in timeline.decode(data)] == ["a"]


def test_a_void_takes_back_the_rewrite_before_it_and_nothing_else() -> None:
    voided = TimelineEntry(kind=timeline_entries.VOIDED, generation=2, key="b")
    repaired = TimelineEntry(kind="repaired", generation=2)
    data = encoded(rewrite(1, "a"), repaired, rewrite(2, "b"), voided, rewrite(2, "c"))

    assert [entry.key for entry in timeline.decode(data)] == ["a", None, "c"]


def test_the_newest_rewrite_is_in_doubt_until_a_later_entry() -> None:
    entries = [rewrite(1, "a"), rewrite(2, "b"), TimelineEntry(kind="repaired", generation=1)]

    found = timeline.in_doubt(encoded(*entries))
    assert found is not None
    assert found.key == "b"
    assert (
        timeline.in_doubt(encoded(*entries, TimelineEntry(kind="repaired", generation=2))) is None
    )
    assert timeline.in_doubt(b"") is None


def test_changes_before_a_voided_rewrite_are_certain() -> None:
    voided = TimelineEntry(kind=timeline_entries.VOIDED, generation=2, key="b")
    entries = [rewrite(1, "a"), rewrite(2, "b"), voided]

    assert timeline.in_doubt(encoded(*entries)) is None
    again = timeline.in_doubt(encoded(*entries, rewrite(2, "c")))
    assert again is not None
    assert again.key == "c"


@pytest.mark.parametrize("kind", timeline_entries.REWRITES)
def test_a_rewrite_is_answered_from_its_entry(kind: str) -> None:
    assert timeline.applied_of(rewrite(3, kind=kind), "context_3.jsonl") == Applied(
        timeline_entries.REWRITES[kind], Position(3, 5), 0, rotated="context_3.jsonl"
    )


@pytest.mark.parametrize(
    "details", [{}, {"old": 5}, {"old": [1]}, {"old": ["a", "b"]}, {"old": None}]
)
def test_an_entry_without_a_fingerprint_has_none(details: dict[str, object]) -> None:
    entries = timeline.decode(line({"kind": "reverted", "generation": 1, "details": details}))

    assert timeline.fingerprint_of(entries[0], "old") is None


def test_a_fingerprint_looks_at_the_length_and_the_end() -> None:
    end = bytes(limits.FINGERPRINT_BYTES)

    assert timeline.fingerprint(9, b"x" + end) == timeline.fingerprint(9, end)
    assert timeline.fingerprint(9, b"abc") != timeline.fingerprint(9, b"abd")
    assert timeline.fingerprint(9, b"abc") != timeline.fingerprint(8, b"abc")


def test_an_unrecorded_rotation_is_inferred() -> None:
    created = TimelineEntry(kind="created", generation=0, at=1.0)
    entry = rewrite(2)

    entries = timeline.with_inferred([created, entry], {1: 0.5, 2: 0.9})

    # In the order of the generations, though its file's time is a little behind.
    assert [(entry.kind, entry.generation, entry.inferred) for entry in entries] == [
        ("created", 0, False),
        ("rotated", 1, True),
        ("reverted", 2, False),
    ]


# --- chains of rewrites --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (rewrite(2), False),
        (TimelineEntry(kind="forked", generation=2), False),
        (TimelineEntry(kind="foreign", generation=2), True),
        (rewrite(1), True),
    ],
)
def test_a_generation_without_an_entry_is_inferred(entry: TimelineEntry, expected: bool) -> None:
    assert timeline.is_inferred([entry], 2) == expected
    assert not timeline.is_inferred([entry], 0)


def chain(*steps: tuple[str, dict[str, object]]) -> list[TimelineEntry]:
    """Rewrites one after another, the first of which made generation 1."""
    return [
        TimelineEntry(kind=kind, generation=generation, details=details)
        for generation, (kind, details) in enumerate(steps, 1)
    ]


COMPACTED = ("compacted", {"from": 0, "checkpoint_id": 5})


@pytest.mark.parametrize(
    ("entries", "present", "floor"),
    [
        ([], 0, 0),
        (chain(COMPACTED), 1, 0),
        (chain(COMPACTED, ("reverted", {"from": 1, "checkpoint_id": 5})), 2, 5),
        (chain(COMPACTED, ("reverted", {"from": 1, "checkpoint_id": 5})), 1, 0),
        (chain(COMPACTED, ("reverted", {"from": 0, "checkpoint_id": 3}), ("prompted", {})), 3, 3),
        (
            chain(("reverted", {"checkpoint_id": 4}), ("cleared", {}), ("restored", {"from": 1})),
            3,
            4,
        ),
        (
            chain(("reverted", {"checkpoint_id": 4}), ("cleared", {}), ("restored", {"from": 0})),
            3,
            0,
        ),
        (chain(("reverted", {"checkpoint_id": 4}), ("cleared", {}), ("prompted", {})), 3, 0),
        (chain(("reverted", {"checkpoint_id": 4}), ("delivered", {"checkpoint_id": 2})), 2, 0),
        (chain(("reverted", {"checkpoint_id": "x"})), 1, 0),
        (chain(("restored", {"from": 1})), 1, 0),
        (chain(("restored", {"from": 9})), 1, 0),
    ],
)
def test_the_next_id_is_the_one_that_the_last_revert_left_free(
    entries: list[TimelineEntry], present: int, floor: int
) -> None:
    assert checkpoint_ids.checkpoint_floor(entries, present) == floor


@pytest.mark.parametrize(
    ("entries", "searched"),
    [
        ([], [0]),
        (chain(COMPACTED), [1, 0]),
        (chain(COMPACTED, ("compacted", {"from": 1})), [2, 1, 0]),
        (chain(COMPACTED, ("delivered", {"from": 1, "checkpoint_id": 6})), [2, 0]),
        (chain(COMPACTED, ("delivered", {"from": 0, "checkpoint_id": 2})), [2]),
        (chain(COMPACTED, ("reverted", {"from": 1}), ("compacted", {"from": 2})), [3, 2, 0]),
        (chain(COMPACTED, ("prompted", {})), [2, 0]),
        (chain(COMPACTED, ("cleared", {}), ("restored", {"from": 1})), [3, 0]),
        (chain(COMPACTED, ("cleared", {})), [2]),
        (chain(("restored", {"from": 1})), [1]),
        (chain(("compacted", {"from": "x"})), [1]),
    ],
)
def test_checkpoints_are_looked_up_in_compacted_generations(
    entries: list[TimelineEntry], searched: list[int]
) -> None:
    assert timeline.lineage(entries, len(entries)) == searched


@pytest.mark.parametrize(
    ("checkpoint_id", "searched"),
    [(0, [2, 1, 0]), (4, [2, 1, 0]), (5, [2, 1]), (8, [2, 1]), (9, [2])],
)
def test_id_above_a_compactions_is_not_looked_up_in_its_old_generation(
    checkpoint_id: int, searched: list[int]
) -> None:
    entries = chain(COMPACTED, ("compacted", {"from": 1, "checkpoint_id": 9}))

    assert timeline.lineage(entries, 2, checkpoint_id) == searched


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*timeline_entries.REWRITES, "rotated", "forked"]),
            st.fixed_dictionaries({}, optional={
                "from": st.integers(-2, 8) | st.none(), "checkpoint_id": st.integers(-1, 9)
            }),
        ),
        max_size=8,
    )
)  # fmt: skip
def test_any_chain_comes_to_an_end(steps: list[tuple[str, dict[str, object]]]) -> None:
    entries = chain(*steps)
    for present in range(len(steps) + 2):
        searched = timeline.lineage(entries, present)
        assert searched == sorted(set(searched), reverse=True)
        assert searched[0] == present
        assert isinstance(checkpoint_ids.checkpoint_floor(entries, present), int)


@pytest.mark.parametrize("kind", ["compacted", "delivered"])
def test_only_a_rewrite_that_sets_a_checkpoint_is_answered_with_one(kind: str) -> None:
    entry = TimelineEntry(
        kind=kind, generation=3, key="k", details={"lines": 2, "checkpoint_id": 4}
    )
    reverted = TimelineEntry(kind="reverted", generation=3, key="k", details={"checkpoint_id": 4})

    assert timeline.applied_of(entry, "f").checkpoint_id == 4
    assert timeline.applied_of(reverted, "f").checkpoint_id is None


def test_the_ids_that_compactions_keep_are_those_of_the_present_generation() -> None:
    kept = [
        TimelineEntry(kind="compacting", generation=generation, details={"checkpoint_id": number})
        for generation, number in ((0, 4), (1, 7), (1, 2), (2, "x"))
    ]

    assert [timeline.unreserved_id(kept, present) for present in range(4)] == [5, 8, 1, 0]

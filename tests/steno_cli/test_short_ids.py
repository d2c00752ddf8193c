"""Short ids: each one finds its own session again, and no other."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_cli.session_ids import is_shortened, meant, short_ids

ONE = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
OTHER = "7c9e6679-0425-40de-944b-e07fc1f90ae7"
HASH = "9f86d081884c7d659a2feaa0c55ad015"


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([ONE], ["7c9e"]),
        # The form would end with a hyphen.
        ([ONE, OTHER], ["7c9e6679-7", "7c9e6679-0"]),
        (["demo", "team/planner-1"], ["demo", "team/planner-1"]),
        ([f"kimi:{HASH}/{ONE}"], ["kimi:9f86/7c9e"]),
        ([HASH, "9f86d0"], ["9f86d08", "9f86d0"]),
        ([ONE, f"{ONE}/subagents/{HASH}"], ["7c9e", "7c9e/subagents/9f86"]),
        (["7c9e6679", ONE], ["7c9e6679", "7c9e6679-7"]),
    ],
)
def test_generated_segments_are_shortened_and_chosen_ones_are_not(
    ids: list[str], expected: list[str]
) -> None:
    forms = short_ids(ids)
    assert [forms[each] for each in ids] == expected


def test_only_ids_of_programs_are_shortened() -> None:
    assert is_shortened(ONE)
    assert is_shortened(f"kimi:{HASH}/x")
    assert not is_shortened("kimi:work/planner-1")


SEGMENTS = st.one_of(
    st.integers(0, 2**128 - 1).map(lambda number: str(UUID(int=number))),
    # Siblings that share most of their characters.
    st.integers(0, 40).map(lambda number: str(UUID(int=number << 60))),
    st.sampled_from(["demo", "0000", "00000000", "00000000-0", HASH, HASH[:16]]),
)
IDS = st.lists(
    st.builds(
        lambda mount, segments: mount + "/".join(segments),
        st.sampled_from(["", "kimi:", "k:"]),
        st.lists(SEGMENTS, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(ids=IDS)
def test_short_id_means_its_session_alone(ids: list[str]) -> None:
    for session, form in short_ids(ids).items():
        assert len(form) <= len(session)
        assert meant(form, sorted(ids)) == [session]

"""Names of other programs become parts of session ids, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.adapters._names import digest_of, name_of, segment_of, segment_or_digest
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(NAMES | st.sampled_from(["quarantine", "uploads", "context.jsonl", "..", "_x", "a b"]))
def test_a_name_comes_back_from_its_segment(name: str) -> None:
    segment = segment_of(name)
    assert name_of(segment) == name
    paths.split_session(f"claude/{segment}")


@given(NAMES, NAMES)
def test_two_names_never_have_one_segment(first: str, second: str) -> None:
    assert (segment_of(first) == segment_of(second)) == (first == second)


@pytest.mark.parametrize("name", ["", "\ud800", "x" * (limits.SESSION_SEGMENT_CHARS_MAX + 1)])
def test_a_name_that_no_id_can_hold_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="is no name"):
        segment_of(name)


@given(NAMES | st.sampled_from(["", "\ud800", "x" * 300]))
def test_any_text_has_a_segment(name: str) -> None:
    paths.split_session(f"claude/{segment_or_digest(name)}")


@given(st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3))
def test_a_digest_depends_on_all_parts(first: list[str], second: list[str]) -> None:
    assert (digest_of(*first) == digest_of(*second)) == ("\0".join(first) == "\0".join(second))
    paths.check_key(digest_of(*first))

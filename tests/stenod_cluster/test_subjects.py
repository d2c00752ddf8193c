"""Subjects of sessions and names: each has one, and none is another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stenod_cluster import subjects
from stenod_cluster.journal import subject_of_name

SEGMENTS = st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text)
NAMES = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


@given(NAMES)
def test_a_name_comes_back_from_its_subject(name: str) -> None:
    subject = subjects.subject_of("team", subject_of_name(name))

    assert subjects.path_of(subject) == name
    assert subject.isascii()
    assert not set(subject) & set(" *>\t\r\n\0")
    assert all(subject.split("."))
    assert subject.startswith(subjects.names_subjects("team", None).removesuffix(">"))


@given(NAMES, NAMES)
def test_two_names_have_two_subjects(one: str, other: str) -> None:
    found = {subjects.subject_of("team", subject_of_name(each)) for each in (one, other)}
    assert (len(found) == 1) is (one == other)


def test_a_session_is_no_name() -> None:
    session = subjects.subject_of("team", "0a1b")
    assert session == "steno.team.s.0a1b"
    assert session != subjects.subject_of("team", subject_of_name("0a1b"))


def test_a_name_that_is_too_long_for_a_subject_is_refused() -> None:
    with pytest.raises(OSError, match="use a shorter one"):
        subjects.subject_of("team", subject_of_name("x" * 2000))


def test_a_session_with_the_longest_name_can_be_deleted() -> None:
    name = "x" * 1980
    subjects.subject_of("team", subject_of_name(name))
    subjects.subject_of("team", subject_of_name(f".trash/1764000000.{'k' * 64}.{name}"))


def test_a_topic_comes_back_from_its_subject() -> None:
    assert subjects.topic_of(subjects.topic_subject("team", "alive.*")) == "alive.*"
    assert subjects.topic_subject("team", "*") == "steno.team.tell.*"

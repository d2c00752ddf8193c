"""Subjects of folders: each folder has one, and none is another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stenod_cluster import subjects

SEGMENTS = st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text)
FOLDERS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


@given(FOLDERS, st.integers(1, 8))
def test_a_folder_comes_back_from_its_subject(folder: str, streams: int) -> None:
    subject = subjects.subject_of("team", streams, folder)

    assert subjects.folder_of(subject) == folder
    assert subject.isascii()
    assert not set(subject) & set(" *>\t\r\n\0")
    assert all(subject.split("."))


@given(FOLDERS, FOLDERS)
def test_two_folders_have_two_subjects(one: str, other: str) -> None:
    same = subjects.subject_of("team", 3, one) == subjects.subject_of("team", 3, other)
    assert same is (one == other)


@given(FOLDERS, st.integers(1, 8))
def test_a_subject_lies_in_the_stream_of_its_folder(folder: str, streams: int) -> None:
    shard = subjects.shard_of(folder, streams)
    wildcard = subjects.stream_subjects("team", shard)

    assert 0 <= shard < streams
    assert subjects.subject_of("team", streams, folder).startswith(wildcard.removesuffix(">"))
    assert subjects.shard_of(f"{folder.partition('/')[0]}/sub", streams) == shard


def test_the_shard_of_a_folder_never_changes() -> None:
    # The messages of a folder would not be found again.
    assert [subjects.shard_of(name, 5) for name in ("demo", "a/b", "ä", "talk")] == [3, 2, 0, 0]


def test_a_path_that_is_too_long_for_a_subject_is_refused() -> None:
    with pytest.raises(OSError, match="use a shorter one"):
        subjects.subject_of("team", 1, "x" * 2000)


def test_a_topic_comes_back_from_its_subject() -> None:
    assert subjects.topic_of(subjects.topic_subject("team", "alive.*")) == "alive.*"
    assert subjects.topic_subject("team", "*") == "steno.team.tell.*"

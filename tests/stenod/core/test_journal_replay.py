"""Replay of a folder's messages."""

import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.errors import Corrupt
from steno_protocol.journal_entries import AnyEntry, Append, Create, Name, encode_entries
from stenod.core.journal_replay import JournalReplay
from stenod.core.manifest import Content, Manifest

CREATE = Create(1, "a")
FIRST = Append(1, 0, 0, b"abc")
SECOND = Append(1, 3, zlib.crc32(b"abc"), b"def")


Message = tuple[str, Sequence[AnyEntry] | bytes]


def fed(*messages: Message) -> tuple[Manifest, list[AnyEntry | None]]:
    replay = JournalReplay(Manifest())
    entries: list[AnyEntry | None] = []
    for kind, content in messages:
        body = content if isinstance(content, bytes) else encode_entries(content)
        entries += replay.feed(kind, body)
    return replay.manifest, entries


@pytest.mark.parametrize("kind", ["own", "gone", "a kind of a later version"])
def test_parts_are_void_behind_another_kind(kind: str) -> None:
    again = [Create(2, "a"), Name("b", 2)]
    manifest, entries = fed(("part", [CREATE, FIRST]), (kind, b""), ("change", again))
    assert [each for each in entries if each is not None] == again
    assert manifest.files == {2: Content()}


def test_a_snapshot_replaces_everything_once_it_is_whole() -> None:
    before = ("change", [CREATE, FIRST])
    began = ("snapshot", [Create(2, "b")])
    assert fed(before, began)[0] == fed(before)[0]
    manifest, entries = fed(before, began, ("part", [Name("c", 2)]), ("change", []))
    assert manifest == Manifest(3, {2: Content()}, {"b": 2, "c": 2})
    assert entries[2:] == [None, Create(2, "b"), Name("c", 2)]


def test_a_snapshot_that_another_message_interrupts_is_void() -> None:
    before = ("change", [CREATE, FIRST])
    manifest, _ = fed(before, ("snapshot", [Create(2, "b")]), ("own", b""), ("change", [SECOND]))
    assert manifest == fed(before, ("change", [SECOND]))[0]


def test_a_message_of_another_program_is_refused() -> None:
    with pytest.raises(Corrupt, match="no change of a session"):
        fed(("change", b"hello"))


@given(st.lists(st.integers(1, 4), max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_a_change_in_any_parts_is_the_change(sizes: list[int], is_interrupted: list[bool]) -> None:
    entries: list[AnyEntry] = [CREATE]
    data = b""
    for size in sizes:
        entries.append(Append(1, len(data), zlib.crc32(data), b"x" * size))
        data += b"x" * size
    # A publisher that died among its parts is followed by an owner, which begins again.
    attempt: list[Message] = [("part", [entry]) for entry in entries[:-1]]
    messages: list[Message] = []
    for number, is_cut in enumerate(is_interrupted):
        if is_cut:
            messages += [*attempt[:number], ("own", b"")]
    messages += [*attempt, ("change", [entries[-1]])]
    assert fed(*messages) == fed(("change", entries))

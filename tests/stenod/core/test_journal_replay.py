"""Replay of a folder's messages."""

import zlib
from collections.abc import Sequence

import pytest

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

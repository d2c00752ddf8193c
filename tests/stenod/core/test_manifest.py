"""The manifest of a session's folder."""

import zlib
from collections.abc import Callable

import pytest

from steno_protocol.errors import Corrupt
from steno_protocol.journal_entries import AnyEntry, Append, Copy, Create, Cut, Name
from stenod.core.manifest import Content, Manifest


def made(*entries: AnyEntry) -> Manifest:
    manifest = Manifest()
    for entry in entries:
        manifest.apply(entry)
    return manifest


def crc(data: bytes) -> int:
    return zlib.crc32(data)


ONE = (Create(1, "a"), Append(1, 0, 0, b"abc"))


CONTRADICTIONS: dict[str, Callable[[], AnyEntry]] = {
    "a number that was used": lambda: Create(1, "b"),
    "an append to no file": lambda: Append(2, 0, 0, b"x"),
    "an append behind more bytes": lambda: Append(1, 4, crc(b"abc"), b"x"),
    "an append behind fewer bytes": lambda: Append(1, 2, crc(b"ab"), b"x"),
    "an append behind other bytes": lambda: Append(1, 3, crc(b"abd"), b"x"),
    "a copy behind other bytes": lambda: Copy(1, 3, crc(b"abd"), 1, 0, 1, 0),
    "a copy of no file": lambda: Copy(1, 3, crc(b"abc"), 2, 0, 1, 0),
    "a copy of more than there is": lambda: Copy(1, 3, crc(b"abc"), 1, 2, 2, 0),
    "a cut of no file": lambda: Cut(2, 0, 0),
    "a cut that makes a file longer": lambda: Cut(1, 4, 0),
    "a name of no file": lambda: Name("b", 2),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_an_entry_that_fits_nowhere_is_refused_and_changes_nothing(case: str) -> None:
    manifest = made(*ONE)
    with pytest.raises(Corrupt, match="contradicts itself"):
        manifest.apply(CONTRADICTIONS[case]())
    assert manifest == made(*ONE)


def test_each_entry_changes_contents_and_names() -> None:
    copied = Copy(2, 0, 0, 1, 1, 2, crc(b"bc"))
    manifest = made(*ONE, Create(2, "b"), copied, Name("b", 2), Name("a", 2))
    # File 1 is gone with its only name.
    assert manifest == Manifest(3, {2: Content(2, crc(b"bc"))}, {"a": 2, "b": 2})
    manifest.apply(Cut(2, 1, crc(b"b")))
    manifest.apply(Append(2, 1, crc(b"b"), b"!"))
    manifest.apply(Name("b", None))
    assert manifest == Manifest(3, {2: Content(2, crc(b"b!"))}, {"a": 2})


def test_a_copy_changes_by_itself() -> None:
    manifest = made(*ONE)
    other = manifest.copy()
    other.apply(Create(2, "b"))
    other.apply(Cut(1, 0, 0))
    assert manifest == made(*ONE)

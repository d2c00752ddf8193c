"""The manifest of a session's folder."""

import zlib
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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


def test_a_copy_changes_by_itself() -> None:
    manifest = made(*ONE)
    other = manifest.copy()
    other.apply(Create(2, "b"))
    other.apply(Cut(1, 0, 0))
    assert manifest == made(*ONE)


class AgainstFiles(RuleBasedStateMachine):
    """A manifest beside the bytes themselves."""

    NAMES = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.manifest = Manifest()
        self.files: dict[int, bytes] = {}
        self.names: dict[str, int] = {}

    @rule(name=NAMES)
    def create(self, name: str) -> None:
        number = self.manifest.next_file
        self.manifest.apply(Create(number, name))
        self.files[number] = b""
        self._name(name, number)

    @precondition(lambda self: self.files)
    @rule(data=st.data(), more=st.binary(max_size=8))
    def append(self, data: st.DataObject, more: bytes) -> None:
        number = data.draw(st.sampled_from(sorted(self.files)))
        before = self.files[number]
        self.manifest.apply(Append(number, len(before), crc(before), more))
        self.files[number] += more

    @precondition(lambda self: self.files)
    @rule(data=st.data(), offset=st.integers(0, 8), size=st.integers(0, 8))
    def copy(self, data: st.DataObject, offset: int, size: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.files)))
        source = data.draw(st.sampled_from(sorted(self.files)))
        piece = self.files[source][offset : offset + size]
        before = self.files[number]
        start = min(offset, len(self.files[source]))
        entry = Copy(
            number, len(before), crc(before), source, start, len(piece), crc(before + piece)
        )
        self.manifest.apply(entry)
        self.files[number] += piece

    @precondition(lambda self: self.files)
    @rule(data=st.data(), size=st.integers(0, 8))
    def cut(self, data: st.DataObject, size: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.files)))
        kept = self.files[number][:size]
        self.manifest.apply(Cut(number, len(kept), crc(kept)))
        self.files[number] = kept

    @precondition(lambda self: self.files)
    @rule(data=st.data(), name=NAMES)
    def name(self, data: st.DataObject, name: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.files)))
        self.manifest.apply(Name(name, number))
        self._name(name, number)

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        self.manifest.apply(Name(name, None))
        self._name(name, None)

    @invariant()
    def it_knows_each_file_with_a_name(self) -> None:
        assert self.manifest.names == self.names
        assert self.manifest.files == {
            number: Content(len(data), crc(data)) for number, data in self.files.items()
        }

    def _name(self, name: str, number: int | None) -> None:
        self.names.pop(name, None)
        if number is not None:
            self.names[name] = number
        self.files = {each: self.files[each] for each in self.files if each in self._named()}

    def _named(self) -> set[int]:
        return set(self.names.values())


TestAgainstFiles = AgainstFiles.TestCase
TestAgainstFiles.settings = settings(max_examples=30, stateful_step_count=20)

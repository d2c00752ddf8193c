"""The manifest of a session's folder: its files by number and name, as the journal has them."""

import zlib
from typing import assert_never

import msgspec

from steno_protocol.errors import Corrupt
from steno_protocol.journal_entries import AnyEntry, Append, Copy, Create, Cut, Name


class Content(msgspec.Struct, frozen=True):
    """The bytes of a file.

    Attributes:
        size: their number.
        crc: their CRC-32.
    """

    size: int = 0
    crc: int = 0


class Manifest(msgspec.Struct):
    """The files of one folder.

    Attributes:
        next_file: the number of the next new file.
        files: the content of each file that has a name, by its number.
        names: the number of the file that each name leads to.
    """

    next_file: int = 1
    files: dict[int, Content] = {}
    names: dict[str, int] = {}

    def copy(self) -> "Manifest":
        """Return a copy that changes by itself."""
        return Manifest(self.next_file, dict(self.files), dict(self.names))

    def apply(self, entry: AnyEntry) -> None:
        """Apply an entry.

        Raises:
            Corrupt: the entry does not continue what is here; nothing was applied.
        """
        match entry:
            case Create():
                # Behind a snapshot the number of a file that is gone may come again.
                if entry.file in self.files:
                    raise _contradiction(f"file {entry.file} is made twice")
                self.next_file = max(self.next_file, entry.file + 1)
                self.files[entry.file] = Content()
                self._give(entry.name, entry.file)
            case Append():
                before = self._continued(entry)
                size, crc = before.size + len(entry.data), zlib.crc32(entry.data, before.crc)
                self.files[entry.file] = Content(size, crc)
            case Copy():
                before = self._continued(entry)
                source = self._file(entry.source)
                if entry.source_offset + entry.size > source.size:
                    raise _contradiction(f"file {entry.source} is too short for a copy")
                self.files[entry.file] = Content(before.size + entry.size, entry.crc_after)
            case Cut():
                if entry.size > self._file(entry.file).size:
                    raise _contradiction(f"file {entry.file} is shorter than a cut")
                self.files[entry.file] = Content(entry.size, entry.crc)
            case Name():
                if entry.file is None:
                    self._take(entry.name)
                else:
                    self._file(entry.file)
                    self._give(entry.name, entry.file)
            case _:
                assert_never(entry)

    def _continued(self, entry: Append | Copy) -> Content:
        before = self._file(entry.file)
        if before != Content(entry.offset, entry.crc):
            raise _contradiction(
                f"file {entry.file} has {before.size} bytes, and an entry continues another file"
                f" of {entry.offset} bytes"
            )
        return before

    def _file(self, number: int) -> Content:
        found = self.files.get(number)
        if found is None:
            raise _contradiction(f"there is no file {number}")
        return found

    def _give(self, name: str, file: int) -> None:
        if self.names.get(name) != file:
            self._take(name)
            self.names[name] = file

    def _take(self, name: str) -> None:
        """Remove a name; a file without any name is not needed any more."""
        file = self.names.pop(name, None)
        if file is not None and file not in self.names.values():
            del self.files[file]


def _contradiction(what: str) -> Corrupt:
    return Corrupt(
        f"the journal contradicts itself: {what}: restore the session from a backup"
        " (`steno import`), and report the fault with the daemon's log"
    )

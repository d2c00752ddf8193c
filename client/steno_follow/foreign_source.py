"""A transcript of another agent: where it is, what it is, and how it is called."""

import os
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import BinaryIO

from steno_agents.transcript import ForeignTranscript
from steno_follow import compressed
from steno_follow.limits import TITLE_FILE_BYTES_MAX
from steno_follow.naming import identity_of
from steno_follow.session_indexes import indexes_above, names_in
from steno_follow.source_tree import SourceTree
from steno_protocol import limits
from steno_protocol.errors import StenoError


@dataclass(frozen=True)  # without slots, because of what is read once
class ForeignSource:
    """A transcript of another agent.

    Attributes:
        session: the id that it gets.
        tree: the folder of the import.
        inside: the place of the file in it; the file is only read.
        format: its format.
    """

    session: str
    tree: SourceTree
    inside: PurePath
    format: type[ForeignTranscript]

    @cached_property
    def file(self) -> Path:
        """The path of the file; that of its database with its id, if it comes from one."""
        return self.tree.name_of(self.inside)

    @cached_property
    def identity(self) -> str:
        """What the file is, wherever it lies; an `OSError` if it cannot be read."""
        return identity_of(self.tree, self.inside, self.format)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.tree.path(self.inside).parent

    @property
    def origin(self) -> Path:
        """The path to name in messages."""
        return self.file

    def shape(self) -> tuple[int, int]:
        """A value that changes when the file is replaced, and not with an append."""
        stat = self.tree.stat(self.inside)
        return stat.st_ino, stat.st_dev

    def seekable(self) -> BinaryIO:
        """Open the file; a compressed one is decompressed into a file without a name.

        Raises:
            OSError: it cannot be read.
        """
        return compressed.seekable(self.tree.open(self.inside), self.tree.path(self.inside))

    def title_of(self, transcript: ForeignTranscript) -> str:
        """The title that the program shows, or the first words that a person typed."""
        title = (
            self._indexed_title(transcript)
            or transcript.own_title
            or self._title_beside()
            or transcript.title(transcript.histories())
        )
        return (title or "")[: limits.TITLE_CHARS_MAX]

    def _title_beside(self) -> str | None:
        """The title in a file of the program that describes the session."""
        if self.format.title_file is None:
            return None
        path = Path(os.path.normpath(self.folder / self.format.title_file))
        with suppress(OSError, StenoError):
            with (
                closing(SourceTree(path.parent)) as above,
                above.open(PurePath(path.name)) as file,
            ):
                content = file.read(TITLE_FILE_BYTES_MAX)
            return self.format.title_in(content.decode(errors="replace"))
        return None

    def _indexed_title(self, transcript: ForeignTranscript) -> str | None:
        """The name in the program's index, the last one of the session."""
        index = self.format.index
        if index is None or transcript.session is None:
            return None
        for path in indexes_above(self.folder, index):
            with suppress(OSError, StenoError):
                return names_in(path, index).get(transcript.session)
        return None

"""The writer of the sessions of one program.

Adding a program takes one module with a writer, its row in `programs.WRITERS`, and its test.
"""

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from steno_agents.writers.turns import Picture, Piece, Turn

Record = dict[str, Any]


class Home(NamedTuple):
    """The folder in which a program keeps its sessions.

    Attributes:
        variable: the environment variable that names it.
        default: its path below the home folder of the user, if the variable is not set.
    """

    variable: str
    default: str


class Target(NamedTuple):
    """The session to write.

    Attributes:
        session: a new id; the ids of its records are made from it.
        work_dir: the directory in which the program goes on: an absolute path without links.
        title: its title, if it has one.
        now_ms: Unix time in milliseconds.
    """

    session: uuid.UUID
    work_dir: str
    title: str | None
    now_ms: int

    def identity(self, number: int) -> uuid.UUID:
        """The id of a record of the session."""
        return uuid.uuid5(self.session, str(number))


class Writer(ABC):
    """Writes sessions so that one program resumes them.

    Attributes:
        program: the name of the program.
        home: where it keeps its sessions.
        takes_links: it takes images that have only an address.
        is_folder: a session is a folder; otherwise it is one file.
    """

    program: ClassVar[str]
    home: ClassVar[Home]
    takes_links: ClassVar[bool] = False
    is_folder: ClassVar[bool] = False

    @abstractmethod
    def place(self, target: Target) -> str:
        """The path of the session's file or folder, below the folder of the program."""

    @abstractmethod
    def files(self, turns: Sequence[Turn], target: Target) -> Mapping[str, bytes]:
        """The content of the session.

        Returns:
            Each file by its path in the folder of the session, in the order to write them; the one
            file of a session that is no folder has the path "".
        """

    @abstractmethod
    def command(self, target: Target, path: str) -> Sequence[Sequence[str]]:
        """The commands that resume the session, one after the other.

        Args:
            target: the session.
            path: the absolute path at which it was put.
        """


class LinesWriter(Writer):
    """Writes sessions that are one file of lines, which the program finds by the id.

    Attributes:
        resume: the command that resumes a session, without the id.
    """

    resume: ClassVar[Sequence[str]]

    @abstractmethod
    def records(self, turns: Sequence[Turn], target: Target) -> Iterable[Record]:
        """The records of the session, one a line."""

    def files(self, turns: Sequence[Turn], target: Target) -> Mapping[str, bytes]:
        """The one file."""
        return {"": lines(self.records(turns, target))}

    def command(
        self,
        target: Target,
        path: str,  # noqa: ARG002  # the session is found by its id
    ) -> Sequence[Sequence[str]]:
        """The one command, with the id."""
        return [[*self.resume, str(target.session)]]


def lines(records: Iterable[Record]) -> bytes:
    """Return records as lines of JSON."""
    return b"".join(as_json(each) + b"\n" for each in records)


def as_json(value: Record) -> bytes:
    """Return an object as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def dashed(work_dir: str) -> str:
    """Return a directory as the name of a folder: what is no letter or digit is a dash.

    >>> dashed("/srv/my shop")
    '-srv-my-shop'
    """
    # JavaScript counts a character outside of the basic plane as two.
    return "".join(
        each if each.isascii() and each.isalnum() else "-" * (1 + (ord(each) > 0xFFFF))
        for each in work_dir
    )


def text_of_pieces(pieces: Iterable[Piece]) -> str:
    """Return the texts of a result, one a line."""
    return "\n".join(each for each in pieces if isinstance(each, str))


def pictures_of(pieces: Iterable[Piece]) -> list[Picture]:
    """Return the images of a prompt or a result."""
    return [each for each in pieces if isinstance(each, Picture)]


def content_of(pieces: Sequence[Piece], part: Callable[[Piece], Record]) -> str | list[Record]:
    """Return pieces as a content: one text as it is, and otherwise a part for each."""
    match pieces:
        case []:
            return ""
        case [str() as text]:
            return text
        case _:
            return [part(each) for each in pieces]

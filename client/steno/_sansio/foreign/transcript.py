"""The converter of one foreign transcript, whatever its format."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from steno_protocol._json import is_object

TITLE_CHARS: Final = 80
"""Characters of a first prompt that become the title."""

Message = dict[str, Any]
"""A message of a context, or a control record."""


class ForeignTranscript(ABC):
    """Converts the records of one transcript, which is read twice.

    The first reading, `scan`, learns which records belong to the conversation; the second one,
    `messages`, converts them. Records that are no message are left out of the context: the import
    keeps all lines byte for byte in a stream of the session.

    Attributes:
        program: the name of the program that wrote the file.
        stream: the name of the stream that keeps its lines.
        session: the session's id in that program, if a record names it.
        title: the title, from the program or from the first prompt.
        work_dir: the directory in which the program ran.
    """

    program: ClassVar[str]
    stream: ClassVar[str]

    def __init__(self) -> None:
        self.session: str | None = None
        self.title: str | None = None
        self.work_dir: str | None = None

    @classmethod
    @abstractmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether only this program writes such a record."""

    @abstractmethod
    def scan(self, record: dict[str, Any]) -> None:
        """Read a record for the first time; records come in the order of the file."""

    @abstractmethod
    def messages(self, record: dict[str, Any]) -> Iterator[Message]:
        """Convert a record; its messages may come with a later one."""

    def finish(self) -> Iterator[Message]:
        """Yield the messages that waited for a later record."""
        return iter(())

    def _propose_title(self, prompt: str) -> None:
        """Use the first line of the first prompt as the title, unless there is one."""
        lines = prompt.strip().splitlines()
        if self.title is None and lines:
            line = lines[0].strip()
            is_long = len(line) > TITLE_CHARS
            self.title = f"{line[: TITLE_CHARS - 1].rstrip()}…" if is_long else line


def tool_call(identity: object, name: object, arguments: object) -> dict[str, Any]:
    """Return a call of a tool as an assistant message contains it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "type": "function",
        "id": str(identity),
        "function": {"name": str(name), "arguments": text},
    }


def text_field(record: dict[str, Any], name: str) -> str | None:
    """Return a field that is a text with at least one character, else None."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def object_field(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a field that is an object, else an empty one."""
    value = record.get(name)
    return value if is_object(value) else {}


def simple(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return a content of one text part as its text, any other content as it is."""
    if len(parts) == 1 and parts[0].get("type") == "text":
        return str(parts[0]["text"])
    return parts

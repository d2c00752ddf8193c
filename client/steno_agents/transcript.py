"""The reader of one foreign transcript, whatever its format.

Adding a program takes one module with a reader, its place in `detection.FORMATS`, and its test.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol

from steno_agents.limits import (
    FOLLOWED_READER_BYTES,
    PAST_FACTOR_MAX,
    PAST_RECORDS,
    READER_RECORD_BYTES,
    WORDS_KEPT_MAX,
)
from steno_agents.prompts import Words, words_of
from steno_agents.traces import Circumstances, Spent, time_of
from steno_protocol._json import is_array, is_object

Message = dict[str, Any]
"""A message of a context, or a control record."""

End = Literal["live", "branch", "compaction", "roll-back"]
"""What ended a history: nothing yet, another branch, a summary, or a withdrawal."""

CONVERSATION_ROLES: Final = frozenset({"user", "assistant", "tool", "system", "developer"})
"""The roles of messages; the other records of a context are control records."""


class Other(Protocol):
    """The transcript of another session of the same program."""

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Its records with their places, in the order of the file."""
        ...

    def record(self, place: int) -> dict[str, Any] | None:
        """The record at a place."""
        ...


Lookup = Callable[[str], Other | None]
"""Finds the transcript of another session by its id; None if it is not there."""


class History(NamedTuple):
    """The records that the program would send, or sent before something replaced them.

    Attributes:
        places: the places of the records, in the order of the conversation.
        end: what ended it.
    """

    places: Sequence[int]
    end: End


class Index(NamedTuple):
    """A file of a program with a line for each name of a session, the last one valid.

    Attributes:
        file: its name.
        session: the field with the session's id.
        title: the field with its name.
    """

    file: str
    session: str
    title: str


class Converter(ABC):
    """Converts the records of one history to messages."""

    @abstractmethod
    def messages(self, place: int, record: dict[str, Any]) -> Iterator[Message]:
        """Convert the next record; its messages may come with a later one."""

    def finish(self) -> Iterator[Message]:
        """Yield the messages that waited for a later record."""
        return iter(())


class ForeignTranscript(ABC):
    """Reads the records of one transcript.

    `scan` gets every record once and learns where the conversation goes; it may go on when the
    file has grown. `histories` then names the records of each history, and a `converter` turns them
    into messages. Records that are no message are left out of the context: the import keeps all
    lines byte for byte in a stream of the session.

    A place is a number of the caller's, such as the offset of a record; places rise. A negative one
    is that of a record in another transcript, which `inherited` returns.

    Attributes:
        program: the name of the program that wrote the file.
        stream: the name of the stream that keeps its lines.
        companions: folders of further files, in a folder that is named as the file is; a stream of
            the same name keeps them.
        beside: a field of each type of record that stands beside the messages.
        index: a file in a folder above with names of sessions; None if there is none.
        record_bytes: memory that the reader takes for each record, about.
        is_named_by_file: the program finds a session by the name of its file, whatever its records
            say.
        has_states: its file is made of rows that change, and its stream is a log of them.
        title_file: the path, from the folder of the transcript, of a file with its title.
        resume: the command that goes on with a session, whose id follows; empty without one.
        spending_marks: bytes in the lines with tokens or a model; a line without any has neither.
        session: the session's id in that program, if a record names it.
        work_dir: the directory in which the program ran.
        odd: the number of messages in a form that the reader does not know.
        unread: the number of past histories that are too many to be written.
        lookup: finds a transcript that this one continues; set it before the first record.
        elsewhere: the session with the beginning of the conversation, if `lookup` did not find it.
    """

    program: ClassVar[str]
    stream: ClassVar[str]
    companions: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[Mapping[str, str]] = {}
    index: ClassVar["Index | None"] = None
    title_file: ClassVar[str | None] = None
    resume: ClassVar[tuple[str, ...]] = ()
    spending_marks: ClassVar[tuple[bytes, ...]] = ()
    record_bytes: ClassVar[int] = READER_RECORD_BYTES
    is_named_by_file: ClassVar[bool] = False
    has_states: ClassVar[bool] = False

    def __init__(self) -> None:
        self.session: str | None = None
        self.work_dir: str | None = None
        self.odd: int = 0
        self.unread: int = 0
        self.lookup: Lookup = lambda _: None
        self.elsewhere: str | None = None
        self._title: str | None = None
        self._words: dict[int, Words] = {}
        self._records: int = 0
        self._past_records = 0
        self._past: list[History] = []

    @classmethod
    def followed_records(cls) -> int:
        """Return the number of records up to which the conversation is followed."""
        return FOLLOWED_READER_BYTES // cls.record_bytes

    @classmethod
    @abstractmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether it is a message, or the head, of a transcript that only this program writes."""

    @classmethod
    def hints(cls, record: dict[str, Any]) -> bool:
        """Whether this program writes such a record beside the messages."""
        needed = cls.beside.get(text_field(record, "type") or "")
        return needed is not None and needed in record

    @classmethod
    def is_record(cls, record: dict[str, Any]) -> bool:
        """Whether an object is a whole record of this program, and no part of one."""
        return cls.recognises(record) or cls.hints(record)

    @classmethod
    def path_segments(cls, parts: Sequence[str]) -> Sequence[str]:  # noqa: ARG003  # for overrides
        """Return what names the session in the path of its file; empty if its records name it.

        Args:
            parts: the parts of the absolute path.
        """
        return ()

    @classmethod
    def title_in(cls, content: str) -> str | None:  # noqa: ARG003  # for overrides
        """Return the title in the content of `title_file`; None if it has none."""
        return None

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """Return where and with what the program ran, as far as a record says it."""
        return Circumstances(
            text_field(record, "cwd"), text_field(record, "gitBranch"), text_field(record, "model")
        )

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:  # noqa: ARG003  # for overrides
        """Return the tokens of a request; None if a record counts none."""
        return None

    @classmethod
    def written_at(cls, record: dict[str, Any]) -> float | None:
        """Return the Unix time of a record; None if it has none."""
        return time_of(record.get("timestamp"))

    @classmethod
    def resuming(cls, session: str) -> Sequence[str]:
        """Return the command that goes on with a session of the program; empty without one."""
        return (*cls.resume, session) if cls.resume else ()

    @abstractmethod
    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Read a record; records come in the order of the file."""

    @abstractmethod
    def histories(self) -> list[History]:
        """Return the past histories in the order of their ends, and the live one as the last."""

    def live(self) -> Sequence[int]:
        """Return the places of the records that the program would send now."""
        histories = self.histories()
        return list(histories[-1].places) if histories and histories[-1].end == "live" else []

    @abstractmethod
    def converter(self) -> Converter:
        """Return a converter for one history."""

    def inherited(self, place: int) -> dict[str, Any] | None:  # noqa: ARG002  # for overrides
        """Return the record of another transcript that has a negative place here."""
        return None

    @property
    def own_title(self) -> str | None:
        """The title that the program or its user gave."""
        return self._title

    def title(self, histories: Iterable[History]) -> str | None:
        """The title: the program's own, else the first words that a person typed.

        Args:
            histories: the past histories and the live one; withdrawn words are no title.
        """
        if self.own_title is not None:
            return self.own_title
        said = (each.places for each in histories if each.end in {"live", "compaction"})
        places = {place for each in said for place in each if place in self._words}
        found = [self._words[place] for place in sorted(places)]
        typed = next((each for each in found if each.is_typed), None)
        chosen = typed or next(iter(found), None)
        return None if chosen is None else chosen.text

    def _note_words(self, place: int, prompt: str) -> None:
        """Keep the beginning of a prompt, which may become the title."""
        words = words_of(prompt) if len(self._words) < WORDS_KEPT_MAX else None
        if words is not None:
            self._words[place] = words

    def _keep_past(self, count: int, places: Callable[[], Sequence[int]], end: End) -> None:
        """Keep a history that was replaced, as long as there is room; it is made only then."""
        if count and self.unread:
            self.unread += 1
        elif count and self._has_room(count):
            self._past.append(History(places(), end))

    def _has_room(self, records: int) -> bool:
        """Whether one more past history may be written; counts it if not."""
        if self._past_records + records > max(PAST_RECORDS, PAST_FACTOR_MAX * self._records):
            self.unread += 1
            return False
        self._past_records += records
        return True


def tool_call(identity: object, name: object, arguments: object) -> dict[str, Any]:
    """Return a call of a tool as an assistant message contains it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "type": "function",
        "id": str(identity),
        "function": {"name": str(name), "arguments": text},
    }


def tool_result(identity: object, content: object, *, failed: bool) -> Message:
    """Return the result of a tool as a message; `is_error` marks a failed one."""
    message: Message = {"role": "tool", "content": content, "tool_call_id": str(identity)}
    return {**message, "is_error": True} if failed else message


def dated(message: Message, record: dict[str, Any]) -> Message:
    """Return a message with the time of its record, if that has one."""
    timestamp = text_field(record, "timestamp")
    return message if timestamp is None else {**message, "timestamp": timestamp}


def iso(at_ms: int) -> str:
    """Return a time as ISO 8601 with milliseconds, as all of these programs write it.

    >>> iso(1_767_323_045_006)
    '2026-01-02T03:04:05.006Z'
    """
    when = datetime.fromtimestamp(at_ms / 1000, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_field(record: dict[str, Any], name: str) -> str | None:
    """Return a field that is a text with at least one character, else None."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def object_field(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a field that is an object, else an empty one."""
    value = record.get(name)
    return value if is_object(value) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of an array, none of any other value."""
    return [each for each in value if is_object(each)] if is_array(value) else []


def simple(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return a content of one text part as its text, any other content as it is."""
    if len(parts) == 1 and parts[0].get("type") == "text":
        return str(parts[0]["text"])
    return parts


def text_of(content: object) -> str:
    """Return the texts of a message's content, one a line."""
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in objects(content) if part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def image(url: str) -> dict[str, Any]:
    """Return a part of a content with an image."""
    return {"type": "image_url", "image_url": {"url": url}}

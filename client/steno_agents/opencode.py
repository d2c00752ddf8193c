"""The sessions of opencode: rows of a database, as lines in the order of the conversation.

opencode keeps all sessions in one SQLite database. The import makes a line of each row:

    {"table": "session", "id", "parents", "directory", "title", "revert", "updated"}
    {"table": "message", "id", "session_id", "data": {"role", ...}}
    {"table": "part", "id", "message_id", "data": {"type", ...}}

The session comes first, and each message is followed by its parts. A row that changed later comes
again, and its last state counts (`row_log`). A part of type `tool` is a call
with its result. A compaction is a message of the user with a part `compaction`, and the answer to
it, which has `summary`; `tail_start_id` names the first message that it keeps. `revert` names the
message from which on everything is withdrawn.
Source: databases that opencode 1.18.33 wrote, the requests that it made, and its functions
`filterCompacted` and `toModelMessages` (https://github.com/sst/opencode).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from steno_agents.traces import Circumstances, Spent, Tokens, count_of, time_of
from steno_agents.transcript import (
    Converter,
    End,
    ForeignTranscript,
    History,
    Message,
    image,
    iso,
    object_field,
    objects,
    simple,
    text_field,
    tool_call,
    tool_result,
)
from steno_protocol._json import is_array, is_object, whole_number

_SUMMARISED: Final = "What did we do so far?"
_DELEGATED: Final = "The following tool was executed by the user"
_CLEARED: Final = "[Old tool result content cleared]"
_INTERRUPTED: Final = "[Tool execution was interrupted]"
"""What opencode says to the model in place of what no part has."""

_ABORTED: Final = "MessageAbortedError"
_UNNAMED: Final = ("New session - ", "Child session - ")
"""Titles that opencode gives before a model gives one."""

_IN_TEXTS: Final = frozenset({"text/plain", "application/x-directory"})
"""Types of files whose content is in a text beside them."""

SUBAGENTS: Final = "subagents"
"""The folder of the sessions of subagents, below that of their session."""

DATABASE: Final = "opencode.db"
"""The name of the database."""


@dataclass(slots=True)
class _Entry:
    """A message.

    Attributes:
        identity: its id.
        place: its place.
        parent: the id of the prompt that it answers.
        is_summary: it is the whole summary of a compaction.
        compacts: it asks for a summary.
        tail: the first message that this summary keeps.
        parts: the places of its parts by their ids.
    """

    identity: str
    place: int
    parent: str | None = None
    is_summary: bool = False
    compacts: bool = False
    tail: str | None = None
    parts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def places(self) -> list[int]:
        """Its place and those of its parts."""
        return [self.place, *self.parts.values()]

    def take_parts(self, other: "_Entry") -> None:
        """Take the parts of its earlier state."""
        self.parts, self.compacts, self.tail = other.parts, other.compacts, other.tail


class Opencode(ForeignTranscript):
    """One session of the database `~/.local/share/opencode/opencode.db`."""

    program: ClassVar[str] = "opencode"
    stream: ClassVar[str] = "opencode"
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"tokens"', b'"modelID"')
    has_states: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._revert: dict[str, Any] = {}
        self._entries: dict[str, _Entry] = {}
        self._owners: dict[str, str] = {}
        self._prompts: set[str] = set()

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is the line of a row."""
        kind = record.get("table")
        if kind == "session":
            return text_field(record, "directory") is not None and is_array(record.get("parents"))
        is_row = text_field(record, "id") is not None and is_object(record.get("data"))
        return is_row and kind in {"message", "part"}

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """The directory of the session, and the model of a message."""
        data = object_field(record, "data")
        asked = text_field(object_field(data, "model"), "modelID")
        return Circumstances(
            work_dir=text_field(record, "directory"), model=text_field(data, "modelID") or asked
        )

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of a step, which its last part has."""
        data = object_field(record, "data")
        usage = object_field(data, "tokens")
        if record.get("table") != "part" or not usage:
            return None
        cache = object_field(usage, "cache")
        tokens = Tokens(
            count_of(usage, "input"),
            count_of(cache, "read"),
            count_of(cache, "write"),
            count_of(usage, "output", "reasoning"),
        )
        return Spent(tokens, text_field(record, "id"))

    @classmethod
    def written_at(cls, record: dict[str, Any]) -> float | None:
        """The time of a message; its parts follow it."""
        return time_of(object_field(object_field(record, "data"), "time").get("created"))

    @classmethod
    def resuming(cls, session: str) -> Sequence[str]:
        """`opencode --session`, also of a subagent."""
        return ("opencode", "--session", session.rpartition("/")[2])

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Learn session, directory and title, and collect the messages with their parts."""
        self._records += 1
        data, identity = object_field(record, "data"), str(record.get("id"))
        match record.get("table"):
            case "session":
                parents = record.get("parents")
                above = [str(each) for each in parents] if is_array(parents) else []
                self.session = f"/{SUBAGENTS}/".join([*above, identity])
                self.work_dir = text_field(record, "directory")
                title = text_field(record, "title") or ""
                self._title = None if title.startswith(_UNNAMED) else title or None
                self._revert = object_field(record, "revert")
            case "removed":
                self._remove(str(record.get("of")), identity)
            case "message":
                before = self._entries.get(identity)
                is_whole = text_field(data, "finish") is not None and not data.get("error")
                self._entries[identity] = _Entry(
                    identity,
                    place,
                    text_field(data, "parentID"),
                    is_summary=data.get("summary") is True and is_whole,
                )
                if before is not None:
                    self._entries[identity].take_parts(before)
                if data.get("role") == "user":
                    self._prompts.add(identity)
            case "part":
                self._part(place, record, data)
            case _:
                pass

    def _part(self, place: int, record: dict[str, Any], data: dict[str, Any]) -> None:
        owner = text_field(record, "message_id")
        entry = self._entries.get(owner or "")
        if entry is None:
            return
        entry.parts[str(record.get("id"))] = place
        self._owners[str(record.get("id"))] = entry.identity
        if data.get("type") == "compaction":
            entry.compacts, entry.tail = True, text_field(data, "tail_start_id")
        elif owner in self._prompts and not (data.get("synthetic") or data.get("ignored")):
            self._note_words(place, text_field(data, "text") or "")

    def _remove(self, table: str, identity: str) -> None:
        if table == "message":
            self._entries.pop(identity, None)
        elif table == "part":
            entry = self._entries.get(self._owners.pop(identity, ""))
            if entry is not None:
                entry.parts.pop(identity, None)

    def histories(self) -> list[History]:
        """What compactions replaced or a user withdrew, and the live history as the last."""
        self.unread, self._past_records = 0, 0
        whole = list(self._entries.values())
        numbers = _numbers(whole)
        live = self._kept(whole)
        withdrawn = self._withdrawn_places(live)
        past: list[History] = []
        for at, entry in enumerate(whole):
            if entry.is_summary:
                asked = min(numbers.get(entry.parent or "", at), at)
                self._keep("compaction", partial(_sent, whole, asked, numbers), past)
        if len(live) < len(whole) or withdrawn:
            self._keep("roll-back", partial(_sent, whole, len(whole), numbers), past)
        sent = _sent(live, len(live), _numbers(live))
        places = [each for entry in sent for each in entry.places if each not in withdrawn]
        return [*past, History(places, "live")] if whole else past

    def _keep(self, end: End, sent: Callable[[], Sequence[_Entry]], past: list[History]) -> None:
        """Add a past history while there is room; what was sent is looked up only then."""
        if self.unread:
            self.unread += 1
            return
        places = [place for each in sent() for place in each.places]
        if places and self._has_room(len(places)):
            past.append(History(places, end))

    def _kept(self, entries: list[_Entry]) -> list[_Entry]:
        """The messages before the one from which on everything is withdrawn."""
        first = text_field(self._revert, "messageID")
        if first is None:
            return entries
        is_part = text_field(self._revert, "partID") is not None
        return [
            each for each in entries
            if each.identity < first or (is_part and each.identity == first)
        ]  # fmt: skip

    def _withdrawn_places(self, live: list[_Entry]) -> set[int]:
        """The parts of the last message that are withdrawn, though the message is not."""
        part = text_field(self._revert, "partID")
        last = live[-1] if live else None
        if part is None or last is None or last.identity != self._revert.get("messageID"):
            return set()
        return {place for identity, place in last.parts.items() if identity >= part}

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion()


def _numbers(entries: Sequence[_Entry]) -> dict[str, int]:
    return {each.identity: number for number, each in enumerate(entries)}


def _sent(whole: Sequence[_Entry], end: int, numbers: Mapping[str, int]) -> Sequence[_Entry]:
    """What is sent at an end: from the last summary on, with the messages it kept."""
    for at in reversed(range(end)):
        if not whole[at].is_summary:
            continue
        asked = numbers.get(whole[at].parent or "", at)
        if asked < end and whole[asked].compacts:
            begin = min(numbers.get(whole[asked].tail or "", asked), asked)
            return [*whole[asked : at + 1], *whole[begin:asked], *whole[at + 1 : end]]
    return whole[:end]


class _Conversion(Converter):
    """Collects the parts of a message."""

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []

    def messages(
        self,
        place: int,  # noqa: ARG002  # a row says all of itself
        record: dict[str, Any],
    ) -> Iterator[Message]:
        """Convert a row; a message comes with the row behind its last part."""
        data = object_field(record, "data")
        if record.get("table") == "message":
            yield from self.finish()
            self._data = data
        elif record.get("table") == "part":
            self._parts.append(data)

    def finish(self) -> Iterator[Message]:
        """Yield the message that was collected."""
        data, parts = self._data, self._parts
        self._data, self._parts = {}, []
        if data.get("role") == "user":
            content = [each for part in parts for each in _prompt_parts(part)]
            if content:
                yield _timed({"role": "user", "content": simple(content)}, data)
        elif data.get("role") == "assistant" and _is_sent(data, parts):
            yield from _answers(data, parts)


def _is_sent(data: dict[str, Any], parts: list[dict[str, Any]]) -> bool:
    """Whether an answer is sent again: one with an error is not, unless the user ended it."""
    error = object_field(data, "error")
    says = any(part.get("type") not in {"step-start", "reasoning"} for part in parts)
    return not error or (error.get("name") == _ABORTED and says)


def _prompt_parts(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match part.get("type"):
        case "text" if text_field(part, "text") and part.get("ignored") is not True:
            yield {"type": "text", "text": part["text"]}
        case "file" if part.get("mime") not in _IN_TEXTS:
            yield _file(part)
        case "compaction":
            yield {"type": "text", "text": _SUMMARISED}
        case "subtask":
            yield {"type": "text", "text": _DELEGATED}
        case _:
            pass


def _answers(data: dict[str, Any], parts: list[dict[str, Any]]) -> Iterator[Message]:
    """A message for each step of an answer, with the results of its calls."""
    step: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start":
            yield from _step(data, step)
            step = []
        step.append(part)
    yield from _step(data, step)


def _step(data: dict[str, Any], parts: list[dict[str, Any]]) -> Iterator[Message]:
    said: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    tokens = 0
    for part in parts:
        text = text_field(part, "text")
        match part.get("type"):
            case "text" if text is not None:
                said.append({"type": "text", "text": text})
            case "reasoning" if text is not None:
                said.append({"type": "think", "think": text})
            case "file":
                said.append(_file(part))
            case "tool":
                given = object_field(part, "state").get("input", {})
                calls.append(tool_call(part.get("callID"), part.get("tool"), given))
                results.append(_result(part))
            case "step-finish":
                tokens = _tokens(object_field(part, "tokens"))
            case _:
                pass
    if not (said or calls):
        return
    answer: Message = {"role": "assistant", "content": simple(said)}
    yield _timed({**answer, "tool_calls": calls} if calls else answer, data)
    if tokens:
        yield {"role": "_usage", "token_count": tokens}
    yield from results


def _result(part: dict[str, Any]) -> Message:
    """The result of a call; opencode says itself that a call without one was interrupted."""
    state, identity = object_field(part, "state"), part.get("callID")
    metadata = object_field(state, "metadata")
    match state.get("status"):
        case "completed":
            is_cleared = bool(object_field(state, "time").get("compacted"))
            text = _CLEARED if is_cleared else str(state.get("output", ""))
            attached = [] if is_cleared else objects(state.get("attachments"))
            files = [_file(each) for each in attached]
            content = [{"type": "text", "text": text}, *files] if files else text
            return tool_result(identity, content, failed=False)
        case "error":
            given = text_field(metadata, "output") if metadata.get("interrupted") is True else None
            return tool_result(identity, given or str(state.get("error", "")), failed=True)
        case _:
            return tool_result(identity, _INTERRUPTED, failed=True)


def _tokens(tokens: dict[str, Any]) -> int:
    """The size of the context after a request."""
    cache = object_field(tokens, "cache")
    counted = [*(tokens.get(each) for each in ("input", "output", "reasoning")), *cache.values()]
    return whole_number(tokens.get("total")) or sum(map(whole_number, counted))


def _file(part: dict[str, Any]) -> dict[str, Any]:
    """An image; another file stays as it is."""
    media, url = text_field(part, "mime") or "", text_field(part, "url")
    return image(url) if media.startswith("image/") and url is not None else part


def _timed(message: Message, data: dict[str, Any]) -> Message:
    """A message with the time of its row, as the other programs write it."""
    created = whole_number(object_field(data, "time").get("created"))
    return {**message, "timestamp": iso(created)} if created else message

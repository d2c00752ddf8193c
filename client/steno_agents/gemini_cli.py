"""The transcripts of Gemini CLI: a head, messages by id, and changes of the whole.

The head is `{"sessionId", "projectHash", "startTime", ...}`. A message is `{"id", "timestamp",
"type", "content"}` with the type `user`, `gemini`, `info`, `error` or `warning`; a later message
with the same id takes its place. `{"$set": {"messages": [...]}}` replaces all messages: Gemini CLI
writes it when it resumes a session and when it compresses the history. `{"$rewindTo": id}` removes
that message and those after it. `summary` of the head or of a `$set` is the title.

An answer has its calls as `toolCalls`, with their results; a message of the user may repeat the
results, and snapshots repeat them again, so that a session that was resumed sends some of them
twice. Here each call has its first result only.
Older versions wrote one JSON document without lines, which is not read here.
Source: files of Gemini CLI 0.61.0 and the requests that it made, and its `loadConversationRecord`
and `convertSessionToClientHistory` (https://github.com/google-gemini/gemini-cli).
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from steno_agents.gemini_contents import (
    answer,
    content_parts,
    prompt_text,
    prompts,
    tokens_of,
)
from steno_agents.traces import Circumstances, Spent
from steno_agents.transcript import (
    Converter,
    End,
    ForeignTranscript,
    History,
    Message,
    dated,
    object_field,
    objects,
    text_field,
)
from steno_protocol._json import is_array, whole_number

_SPOKEN: Final = frozenset({"user", "gemini"})
_BESIDE: Final = frozenset({"info", "error", "warning"})

_IGNORED: Final = ("/", "?", "<session_context>", "<hook_context>")
"""The beginnings of prompts that the program leaves out when it resumes a session: commands, and
its own notes, which it writes anew."""


class GeminiCli(ForeignTranscript):
    """One file `session-<time>-<id>.jsonl` in `~/.gemini/tmp/<project>/chats`."""

    program: ClassVar[str] = "Gemini CLI"
    stream: ClassVar[str] = "gemini-cli"
    resume: ClassVar[tuple[str, ...]] = ("gemini", "--resume")
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"tokens"',)

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[str, Any] = {}
        self._live: list[int] = []

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is the head, or an answer of the model."""
        if text_field(record, "projectHash") is not None:
            return text_field(record, "sessionId") is not None
        return record.get("type") == "gemini" and _is_message(record)

    @classmethod
    def is_record(cls, record: dict[str, Any]) -> bool:
        """Whether an object is the head, a message, or a change."""
        changes = "$set" in record or "$rewindTo" in record
        return cls.recognises(record) or changes or _is_message(record)

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """The directory of the head, and the model of an answer."""
        directories = record.get("directories")
        first = directories[0] if is_array(directories) and directories else None
        return Circumstances(
            work_dir=first if isinstance(first, str) and first else None,
            model=text_field(record, "model"),
        )

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of an answer; a later record of the same id replaces it."""
        usage = object_field(record, "tokens")
        if not usage:
            return None
        tokens = tokens_of(usage, "input", "cached", "total")
        return Spent(tokens, text_field(record, "id"), text_field(record, "model"))

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Follow the messages and their changes."""
        self._records += 1
        change = object_field(record, "$set")
        self.session = self.session or text_field(record, "sessionId")
        for each in (record, change):
            self._title = text_field(each, "summary") or self._title
            directories = each.get("directories")
            if is_array(directories) and directories:
                self.work_dir = self.work_dir or text_field({"first": directories[0]}, "first")
        messages = _messages_in(record)
        if "$rewindTo" in record:
            self._replaced("roll-back")
            self._live.append(place)
            _rewind(self._ids, record["$rewindTo"])
        elif is_array(change.get("messages")):
            # A session that is resumed repeats all of it; a compression loses messages.
            lost = self._ids.keys() - {str(each.get("id")) for each in messages}
            if lost:
                self._replaced("compaction")
            self._ids, self._live = {}, [place]
        elif messages:
            self._live.append(place)
        for message in messages:
            self._note(place, message)

    def _replaced(self, end: End) -> None:
        self._keep_past(len(self._live) if self._ids else 0, self._live.copy, end)

    def _note(self, place: int, message: dict[str, Any]) -> None:
        if message.get("type") not in _SPOKEN:
            self.odd += message.get("type") not in _BESIDE
            return
        self._ids[str(message.get("id"))] = None
        parts = content_parts(message.get("content"))
        if message["type"] == "user" and place not in self._words and not _is_ignored(parts):
            self._note_words(place, prompt_text(parts))

    def histories(self) -> list[History]:
        """What compressions and returns replaced, and the live history as the last."""
        if not self._live:
            return []
        return [*self._past, History(self._live, "live")]

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion()


class _Conversion(Converter):
    """Applies the changes; the messages are known at the end."""

    def __init__(self) -> None:
        self._messages: dict[str, dict[str, Any]] = {}
        self._answered: set[str] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Conversion":
        """Copy what changes; the messages themselves are replaced, and never changed."""
        del memo
        other = _Conversion()
        other._messages, other._answered = self._messages.copy(), self._answered.copy()
        return other

    def messages(
        self,
        place: int,  # noqa: ARG002  # a record says all of itself
        record: dict[str, Any],
    ) -> Iterator[Message]:
        """Take a record; its messages come at the end."""
        target = text_field(record, "$rewindTo")
        if target is not None:
            _rewind(self._messages, target)
        elif is_array(object_field(record, "$set").get("messages")):
            self._messages.clear()
        self._messages |= {str(each.get("id")): each for each in _messages_in(record)}
        return iter(())

    def finish(self) -> Iterator[Message]:
        """Yield the messages, each as it was written last."""
        for record in self._messages.values():
            if record.get("type") == "gemini":
                yield from self._answer(record)
            elif record.get("type") == "user":
                parts = content_parts(record.get("content"))
                if not _is_ignored(parts):
                    yield from self._once(prompts(parts), record)

    def _answer(self, record: dict[str, Any]) -> Iterator[Message]:
        calls = objects(record.get("toolCalls"))
        parts = content_parts(record.get("content"))
        if not any("functionCall" in part or part.get("thought") for part in parts):
            thoughts = [_thought(each) for each in objects(record.get("thoughts"))]
            named = [{"functionCall": each} for each in calls]
            parts = [*thoughts, *parts, *named]
        message = answer(parts)
        if message is None:
            return
        yield dated(message, record)
        tokens = whole_number(object_field(record, "tokens").get("total"))
        if tokens:
            yield {"role": "_usage", "token_count": tokens}
        for call in calls:
            failed = call.get("status") == "error"
            for each in self._once(prompts(_result_parts(call)), record):
                yield {**each, "is_error": True} if failed and each["role"] == "tool" else each

    def _once(self, messages: Iterator[Message], record: dict[str, Any]) -> Iterator[Message]:
        """Leave out results that came before."""
        for message in messages:
            identity = message.get("tool_call_id")
            if identity is None or identity not in self._answered:
                yield dated(message, record)
            if identity is not None:
                self._answered.add(identity)


def _rewind(messages: dict[str, Any], target: object) -> None:
    """Remove a message and those after it; without one of this id, all."""
    while messages and messages.popitem()[0] != target:
        pass


def _messages_in(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a record: its own, or those that it contains."""
    if "projectHash" in record:
        found = objects(record.get("messages"))
    elif "$set" in record:
        found = objects(object_field(record, "$set").get("messages"))
    else:
        found = [record]
    return [each for each in found if text_field(each, "id") is not None]


def _is_message(record: dict[str, Any]) -> bool:
    has_content = "content" in record and "timestamp" in record
    return has_content and text_field(record, "id") is not None


def _is_ignored(parts: list[dict[str, Any]]) -> bool:
    text = prompt_text(parts).lstrip()
    is_typed = all("text" in part for part in parts)
    return is_typed and (not text or text.startswith(_IGNORED))


def _thought(thought: dict[str, Any]) -> dict[str, Any]:
    subject, description = text_field(thought, "subject"), str(thought.get("description", ""))
    return {"text": f"**{subject}** {description}" if subject else description, "thought": True}


def _result_parts(call: dict[str, Any]) -> list[dict[str, Any]]:
    """The result of a call: parts of Google's interface, or a text."""
    result = call.get("result")
    if not isinstance(result, str):
        return content_parts(result)
    named = {"id": call.get("id"), "name": call.get("name"), "response": {"output": result}}
    return [{"functionResponse": named}]

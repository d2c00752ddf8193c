"""The transcripts of Qwen Code: one file a session, its records a tree.

Each record has `uuid` and `parentUuid`, as those of Claude Code, but the message is a content of
Google's model interface: `{"role": "user" | "model", "parts": [...]}`. Results of tools are records
of type `tool_result`. Of the records of type `system`, three change the conversation:
`chat_compression` has the whole new history in `systemPayload.compressedHistory`, `rewind` is the
child of the record that it returns to, and `custom_title` names the session.

The live branch ends with the last record.
Source: files of Qwen Code 0.24.4 and the requests that it made, and its `ChatRecordingService`
(https://github.com/QwenLM/qwen-code).
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from steno_agents.gemini_contents import (
    answer,
    content_parts,
    prompt_text,
    prompts,
    tokens_of,
)
from steno_agents.traces import Spent
from steno_agents.transcript import (
    Converter,
    Message,
    dated,
    object_field,
    objects,
    text_field,
)
from steno_agents.tree_transcript import TreeTranscript
from steno_protocol._json import is_array, whole_number

_SPOKEN = frozenset({"user", "assistant", "tool_result"})


class QwenCode(TreeTranscript):
    """One file `<session>.jsonl` in `~/.qwen/projects/<directory>/chats`."""

    program: ClassVar[str] = "Qwen Code"
    stream: ClassVar[str] = "qwen-code"
    resume: ClassVar[tuple[str, ...]] = ("qwen", "--resume")
    is_named_by_file: ClassVar[bool] = True
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"usageMetadata"',)

    @classmethod
    def recognises(cls, record: dict[str, Any]) -> bool:
        """Whether a record is a message of a tree, with parts as of Google's interface."""
        return _is_node(record) and text_field(record, "type") in _SPOKEN and _has_parts(record)

    @classmethod
    def hints(cls, record: dict[str, Any]) -> bool:
        """Whether it is a record of the program itself, which may come before the messages."""
        is_system = record.get("type") == "system" and text_field(record, "subtype") is not None
        return is_system and "systemPayload" in record and _is_node(record)

    @classmethod
    def path_segments(cls, parts: Sequence[str]) -> Sequence[str]:
        """The name of the file, in the folder where the program looks for it."""
        *_, folder, name = ["", "", *parts]
        return (name.partition(".")[0],) if folder == "chats" else ()

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of an answer."""
        usage = object_field(record, "usageMetadata")
        if not usage:
            return None
        tokens = tokens_of(usage, "promptTokenCount", "cachedContentTokenCount", "totalTokenCount")
        return Spent(tokens, text_field(record, "uuid"), text_field(record, "model"))

    def scan(self, place: int, record: dict[str, Any]) -> None:
        """Learn session, directory, title and the tree."""
        self._records += 1
        self.session = self.session or text_field(record, "sessionId")
        self.work_dir = self.work_dir or text_field(record, "cwd")
        uuid = text_field(record, "uuid")
        if uuid is None:
            return
        kind = text_field(record, "type")
        parts = content_parts(object_field(record, "message").get("parts"))
        self.odd += kind in _SPOKEN and not _has_parts(record)
        number = self._add(uuid, place, text_field(record, "parentUuid"), speaks=bool(parts))
        if kind == "user":
            self._note_words(place, prompt_text(parts))
        elif kind == "system":
            payload = object_field(record, "systemPayload")
            if record.get("subtype") == "custom_title":
                self._title = text_field(payload, "customTitle") or self._title
            elif record.get("subtype") == "chat_compression" and _compressed(record):
                self._compactions[number] = None

    def converter(self) -> Converter:
        """A converter for one history."""
        return _Conversion()


class _Conversion(Converter):
    def messages(
        self,
        place: int,  # noqa: ARG002  # a record says all of itself
        record: dict[str, Any],
    ) -> Iterator[Message]:
        """Convert a record of the conversation."""
        if record.get("type") == "system":
            if record.get("subtype") == "chat_compression":
                for content in _compressed(record):
                    yield from (dated(each, record) for each in _messages(content))
        else:
            content = object_field(record, "message")
            yield from (dated(each, record) for each in _messages(content))
            tokens = object_field(record, "usageMetadata").get("totalTokenCount")
            if whole_number(tokens):
                yield {"role": "_usage", "token_count": whole_number(tokens)}


def _messages(content: dict[str, Any]) -> Iterator[Message]:
    parts = content_parts(content.get("parts"))
    if content.get("role") == "model":
        message = answer(parts)
        if message is not None:
            yield message
    else:
        yield from prompts(parts)


def _compressed(record: dict[str, Any]) -> list[dict[str, Any]]:
    return objects(object_field(record, "systemPayload").get("compressedHistory"))


def _is_node(record: dict[str, Any]) -> bool:
    has_ids = text_field(record, "uuid") is not None and "parentUuid" in record
    return has_ids and text_field(record, "sessionId") is not None


def _has_parts(record: dict[str, Any]) -> bool:
    return is_array(object_field(record, "message").get("parts"))

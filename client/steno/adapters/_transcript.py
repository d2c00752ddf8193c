"""The transcript of a context, read as kimi-cli reads it.

Lines are read with the tolerance of kimi-cli 1.52: invalid UTF-8 is replaced, control characters in
strings pass, and damaged lines are skipped.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol

from steno_protocol.context import CHARS_PER_TOKEN, decode_tolerantly
from steno_protocol.errors import BadRequest
from steno_protocol.records import text_chars

_log = logging.getLogger(__name__)


class MessageLike(Protocol):
    """A message of kosong: a pydantic model."""

    def model_dump_json(self, *, exclude_none: bool) -> str:
        """The message as JSON."""
        ...


class Transcript:
    """The messages and numbers of a context, updated line by line.

    Attributes:
        messages: the history.
        message_type: the class of messages from the file; None: not known yet.
        token_count: the last token count, 0 before the first.
        pending: estimated tokens of the messages after it.
        next_checkpoint: the id that the next checkpoint gets.
        system_prompt: None when there is none.
    """

    def __init__(self, message_type: Any = None) -> None:
        self.messages: list[Any] = []
        self.message_type: Any = message_type
        self._is_type_given = message_type is not None
        self.reset()

    def reset(self) -> None:
        """Clear everything; the list itself stays, because callers may hold it."""
        self.messages.clear()
        self.token_count = 0
        self.pending = 0
        self.next_checkpoint = 0
        self.system_prompt: str | None = None

    def take_lines(self, lines: Iterable[bytes]) -> None:
        """Apply lines from the file, with one token estimate for all their messages."""
        chars = 0
        for line in lines:
            record = decode_tolerantly(line)
            if record is None:
                continue
            match record:
                case {"role": "_system_prompt", "content": str(prompt)}:
                    self.system_prompt = prompt
                case {"role": "_usage", "token_count": int(count)}:
                    self.counted(count)
                    chars = 0
                case {"role": "_checkpoint", "id": int(number)}:
                    self.marked(number)
                case _:
                    chars += self._take_message(record)
        self.pending += chars // CHARS_PER_TOKEN

    def take_messages(self, messages: Sequence[MessageLike], encoded: Iterable[bytes]) -> None:
        """Apply messages that were appended by one call."""
        self.messages.extend(messages)
        chars = sum(text_chars(json.loads(data).get("content")) for data in encoded)
        self.pending += chars // CHARS_PER_TOKEN

    def learn_type(self, messages: Iterable[MessageLike]) -> None:
        """Use the class of appended messages for all, if no class was given.

        A subclass is ignored: it may require fields that other messages lack.
        """
        for message in messages:
            known = self.message_type
            if not self._is_type_given and (known is None or not isinstance(message, known)):
                self.message_type = type(message)

    def counted(self, token_count: int) -> None:
        """Note the token count of a model."""
        self.token_count = token_count
        self.pending = 0

    def marked(self, checkpoint_id: int) -> None:
        """Note a new checkpoint."""
        self.next_checkpoint = max(self.next_checkpoint, checkpoint_id + 1)

    def _take_message(self, record: dict[str, Any]) -> int:
        role = record.get("role")
        if not isinstance(role, str) or role.startswith("_"):
            return 0
        try:
            message = self.message_type.model_validate(record)
        except (ValueError, KeyError, TypeError) as error:
            # pydantic's ValidationError is a ValueError; a part of an unknown type is a KeyError.
            _log.warning("a record of the context is not shown as a message: %s", error)
            return 0
        self.messages.append(message)
        return text_chars(record.get("content"))


def encode(messages: Sequence[MessageLike]) -> list[bytes]:
    """Encode each message as the program itself does, without the newline.

    Raises:
        BadRequest: a message is no pydantic model.
    """
    for message in messages:
        if not hasattr(message, "model_dump_json"):
            raise BadRequest(
                f"a message is a pydantic model here, as kosong's Message is, and not a"
                f" {type(message).__name__}: make one of it, or append it with steno.connect"
            )
    return [message.model_dump_json(exclude_none=True).encode() for message in messages]


def kosong_message() -> Any:
    """Import kosong's Message.

    Raises:
        BadRequest: kosong is not installed.
    """
    try:
        return import_module("kosong.message").Message
    except ImportError:
        raise BadRequest(
            "the messages of this file are to be kosong's, which is not installed:"
            " pip install kosong, or read the session with steno.connect"
        ) from None

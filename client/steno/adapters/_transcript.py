"""The transcript of a context, read as kimi-cli reads it.

Lines are read with the tolerance of kimi-cli 1.52: invalid UTF-8 is replaced, control characters in
strings pass, and damaged lines are skipped. A message with the role `developer`, which kosong calls
`system`, is shown with the role `system` to a class that refuses the first one; kimi-cli itself
skips such a line.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from steno.adapters._optional import KOSONG, program
from steno.parts import encode_messages
from steno_protocol.context import CHARS_PER_TOKEN, decode_tolerantly
from steno_protocol.errors import BadRequest
from steno_protocol.records import text_chars

_log = logging.getLogger(__name__)


class MessageLike(Protocol):
    """A message of kosong: a pydantic model."""

    def model_dump_json(self, *, exclude_none: bool) -> str:
        """The message as JSON."""
        ...


Appended = MessageLike | Mapping[str, Any]
"""A message that a caller appends: an object of the program, or a plain dict."""

_DEVELOPER: Final = "developer"
_SYSTEM: Final = "system"


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

    def prepare(self, messages: Sequence[Appended]) -> tuple[list[Any], list[bytes]]:
        """Return messages as the history shows them, and encoded as their lines.

        The message type has to be known if there is a dict among them.

        Raises:
            BadRequest: a message is neither an object of the program nor a dict, or is a dict that
                the message type refuses or that JSON cannot hold.
        """
        shown: list[Any] = []
        encoded: list[bytes] = []
        for number, each in enumerate(messages, 1):
            try:
                message, data = self._prepare_one(each)
            except BadRequest as error:
                if len(messages) == 1:
                    raise
                where = f"message {number} of {len(messages)}"
                raise BadRequest(f"{where}: {error.message}") from error
            shown.append(message)
            encoded.append(data)
        return shown, encoded

    def take_messages(self, messages: Sequence[Any], encoded: Iterable[bytes]) -> None:
        """Apply messages that were appended by one call."""
        self.messages.extend(messages)
        chars = sum(text_chars(json.loads(data).get("content")) for data in encoded)
        self.pending += chars // CHARS_PER_TOKEN

    def learn_type(self, messages: Iterable[Appended]) -> None:
        """Use the class of appended messages for all, if no class was given.

        A subclass is ignored: it may require fields that other messages lack.
        """
        for message in messages:
            if isinstance(message, Mapping):
                continue
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
            message = self._shown(record)
        except (ValueError, KeyError, TypeError) as error:
            # pydantic's ValidationError is a ValueError; a part of an unknown type is a KeyError.
            _log.warning("a record of the context is not shown as a message: %s", error)
            return 0
        self.messages.append(message)
        return text_chars(record.get("content"))

    def _prepare_one(self, message: Appended) -> tuple[Any, bytes]:
        if not isinstance(message, Mapping):
            [data] = encode([message])
            return message, data
        record = {**message}
        [data] = encode_messages(record)
        try:
            shown = self._shown(record)
        except (ValueError, KeyError, TypeError) as error:
            name = getattr(self.message_type, "__name__", "message")
            raise BadRequest(f"the dict is no {name}: {error!s:.500}") from error
        if record.get("role") == _DEVELOPER and getattr(shown, "role", None) == _SYSTEM:
            # In the words of the program, whose own `restore` skips a line with the other role.
            [data] = encode_messages({**record, "role": _SYSTEM})
        return shown, data

    def _shown(self, record: dict[str, Any]) -> Any:
        """The message of a record; errors of the message type pass."""
        try:
            return self.message_type.model_validate(record)
        except ValueError:
            if record.get("role") != _DEVELOPER:
                raise
            return self.message_type.model_validate({**record, "role": _SYSTEM})


def encode(messages: Sequence[MessageLike]) -> list[bytes]:
    """Encode each message as the program itself does, without the newline.

    Raises:
        BadRequest: a message is neither a pydantic model nor a dict.
    """
    for message in messages:
        if not hasattr(message, "model_dump_json"):
            raise BadRequest(
                "a message is a dict or a pydantic model here, as kosong's Message is, and not a"
                f" {type(message).__name__}: make one of it, or append it with steno.connect"
            )
    return [message.model_dump_json(exclude_none=True).encode() for message in messages]


def kosong_message() -> Any:
    """Import kosong's Message.

    Raises:
        ModuleNotFoundError: kosong is not installed.
    """
    return program("kosong.message", KOSONG).Message

"""Checks of appended records, and the stamps that steno adds to them.

A line is one JSON object in compact UTF-8. Steno's lines have two more keys before the last brace:
`_by` (the writing client) and, always last, `_id` (`<key>`, or `<key>.<index>/<count>` in a batch):

    {"role":"user","content":"hi","_by":"planner","_id":"0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11.0/2"}

`_id` is the stamp: the idempotency key of the command across restarts, and the evidence whether a
batch is torn.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeGuard

import msgspec

from steno_protocol import limits
from steno_protocol._json import is_array, is_object, json_type
from steno_protocol.errors import BadRequest, TooLarge

KIMI_ROLES: Final = frozenset(("system", "user", "assistant", "tool"))
"""The roles of messages that kimi-cli knows; steno keeps any other role, too."""

RESERVED_KEYS: Final = ("_id", "_by", "_claim", "_at")
"""Keys that steno writes. A client's record may have them from another line; they are dropped."""


class _Text(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The most frequent shape of a message: decoded to this, it is checked in half the time."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


_decode = msgspec.json.Decoder().decode
_decode_lines = msgspec.json.Decoder().decode_lines
_decode_texts = msgspec.json.Decoder(_Text).decode_lines
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines

_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_LINE_SEPARATORS: Final = {"\u0085": r"\u0085", "\u2028": r"\u2028", "\u2029": r"\u2029"}
"""Characters that are legal in JSON and end a line for some tools; they are escaped."""

_STAMP = re.compile(rb'"_id":"([A-Za-z0-9_-]{1,64})(?:\.(\d{1,4})/(\d{1,4}))?"\}\r?\n?\Z')

_FACTS: Final = re.compile(
    rb'"_(?<=[,{]"_)(?:at":"[^"]*","_)?(?:by":"([^"]*)","_)?(?:claim":"[^"]*","_)?id":"[^"]*"\}\s*\Z'
)
"""The keys that steno inserts before the last brace of a line.

It begins with the bytes that it looks for first: a search for one of several characters takes
many times as long.
"""

_FACTS_BYTES_MAX: Final = 1024
_CONTROL_CHARACTERS: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_ROLE: Final = re.compile(rf"[^_{_CONTROL_CHARACTERS}][^{_CONTROL_CHARACTERS}]*")

_NOTICE: Final = re.compile(r"\s*<system>CHECKPOINT \d+</system>\s*")


def is_message_role(role: object) -> TypeGuard[str]:
    """Whether a message may have this role.

    >>> is_message_role("developer"), is_message_role("_usage")
    (True, False)
    """
    if not isinstance(role, str):
        return False
    if role in KIMI_ROLES:
        return True
    return _ROLE.fullmatch(role) is not None and len(role.encode()) <= limits.ROLE_BYTES_MAX


def check_role(role: object) -> str:
    """Return the role of a message.

    Raises:
        BadRequest: it is no text, empty, too long, has control characters, or begins with the
            underscore of control records.
    """
    if is_message_role(role):
        return role
    raise BadRequest(_wrong_role(role))


class Stamp(msgspec.Struct, frozen=True):
    """The `_id` of a line: the key of its command and its index in that command's batch."""

    key: str
    index: int
    size: int


class CheckedRecord(msgspec.Struct, frozen=True, gc=False):
    """A checked record: its bytes without newline, and the number of characters of its text."""

    data: bytes
    text_chars: int


def check_message(data: bytes, *, verbatim: bool = False) -> CheckedRecord:
    """Check one message.

    Args:
        data: one JSON object as UTF-8.
        verbatim: keep the caller's bytes (a session without stamps) if they are one line;
            otherwise whitespace is removed and reserved keys are dropped.

    Returns:
        One line without its newline, of at most `RECORD_BYTES_MAX` bytes, and the number of
        characters of its text.

    Raises:
        TooLarge: the record is over `RECORD_BYTES_MAX`, as sent or as a line.
        BadRequest: the record is not JSON, not an object or too deep, has no allowed role or no
            content, or cannot be written as one line of UTF-8.
    """
    record = decode_object(data)
    chars = _message_chars(record)
    if not verbatim:
        return CheckedRecord(compact(data, record), chars)
    if b"\n" in data or b"\r" in data:
        raise _many_lines()
    if stamp_of(data) is not None:
        # The next opening would take the line for a command's, or for half a batch.
        raise BadRequest(
            'the record ends with an "_id", which marks steno\'s own lines, and this session has no'
            " stamps: leave it out"
        )
    return CheckedRecord(data, chars)


def plain_chars(data: Sequence[bytes]) -> int | None:
    """Check all messages of an append at once; this is the fast path of nearly every append.

    Args:
        data: one JSON object as UTF-8 each.

    Returns:
        The number of characters of their text if they can be written as they are; None if
        `check_message` has to check, refuse or change them one by one.
    """
    block = b"\n".join(data) + b"\n"
    if len(block) > limits.FAST_CHECK_BYTES_MAX:
        return None
    try:
        if not block.isascii() and _separators(block.decode()):
            return None
        chars = _chars_of_texts(block, len(data))
        if chars is not None:
            return chars
        found = _decode_lines(block)
        # As many objects as lines: no record spans lines or holds two objects.
        if len(found) != len(data) or _encode_lines(found) != block:
            return None
        return sum([_plain_chars(each, record) for each, record in zip(data, found, strict=True)])
    except (msgspec.DecodeError, UnicodeError, RecursionError, BadRequest):
        return None


def check_record(data: bytes) -> bytes:
    """Check one record of a stream, and return its bytes as they are, without space around them.

    Raises:
        TooLarge: the record is over `RECORD_BYTES_MAX`.
        BadRequest: the record is not a JSON object, is too deep, spans several lines, or has a key
            of steno's own.
    """
    record = decode_object(data)
    if not record:
        return b"{}"
    if b"\n" in data or b"\r" in data:
        raise _many_lines()
    if not record.keys().isdisjoint(RESERVED_KEYS):
        reserved = next(key for key in RESERVED_KEYS if key in record)
        raise BadRequest(
            f"the record has the key {reserved!r}, which steno adds to lines: put the record into a"
            " field of another object"
        )
    return data.strip()


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode one record as strictly as every reader of the file needs it to be.

    Raises:
        TooLarge, BadRequest: as in `check_message`.
    """
    if len(data) > limits.RECORD_BYTES_MAX:
        raise _too_large(len(data))
    try:
        record = _decode(data)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        is_marked = data.startswith(codecs.BOM_UTF8)
        why = "it begins with a byte order mark (EF BB BF): remove it" if is_marked else error
        raise BadRequest(f"the record is not JSON in UTF-8: {why}") from None
    if not is_object(record):
        raise BadRequest(f"the record is a JSON {json_type(record)}, it has to be an object")
    _check_depth(data, record)
    return record


def compact(data: bytes, record: dict[str, Any]) -> bytes:
    """Return `record` as one compact line, with the caller's own bytes wherever possible.

    Raises:
        TooLarge: escaping made it longer than `RECORD_BYTES_MAX`.
    """
    if not record.keys().isdisjoint(RESERVED_KEYS):
        data = _without_reserved(data)
    elif _encode(record) == data:
        # The encoder writes compact JSON, so the caller's bytes are compact.
        return data if data.isascii() else _escape_separators(data)
    # format() only moves whitespace: numbers, escapes and the order of keys stay as they were.
    return _escape_separators(msgspec.json.format(data, indent=-1))


def line(data: bytes, facts: bytes) -> bytes:
    """Return one line of the file: a checked object with `facts` inserted before its last brace."""
    return b"%b%b}\n" % (data[:-1], facts)


def claimed(by: str, claim: str) -> str:
    """Return the author of a line together with the name that the author claims.

    The result stands in the place of `by` in the functions below.

    >>> stamped_line(b'{"role":"user"}', b"", "k1", claimed("laptop", "planner"))
    b'{"role":"user","_by":"laptop","_claim":"planner","_id":"k1"}\\n'
    """
    return f'{by}","_claim":"{claim}'


def stamped_line(data: bytes, facts: bytes, key: str, by: str | None) -> bytes:
    """Return the line of a command with one record: `line` with `facts` and the stamp.

    >>> stamped_line(b'{"role":"user"}', b',"_at":"0:1"', "k1", None)
    b'{"role":"user","_at":"0:1","_id":"k1"}\\n'
    """
    stamps = f',"_by":"{by}","_id":"{key}"' if by else f',"_id":"{key}"'
    return b"%b%b%b}\n" % (data[:-1], facts, stamps.encode())


def batch_lines(data: Sequence[bytes], facts: bytes, key: str, by: str | None) -> bytes:
    """Return the lines of a command with several records: each has `facts` and its stamp."""
    size = len(data)
    head = facts + (f',"_by":"{by}","_id":"{key}.' if by else f',"_id":"{key}.').encode()
    tail = b'/%d"}\n' % size
    return b"".join(
        [b"%b%b%d%b" % (each[:-1], head, index, tail) for index, each in enumerate(data)]
    )


def stamp(key: str, by: str | None) -> bytes:
    """Return the stamp of a command with one line.

    >>> stamp("k1", None)
    b',"_id":"k1"'
    """
    return stamped_line(b"}", b"", key, by)[:-2]


def stamp_of(data: bytes) -> Stamp | None:
    """Return the stamp at the end of a line, None for a line without a stamp."""
    match = _STAMP.search(data, max(0, len(data) - limits.STAMP_BYTES_MAX))
    if match is None:
        return None
    if match[2] is None:
        return Stamp(match[1].decode(), 0, 1)
    return Stamp(match[1].decode(), int(match[2]), int(match[3]))


def unstamped(line: bytes) -> bytes:
    """Return the record of a line, without its newline and the keys that steno inserted.

    >>> unstamped(b'{"a":1,"_by":"planner","_id":"k1"}\\n')
    b'{"a":1}'
    """
    return record_and_author(line)[0]


def record_and_author(line: bytes) -> tuple[bytes, str | None]:
    """Return the record of a line, and the client in its stamp; None without one.

    >>> record_and_author(b'{"a":1,"_by":"planner","_id":"k1"}\\n')
    (b'{"a":1}', 'planner')
    """
    match = _FACTS.search(line, max(0, len(line) - _FACTS_BYTES_MAX))
    if match is None:
        return line.rstrip(b"\r\n"), None
    # With the brace of an object that holds these keys only, and without the comma before them.
    start = match.start()
    record = line[:start] if line[start - 1 : start] == b"{" else line[: start - 1]
    return record + b"}", None if match[1] is None else match[1].decode()


def text_chars(content: object) -> int:
    """Count the characters of text in a message's content; only text parts count."""
    if isinstance(content, str):
        return len(content)
    if is_array(content):
        return sum(_part_chars(part) for part in content if is_object(part))
    return 0


def checkpoint_record(checkpoint_id: int) -> bytes:
    """Return the control record of a checkpoint."""
    return _encode({"role": "_checkpoint", "id": checkpoint_id})


def checkpoint_notice(checkpoint_id: int) -> bytes:
    """Return the message that shows a checkpoint to the model, in kimi-cli's words."""
    return _encode(
        {"role": "user", "content": f"<system>CHECKPOINT {checkpoint_id}</system>"},
    )


def is_checkpoint_notice(text: str) -> bool:
    """Whether the text of a user's message only shows a checkpoint to the model.

    >>> is_checkpoint_notice(" <system>CHECKPOINT 3</system>")
    True
    """
    return _NOTICE.fullmatch(text) is not None


def shows_checkpoint(record: dict[str, Any]) -> bool:
    """Whether a user's message only shows a checkpoint to the model."""
    content = record.get("content")
    if is_array(content) and len(content) == 1 and is_object(content[0]):
        content = content[0].get("text")
    return isinstance(content, str) and is_checkpoint_notice(content)


def dmail_message(message: str) -> bytes:
    """Return the message of a delivered D-Mail for the model.

    Raises:
        BadRequest: the mail has a lone surrogate, which UTF-8 cannot encode.
    """
    text = (
        "<system>A D-Mail has arrived: a message that you sent back to this checkpoint from later"
        " in the conversation. Everything that you did since is undone in the conversation, yet not"
        " in the world; only this message tells of it. Do not mention the D-Mail to the user; go on"
        f" with what it says.\n\n{message}</system>"
    )
    try:
        return _encode({"role": "user", "content": [{"type": "text", "text": text}]})
    except UnicodeEncodeError as error:
        raise BadRequest(f"the D-Mail is not valid Unicode: {error}") from None


def usage_record(token_count: int) -> bytes:
    """Return the control record of a token count."""
    return _encode({"role": "_usage", "token_count": token_count})


def system_prompt_record(prompt: str) -> bytes:
    """Return the control record of the system prompt.

    Raises:
        BadRequest: the prompt has a lone surrogate, which UTF-8 cannot encode.
    """
    try:
        return _escape_separators(_encode({"role": "_system_prompt", "content": prompt}))
    except UnicodeEncodeError as error:
        raise BadRequest(f"the system prompt is not valid Unicode: {error}") from None


def _part_chars(part: dict[str, Any]) -> int:
    text = part.get("text")
    return len(text) if part.get("type") == "text" and isinstance(text, str) else 0


def _chars_of_texts(block: bytes, count: int) -> int | None:
    """Count as `plain_chars`, for compact messages of role and text; None for any other."""
    try:
        found = _decode_texts(block)
    except msgspec.ValidationError:
        return None
    if len(found) != count or _encode_lines(found) != block:
        return None
    chars = 0
    for each in found:
        chars += len(each.content)
    return chars


def _plain_chars(data: bytes, record: object) -> int:
    """Refuse a record that is no message or has reserved keys, else count the text's characters."""
    if not is_object(record):
        raise BadRequest("the record is not an object")
    if not record.keys().isdisjoint(RESERVED_KEYS):
        raise BadRequest("the record has reserved keys")
    _check_depth(data, record)
    return _message_chars(record)


def _message_chars(record: dict[str, Any]) -> int:
    """Refuse a record that is no message, else count the characters of its text."""
    if "role" not in record:
        raise BadRequest(f'the record has no "role": {_ALLOWED_ROLES}')
    check_role(record["role"])
    if "content" not in record:
        raise BadRequest('the message has no "content": use a string, a list of parts, or null')
    content = record["content"]
    if "tool_calls" in record:
        _check_tool_calls(record["tool_calls"])
    # Most content is text, which needs no further check.
    return len(content) if isinstance(content, str) else _checked_chars(content)


_ALLOWED_ROLES: Final = "use system, user, assistant, tool or another name"


def _wrong_role(role: object) -> str:
    if role in ("_checkpoint", "_usage", "_system_prompt"):
        return (
            f"the role {role!r} is written by its own command (checkpoint, update_token_count,"
            f" write_system_prompt): {_ALLOWED_ROLES}"
        )
    if isinstance(role, str) and role.startswith("_"):
        return (
            f"the role {role[:40]!r} begins with an underscore, which is reserved for control"
            f" records: {_ALLOWED_ROLES}"
        )
    return (
        f"the role {str(role)[:40]!r} is no text of 1 to {limits.ROLE_BYTES_MAX} bytes without"
        f" control characters: {_ALLOWED_ROLES}"
    )


def _checked_chars(content: object) -> int:
    """Refuse invalid content, else count its characters of text."""
    if content is None:
        return 0
    if not is_array(content):
        raise BadRequest(
            f"the content is a JSON {json_type(content)}: use a string, a list of parts, or null"
        )
    chars = 0
    for part in content:
        if not is_object(part):
            raise BadRequest(
                f"a content part is a JSON {json_type(part)}: use objects that have a type"
            )
        chars += _part_chars(part)
    return chars


def _check_tool_calls(calls: object) -> None:
    if calls is not None and not (is_array(calls) and all(map(is_object, calls))):
        raise BadRequest("tool_calls has to be a list of objects, or null")


def _check_depth(data: bytes, record: object) -> None:
    # Most records are flat, which is cheap to detect: there is no bracket after the first.
    if data.find(b"{", 1) < 0 and data.find(b"[", 1) < 0:
        return
    if data.count(b"{") + data.count(b"[") <= limits.RECORD_DEPTH_MAX:
        return
    level: list[Any] = [record]
    for _ in range(limits.RECORD_DEPTH_MAX):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise _too_deep()


def _children(value: object) -> list[Any]:
    if is_object(value):
        return [child for child in value.values() if isinstance(child, (dict, list))]
    if is_array(value):
        return [child for child in value if isinstance(child, (dict, list))]
    return []


def _many_lines() -> BadRequest:
    return BadRequest("the record spans several lines: send it as compact JSON")


def _too_deep() -> BadRequest:
    return BadRequest(
        f"the record is nested more than {limits.RECORD_DEPTH_MAX} deep, which readers of the file"
        " cannot decode: flatten it, or store the nested part as a string"
    )


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"the record has {size} bytes as a line, at most {limits.RECORD_BYTES_MAX} are allowed:"
        " split it, or store the large part elsewhere and refer to it"
    )


def _without_reserved(data: bytes) -> bytes:
    # The values stay the caller's bytes: decoding them could round a number.
    parts = _decode_parts(data)
    return _encode({key: value for key, value in parts.items() if key not in RESERVED_KEYS})


def _separators(text: str) -> list[str]:
    # Searching text is three times as fast as searching UTF-8.
    return [separator for separator in _LINE_SEPARATORS if separator in text]


def _texts(data: bytes) -> Iterable[str]:
    """Decode a long record in pieces: one emoji lets all text beside it take four bytes."""
    if len(data) <= limits.MIB:
        return (data.decode(),)
    pieces = (data[at : at + limits.MIB] for at in range(0, len(data), limits.MIB))
    return codecs.iterdecode(pieces, "utf-8")


def _escaped(text: str) -> bytes:
    for separator in _separators(text):
        text = text.replace(separator, _LINE_SEPARATORS[separator])
    return text.encode()


def _escape_separators(data: bytes) -> bytes:
    if not any(map(_separators, _texts(data))):
        return data
    escaped = b"".join(map(_escaped, _texts(data)))
    if len(escaped) > limits.RECORD_BYTES_MAX:
        raise _too_large(len(escaped))
    return escaped

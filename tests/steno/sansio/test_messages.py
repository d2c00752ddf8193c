"""The forms of a message, and the errors that name an odd value's place."""

from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from steno._sansio.messages import encode_messages
from steno._sansio.wire_events import encode_events, header_fields
from steno_protocol import limits
from steno_protocol.errors import BadRequest, TooLarge

NAN = float("nan")
DATA = b'{"role":"user","content":"hi"}'


class Text(str):
    """A text of a class of its own."""


class MessageStruct(msgspec.Struct):
    role: str
    content: Any


@dataclass
class MessageDataclass:
    role: str
    content: Any


class Model:
    """As much of a pydantic model as steno needs; like one, it iterates over its fields."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {
            key: value.isoformat() if isinstance(value, datetime) else value
            for key, value in self.fields.items()
        }

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.fields.items())


class ListModel:
    """A model of a list, as pydantic's RootModel can be."""

    def model_dump(self, *, mode: str) -> list[int]:
        return [1, 2]


class BrokenModel:
    def model_dump(self, *, mode: str) -> dict[str, Any]:
        raise ValueError("it cannot be dumped")


OBJECTS = [
    {"role": "user", "content": "hi"},
    MappingProxyType({"role": "user", "content": "hi"}),
    UserDict(role="user", content="hi"),
    MessageStruct("user", "hi"),
    MessageDataclass("user", "hi"),
    Model(role="user", content="hi"),
    {"role": Text("user"), "content": Text("hi")},
]


def _name(form: object) -> str:
    return type(form).__name__


@pytest.mark.parametrize("form", [*OBJECTS, DATA], ids=_name)
def test_each_form_of_a_message_gives_the_same_record(form: Any) -> None:
    assert encode_messages(form) == [DATA]
    assert encode_messages([form, DATA, form]) == [DATA] * 3


@pytest.mark.parametrize("form", OBJECTS, ids=_name)
def test_each_form_is_a_payload_and_a_whole_event(form: Any) -> None:
    [data] = encode_events("Noted", form, 1.0)
    assert msgspec.json.decode(data)["message"]["payload"] == msgspec.json.decode(DATA)
    assert encode_events([("Noted", form, 1.0), form], None, 1.0) == [data, DATA]
    assert header_fields(form) == msgspec.json.decode(DATA)


class Kind(Enum):
    TEXT = "text"


def test_values_with_a_json_form_are_written_in_it() -> None:
    values = {"t": (1, 2), "f": 1e308, "b": True, "n": None, "i": 2**63, "o": {}, "k": Kind.TEXT}
    [data] = encode_messages(values)
    assert msgspec.json.decode(data) == {**values, "t": [1, 2], "k": "text"}


def test_models_inside_a_dict_are_written_as_they_dump_themselves() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    parts = [Model(type="text", text="hi", at=at), MessageDataclass("x", Model(n=None))]
    assert encode_messages({"role": "user", "content": parts}) == [
        (
            b'{"role":"user","content":[{"type":"text","text":"hi","at":"2026-01-01T00:00:00+00:00"},'
            b'{"role":"x","content":{"n":null}}]}'
        )
    ]


ODD = {
    "NaN": (NAN, "is NaN or infinite"),
    "an infinity": (float("inf"), "is NaN or infinite"),
    "a lone surrogate": ("a\ud800", "has a lone surrogate"),
    "a key with a surrogate": ({"\ud800": 1}, "has a lone surrogate"),
    "a set": ({1}, "is a set, which JSON cannot hold"),
    "a time": (datetime(2026, 1, 1, tzinfo=UTC), "is a datetime, which JSON cannot hold"),
    "bytes": (b"x", "is a bytes, which JSON cannot hold"),
    "an object": (object(), "is a object, which JSON cannot hold"),
    "a key of an integer": ({5: "x"}, "has the key 5, and JSON knows only strings"),
    "a large integer": (10**4300, "is an integer of more than 4300 digits"),
    "a broken model": (BrokenModel(), "cannot be written as JSON: it cannot be dumped"),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_is_named_by_its_path(odd: str) -> None:
    value, reason = ODD[odd]
    deep = {"role": "user", "content": [{"text": "fine"}, {"my key": {"at": value}}]}
    with pytest.raises(BadRequest) as refused:
        encode_messages(deep)
    assert refused.value.message.startswith(f"the message's field content[1]['my key'].at {reason}")
    with pytest.raises(BadRequest) as refused:
        encode_messages([DATA, deep, DATA])
    assert refused.value.message.startswith(
        f"message 2 of 3: the message's field content[1]['my key'].at {reason}"
    )
    with pytest.raises(BadRequest) as refused:
        encode_events([("Noted", {"x": value}, 1.0), ("Noted", {}, 1.0)], None, 1.0)
    assert refused.value.message.startswith(
        f"event 1 of 2: the event's field message.payload.x {reason}"
    )


@pytest.mark.parametrize(
    "message",
    [MessageStruct("user", [NAN]), MessageDataclass("user", [NAN]), Model(content=[NAN])],
    ids=_name,
)
def test_nan_inside_a_typed_message_is_named_by_its_path(message: Any) -> None:
    for given in (message, {"content": [NAN], "more": message}):
        with pytest.raises(BadRequest, match=r"the message's field content\[0\] is NaN"):
            encode_messages(given)


def test_an_item_that_is_no_message_is_named_by_its_number() -> None:
    for odd in (None, 5, "text", [DATA]):
        with pytest.raises(BadRequest, match=f"message 2 of 2: a message is a dict, .* the type"
                                             f" {type(odd).__name__}$"):  # fmt: skip
            encode_messages([DATA, odd])  # type: ignore[list-item]
    for whole in (ListModel(), MessageDataclass):
        with pytest.raises(BadRequest, match=f"a message is a dict, .* the type"
                                             f" {type(whole).__name__}$"):  # fmt: skip
            encode_messages(whole)  # type: ignore[arg-type]


def test_a_message_that_contains_itself_is_refused_with_its_number() -> None:
    cyclic: dict[str, Any] = {"role": "user"}
    cyclic["content"] = [cyclic]
    with pytest.raises(BadRequest, match=r"^message 2 of 2: the message is nested too deep"):
        encode_messages([DATA, cyclic])
    odd: dict[str, Any] = {"role": "user", "at": {1}}
    odd["content"] = [odd]
    with pytest.raises(BadRequest, match=r"the message's field at is a set|nested too deep"):
        encode_messages(odd)


def test_a_message_that_is_too_large_is_named_with_its_largest_text() -> None:
    large = {"role": "user", "content": [{"text": "x" * 20_000_000}, {"text": "short"}]}
    expected = r"the message has \d+ bytes, .* field content\[0\].text alone has 20000000"
    for given in (large, msgspec.json.encode(large)):
        with pytest.raises(TooLarge, match=f"^{expected}"):
            encode_messages(given)
        with pytest.raises(TooLarge, match=f"^message 2 of 2: {expected}"):
            encode_messages([DATA, given])
    with pytest.raises(TooLarge, match=r"^the message has \d+ bytes, at most \d+ are allowed: "):
        encode_messages(b"x" * (limits.RECORD_BYTES_MAX + 1))

"""The interface of a provider: its requests and answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from steno.llm._secret import Secret
from steno_protocol.context import Message


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a model, independent of the provider's format.

    Attributes:
        base_url: where the provider's API is, as `checked_base_url` returned it.
        max_output_tokens: the longest usable answer.
    """

    base_url: str
    model: str
    system_prompt: str
    messages: Sequence[Message]
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request with JSON in its body; the key is added when it is sent.

    Attributes:
        key_header: the header with the key, and the text before the key in it.
    """

    url: str
    body: bytes
    headers: dict[str, str]
    key_header: tuple[str, str]
    key: Secret | None


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a model without its thinking.

    Attributes:
        output_tokens: the size of `text`; None when it was not reported, or not of `text` alone.
        is_cut_off: the answer ended because it was as long as it may be.
        ending: why the model stopped, in its provider's word.
    """

    text: str
    output_tokens: int | None
    is_cut_off: bool
    ending: str


class Unusable(Exception):
    """The response is no answer; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A kind of API.

    Attributes:
        key_variable: the environment variable that holds a key for it, by custom.
        call: makes the request.
        answer: reads the body of a response with status 200; raises Unusable.
    """

    name: str
    base_url: str
    key_variable: str
    call: Callable[[Question, Secret | None], Call]
    answer: Callable[[bytes], ModelAnswer]


def text_of(message: Message) -> str:
    """The text of a message: a string, or the text parts of a list in order."""
    return "\n".join(_content_texts(message.get("content")))


def _content_texts(content: object) -> list[str]:
    match content:
        case str():
            return [content]
        case list():
            parts = cast("list[object]", content)
            return [text for part in parts for text in _texts(part)]
        case _:
            return []


def _texts(part: object) -> tuple[str, ...]:
    match part:
        case {"text": str(text)}:
            return (text,)
        case _:
            return ()

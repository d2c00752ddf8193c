"""Anthropic's messages, also for llama.cpp.

POST <base>/v1/messages
{"model":"m","max_tokens":8192,"system":"...","messages":[{"role":"user","content":"..."}]}

{"content":[{"type":"thinking","thinking":"..."},{"type":"text","text":"..."}],
 "stop_reason":"end_turn","usage":{"input_tokens":60,"output_tokens":16}}
"""

from typing import Any, Final

import msgspec

from steno.llm._address import endpoint
from steno.llm._json import refuse_error, tokens_at
from steno.llm._provider import Call, ModelAnswer, Provider, Question, Unusable, text_of
from steno.llm._secret import Secret
from steno.llm._thoughts import without_thoughts

_VERSION: Final = "2023-06-01"
"""The version of the API with the formats above."""


class _Body(msgspec.Struct):
    content: list[dict[str, Any]]
    stop_reason: str | None = None
    usage: Any = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Body).decode


def _call(question: Question, key: Secret | None) -> Call:
    body = {
        "model": question.model,
        "stream": False,
        "max_tokens": question.max_output_tokens,
        "system": question.system_prompt,
        "messages": [
            {"role": each["role"], "content": text_of(each)} for each in question.messages
        ],
    }
    url = endpoint(question.base_url, "v1", "messages")
    return Call(url, _encode(body), {"anthropic-version": _VERSION}, ("x-api-key", ""), key)


def _answer(body: bytes) -> ModelAnswer:
    refuse_error(body)
    try:
        parsed = _decode(body)
    except msgspec.ValidationError as error:
        raise Unusable(f"its answer is no message: {error}") from None
    if parsed.stop_reason == "refusal":
        raise Unusable("it refused to summarise this conversation")
    texts = [part for part in parsed.content if part.get("type") == "text"]
    given = text_of({"content": texts})
    text = without_thoughts(given)
    is_all = len(texts) == len(parsed.content) and text == given.strip()
    return ModelAnswer(
        text,
        # With thoughts beside the text the count is not that of the summary.
        tokens_at(parsed.usage, "output_tokens") if is_all else None,
        parsed.stop_reason in {"max_tokens", "model_context_window_exceeded"},
        str(parsed.stop_reason),
    )


ANTHROPIC_MESSAGES: Final = Provider(
    name="anthropic",
    base_url="https://api.anthropic.com/v1",
    key_variable="ANTHROPIC_API_KEY",
    call=_call,
    answer=_answer,
)
"""Messages; the server need not be Anthropic's."""

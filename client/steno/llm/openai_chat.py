"""OpenAI's chat completions, also for llama.cpp, vLLM, Ollama and most hosts.

POST <base>/chat/completions
{"model":"m","stream":false,"max_tokens":8192,"messages":[{"role":"system","content":"..."},
 {"role":"user","content":"..."}]}

{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"...",
 "reasoning_content":"..."}}],"usage":{"completion_tokens":7,
 "completion_tokens_details":{"reasoning_tokens":3}}}
"""

from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from steno.llm._address import endpoint
from steno.llm._json import refuse_error, tokens_at
from steno.llm._provider import Call, ModelAnswer, Provider, Question, Unusable, text_of
from steno.llm._secret import Secret
from steno.llm._thoughts import without_thoughts

_OWN_HOST: Final = "api.openai.com"


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    usage: Any = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Body).decode


def _call(question: Question, key: Secret | None) -> Call:
    url = endpoint(question.base_url, "v1", "chat/completions")
    # Messages are flattened to text: not every server that speaks this takes lists of parts.
    messages = [
        {"role": "system", "content": question.system_prompt},
        *({"role": each["role"], "content": text_of(each)} for each in question.messages),
    ]
    body = {
        "model": question.model,
        "stream": False,
        _limit_name(url): question.max_output_tokens,
        "messages": messages,
    }
    return Call(url, _encode(body), {}, ("authorization", "Bearer "), key)


def _limit_name(url: str) -> str:
    # OpenAI's thinking models refuse the old name; many other servers do not know the new one.
    return "max_completion_tokens" if urlsplit(url).hostname == _OWN_HOST else "max_tokens"


def _answer(body: bytes) -> ModelAnswer:
    refuse_error(body)
    try:
        parsed = _decode(body)
    except msgspec.ValidationError as error:
        raise Unusable(f"its answer is no chat completion: {error}") from None
    if not parsed.choices:
        raise Unusable("its answer has no choices")
    choice = parsed.choices[0]
    if choice.message.refusal:
        raise Unusable(f"it refused: {choice.message.refusal}")
    given = _text(choice.message.content)
    text = without_thoughts(given)
    return ModelAnswer(
        text,
        # With thoughts in the text the count is not that of the summary.
        _tokens(parsed.usage) if text == given.strip() else None,
        choice.finish_reason == "length",
        str(choice.finish_reason),
    )


def _text(content: str | list[dict[str, Any]] | None) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            # Parts of another type are what some servers let the model think in.
            return text_of({"content": [part for part in content if part.get("type") == "text"]})


def _tokens(usage: object) -> int | None:
    total = tokens_at(usage, "completion_tokens")
    thought = tokens_at(usage, "completion_tokens_details", "reasoning_tokens") or 0
    return total - thought if total is not None and total >= thought else None


OPENAI_CHAT: Final = Provider(
    name="openai",
    base_url=f"https://{_OWN_HOST}/v1",
    key_variable="OPENAI_API_KEY",
    call=_call,
    answer=_answer,
)
"""Chat completions; the server need not be OpenAI's."""

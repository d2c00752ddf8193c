"""A `summarize` function for `Session.compact` with a real model."""

import os
from typing import Final, Literal

from steno import Summary
from steno.llm._address import checked_base_url, refuse_key_in_the_clear
from steno.llm._asking import Asking, Tell, World
from steno.llm._provider import Provider, Question
from steno.llm._secret import secret_of
from steno.llm.anthropic_messages import ANTHROPIC_MESSAGES
from steno.llm.limits import MODEL_DEADLINE_S, MODEL_OUTPUT_TOKENS_MAX
from steno.llm.openai_chat import OPENAI_CHAT
from steno.parts import COMPACTION_SYSTEM_PROMPT, Summarize
from steno_protocol.context import Message
from steno_protocol.errors import BadRequest

PROVIDERS: Final = {each.name: each for each in (OPENAI_CHAT, ANTHROPIC_MESSAGES)}
"""The providers by name."""


def summarizer(
    *,
    provider: Literal["openai", "anthropic"] | str = "openai",
    model: str,
    base_url: str | None = None,
    api_key: str | None = None,
    max_output_tokens: int = MODEL_OUTPUT_TOKENS_MAX,
    deadline: float = MODEL_DEADLINE_S,
    tell: Tell | None = None,
    world: World | None = None,
) -> Summarize:
    """Make a function that asks a model for a summary, for `Session.compact`.

    When the server is too busy (429, 5xx) or its answer is lost, the request is repeated after the
    pause that the server named. Redirects are not followed. An empty answer, or one that was cut
    off because it was too long, is no summary.

    Args:
        provider: `openai` (chat completions) or `anthropic` (messages).
        model: the model's name at that provider.
        base_url: the URL of the API; None is the provider's own. Without a path, `/v1` is added.
        api_key: the key; None is STENO_LLM_API_KEY of the environment, else OPENAI_API_KEY or
            ANTHROPIC_API_KEY, else none. It goes over https or to this machine only.
        max_output_tokens: the longest summary, the model's thoughts included.
        deadline: seconds for one summary, repeats included.
        tell: called with a sentence before each retry.
        world: clock, sleep and randomness, for tests.

    Returns:
        The function; it raises ModelFailed when there is no summary.

    Raises:
        BadRequest: an argument is out of range.
        ModuleNotFoundError: the extra `stenod[llm]` is not installed.
    """
    kind = _provider(provider)
    if not model or max_output_tokens < 1 or not deadline > 0:
        raise BadRequest("a model's name, and a deadline and output tokens above 0, are needed")
    base = checked_base_url(kind.base_url if base_url is None else base_url)
    key = secret_of(api_key, os.environ, kind.key_variable)
    if key is not None:
        refuse_key_in_the_clear(base)

    async def summarize(messages: list[Message]) -> Summary:
        question = Question(base, model, COMPACTION_SYSTEM_PROMPT, messages, max_output_tokens)
        asking = Asking(kind, question, key, deadline, tell or _drop, world or World())
        answer = await asking.answer()
        return Summary(answer.text, answer.output_tokens)

    return summarize


def _provider(name: str) -> Provider:
    try:
        return PROVIDERS[name]
    except KeyError:
        known = " and ".join(PROVIDERS)
        raise BadRequest(f"there is no provider {name!r}: there are {known}") from None


def _drop(_: str) -> None:
    """Drop the sentence."""

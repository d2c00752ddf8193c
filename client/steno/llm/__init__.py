"""Real models for the summary of a compaction; needs the extra `stenod[llm]`.

    from steno.llm import summarizer

    await session.compact(summarizer(provider="openai", model="...", base_url="http://..."))

`openai_chat` and `anthropic_messages` contain the request and answer formats of the providers,
`_retry` decides which requests are repeated and when, `_http` moves the bytes.
`import steno` imports none of it, and each name is imported when it is first used: the bounds in
`limits` need no extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from steno.llm._asking import ModelFailed
    from steno.llm._summarizer import PROVIDERS, summarizer

__all__ = ["PROVIDERS", "ModelFailed", "summarizer"]

_HOMES: Final = {
    "ModelFailed": "steno.llm._asking",
    "PROVIDERS": "steno.llm._summarizer",
    "summarizer": "steno.llm._summarizer",
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'steno.llm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

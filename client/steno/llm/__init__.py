"""Real models for the summary of a compaction; needs the extra `stenod[llm]`.

    from steno.llm import summarizer

    await session.compact(summarizer(provider="openai", model="...", base_url="http://..."))

`openai_chat` and `anthropic_messages` contain the request and answer formats of the providers,
`_retry` decides which requests are repeated and when, `_http` moves the bytes.
`import steno` imports none of it, and each name is imported when it is first used: the bounds in
`limits` need no extra.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from steno._lazy import imported_on_use

if TYPE_CHECKING:
    from steno.llm._asking import ModelFailed
    from steno.llm._summarizer import PROVIDERS, summarizer

__all__ = ["PROVIDERS", "ModelFailed", "summarizer"]

_HOMES: Final = {
    "steno.llm._asking": "ModelFailed",
    "steno.llm._summarizer": "PROVIDERS summarizer",
}

__getattr__: Callable[[str], Any] = imported_on_use(globals(), _HOMES)

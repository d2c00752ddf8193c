"""Real models for the summary of a compaction; needs the extra `stenod[llm]`.

    from steno.llm import summarizer

    await session.compact(summarizer(provider="openai", model="...", base_url="http://..."))

`openai_chat` and `anthropic_messages` contain the request and answer formats of the providers,
`_retry` decides which requests are repeated and when, `_http` moves the bytes.
`import steno` imports none of it.
"""

from steno.llm._asking import ModelFailed
from steno.llm._summarizer import PROVIDERS, summarizer

__all__ = ["PROVIDERS", "ModelFailed", "summarizer"]

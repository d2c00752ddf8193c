"""Real models that write the summary of a compaction; needs the extra `stenod[llm]`.

    from steno.llm import summarizer

    await session.compact(summarizer(provider="openai", model="...", base_url="http://..."))

A file here is one thing each: `openai_chat` and `anthropic_messages` know what a provider wants to
be asked and how it answers, `_retry` decides what is asked again and when, `_http` moves the bytes.
Nothing of it is imported with `steno`.
"""

from steno.llm._asking import ModelFailed
from steno.llm._summarizer import PROVIDERS, summarizer

__all__ = ["PROVIDERS", "ModelFailed", "summarizer"]

"""What is kept of histories that a transcript replaces again and again."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from steno_agents.copilot_cli import CopilotCli
from steno_agents.gemini_cli import GeminiCli
from steno_agents.kimi_code import KimiCode
from steno_agents.opencode import Opencode
from steno_agents.transcript import ForeignTranscript

MANY = 3000
"""Messages, and returns to the last of them."""


def gemini() -> Iterator[dict[str, Any]]:
    for number in range(MANY):
        yield {"id": f"m{number}", "type": "user", "timestamp": "", "content": ""}
    for _ in range(MANY):
        yield {"$rewindTo": f"m{MANY - 1}"}
        yield {"id": f"m{MANY - 1}", "type": "user", "timestamp": "", "content": ""}


def copilot() -> Iterator[dict[str, Any]]:
    for number in range(MANY):
        yield {"id": f"m{number}", "type": "user.message", "data": {}}
    for number in range(MANY - 1, 2 * MANY - 1):
        yield {"type": "session.snapshot_rewind", "data": {"upToEventId": f"m{number}"}}
        yield {"id": f"m{number + 1}", "type": "user.message", "data": {}}


def kimi() -> Iterator[dict[str, Any]]:
    prompt = {"role": "user", "content": "", "origin": {"kind": "user"}}
    for _ in range(MANY):
        yield {"type": "context.append_message", "message": prompt}
    for _ in range(MANY):
        yield {"type": "context.undo", "count": 1}
        yield {"type": "context.append_message", "message": prompt}


PROGRAMS: dict[type[ForeignTranscript], Callable[[], Iterator[dict[str, Any]]]] = {
    GeminiCli: gemini,
    CopilotCli: copilot,
    KimiCode: kimi,
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_past_histories_take_bounded_memory(program: type[ForeignTranscript]) -> None:
    found = program()
    tracemalloc.start()
    try:
        for place, record in enumerate(PROGRAMS[program]()):
            found.scan(place, record)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # All of them together have 9 million places, 72 MB.
    assert peak < 20_000_000
    histories = found.histories()
    assert histories[-1].end == "live"
    assert found.unread > 0
    assert len(histories) - 1 + found.unread == MANY


def test_the_summaries_of_opencode_are_looked_at_in_linear_time() -> None:
    found = Opencode()
    pairs = 10_000
    for number in range(pairs):
        data = {"role": "assistant", "summary": True, "finish": "stop"}
        found.scan(
            2 * number, {"table": "message", "id": f"a{number:06}", "data": {"role": "user"}}
        )
        found.scan(2 * number + 1, {"table": "message", "id": f"b{number:06}", "data": data})
    begun = time.process_time()
    assert len(found.histories()) - 1 + found.unread == pairs
    # A look at all messages for each summary takes 20 s and more.
    assert time.process_time() - begun < 5

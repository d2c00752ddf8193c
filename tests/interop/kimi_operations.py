"""Random operations for kimi-cli's context and for its twin."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from interop.peers import peer

_message = peer("kosong.message")
_WORDS = ("", "hi", "naïve 漢字", "line\nbreak", "u2028 \u2028", "x" * 301, '"quoted" \\ back')


@dataclass(frozen=True, slots=True)
class Operation:
    """A method's name and its arguments."""

    name: str
    arguments: tuple[Any, ...]

    async def on(self, context: Any) -> None:
        """Do it."""
        await getattr(context, self.name)(*self.arguments)


def operations(random: Random, count: int) -> Iterator[Callable[[Any], Operation]]:
    """Operations that are chosen when it is known what the context is like.

    The system prompt is written only where there is none: a second one is two records in
    kimi-cli's file, of which its restore then believes the old.
    """
    for _ in range(count):
        yield lambda context: _choose(random, context)


def _choose(random: Random, context: Any) -> Operation:
    kinds = ["append_message"] * 4 + ["batch", "checkpoint", "checkpoint", "update_token_count"]
    kinds += ["revert_to"] * bool(context.n_checkpoints)
    kinds += ["write_system_prompt"] * (context.system_prompt is None)
    kind = random.choice([*kinds, "clear"] if random.random() < 0.3 else kinds)
    match kind:
        case "append_message":
            return Operation(kind, (message(random),))
        case "batch":
            batch = [message(random) for _ in range(random.randint(0, 4))]
            return Operation("append_message", (batch,))
        case "checkpoint":
            return Operation(kind, (random.random() < 0.5,))
        case "update_token_count":
            return Operation(kind, (random.randint(0, 100_000),))
        case "revert_to":
            return Operation(kind, (random.randrange(context.n_checkpoints),))
        case "write_system_prompt":
            return Operation(kind, (random.choice(_WORDS),))
        case _:
            return Operation("clear", ())


def message(random: Random) -> Any:
    """A message of any role, of text or of parts, with or without tool calls."""
    match random.randrange(5):
        case 0:
            return _message.Message(
                role="tool", content=random.choice(_WORDS), tool_call_id="call-1"
            )
        case 1:
            calls = [_message.ToolCall(
                id="call-1",
                function=_message.ToolCall.FunctionBody(name="Shell", arguments='{"command":"ls"}'),
            )]  # fmt: skip
            return _message.Message(role="assistant", content=[], tool_calls=calls)
        case 2:
            parts = [
                _message.ThinkPart(think=random.choice(_WORDS)),
                _message.TextPart(text=random.choice(_WORDS)),
            ]
            return _message.Message(role="assistant", content=parts)
        case _:
            return _message.Message(role="user", content=random.choice(_WORDS))


def facts(context: Any) -> dict[str, Any]:
    """The state of a context."""
    return {
        "history": [message.model_dump() for message in context.history],
        "token_count": context.token_count,
        "token_count_with_pending": context.token_count_with_pending,
        "n_checkpoints": context.n_checkpoints,
        "system_prompt": context.system_prompt,
    }


def message_lines(path: Path) -> list[bytes]:
    """The lines that hold messages, as they are; control records may be spaced in any way."""
    return [line for line in path.read_bytes().split(b"\n") if line and b'"_' not in line[:12]]

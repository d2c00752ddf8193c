"""Sessions of Codex: a rollout with the items of the model's interface.

Codex finds a session by the id in the name of its file, in any folder of a day. It shows the
prompts and answers of `event_msg` records on its screen, and sends the `response_item` records.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, assert_never

from steno_agents.transcript import iso
from steno_agents.writers.turns import Answer, Picture, Piece, Prompt, Result, Turn
from steno_agents.writers.writer import (
    Home,
    LinesWriter,
    Record,
    Target,
    as_json,
    content_of,
    text_of_pieces,
)

_VERSION = "0.171.0"


class CodexWriter(LinesWriter):
    """Writes `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl`."""

    program: ClassVar[str] = "Codex"
    resume: ClassVar[Sequence[str]] = ("codex", "resume")
    home: ClassVar[Home] = Home("CODEX_HOME", ".codex")
    takes_links: ClassVar[bool] = True

    def place(self, target: Target) -> str:
        """The file in the folder of the day."""
        now = datetime.fromtimestamp(target.now_ms / 1000, UTC)
        return f"sessions/{now:%Y/%m/%d}/rollout-{now:%Y-%m-%dT%H-%M-%S}-{target.session}.jsonl"

    def records(self, turns: Sequence[Turn], target: Target) -> Iterator[Record]:
        """The records of the session, one a line."""
        begun = iso(turns[0].at_ms if turns else target.now_ms)
        yield _record(begun, "session_meta", {
            "id": str(target.session), "timestamp": begun, "cwd": target.work_dir,
            "originator": "steno", "cli_version": _VERSION, "source": "cli",
        })  # fmt: skip
        for turn in turns:
            at = iso(turn.at_ms)
            if (event := _event(turn)) is not None:
                yield _record(at, "event_msg", event)
            for item in _items(turn):
                yield _record(at, "response_item", item)


def _record(at: str, kind: str, payload: dict[str, Any]) -> Record:
    return {"timestamp": at, "type": kind, "payload": payload}


def _event(turn: Turn) -> Record | None:
    """What the screen shows of a turn; None if it is no text."""
    match turn:
        case Prompt(pieces):
            return {"type": "user_message", "message": text_of_pieces(pieces)}
        case Answer(texts) if texts:
            return {"type": "agent_message", "message": "\n\n".join(texts)}
        case _:
            return None


def _items(turn: Turn) -> Iterator[Record]:
    match turn:
        case Prompt(pieces):
            yield {"type": "message", "role": "user", "content": [_part(each) for each in pieces]}
        case Answer(texts, calls):
            if texts:
                content = [{"type": "output_text", "text": each} for each in texts]
                yield {"type": "message", "role": "assistant", "content": content}
            for call in calls:
                yield {
                    "type": "function_call", "name": call.name, "call_id": call.identity,
                    "arguments": as_json(call.arguments).decode(),
                }  # fmt: skip
        case Result(call, pieces):
            yield {
                "type": "function_call_output", "call_id": call.identity,
                "output": content_of(pieces, _part),
            }  # fmt: skip
        case _ as never:
            assert_never(never)


def _part(piece: Piece) -> Record:
    if isinstance(piece, Picture):
        return {"type": "input_image", "image_url": piece.url}
    return {"type": "input_text", "text": piece}

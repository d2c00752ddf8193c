"""Sessions of Qwen Code: one file in the folder of the directory, its records a chain.

The messages are contents of Google's model interface. Each result is a record of its own.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, assert_never

from steno_agents.transcript import iso
from steno_agents.writers.turns import Answer, Picture, Piece, Prompt, Result, Turn
from steno_agents.writers.writer import (
    Home,
    LinesWriter,
    Record,
    Target,
    dashed,
    pictures_of,
    text_of_pieces,
)

_VERSION = "0.24.4"


class QwenCodeWriter(LinesWriter):
    """Writes `projects/<directory>/chats/<session>.jsonl`."""

    program: ClassVar[str] = "Qwen Code"
    resume: ClassVar[Sequence[str]] = ("qwen", "--resume")
    home: ClassVar[Home] = Home("QWEN_HOME", ".qwen")
    takes_links: ClassVar[bool] = True

    def place(self, target: Target) -> str:
        """The file in the folder of the directory."""
        return f"projects/{dashed(target.work_dir)}/chats/{target.session}.jsonl"

    def records(self, turns: Sequence[Turn], target: Target) -> Iterator[Record]:
        """The records of the session, one a line."""
        parent: str | None = None
        bodies = [(turn.at_ms, _body(turn)) for turn in turns]
        if target.title is not None:
            title = {"customTitle": target.title, "titleSource": "manual"}
            body = {"type": "system", "subtype": "custom_title", "systemPayload": title}
            bodies.append((turns[-1].at_ms if turns else target.now_ms, body))
        for number, (at_ms, body) in enumerate(bodies):
            uuid = str(target.identity(number))
            yield {
                "uuid": uuid, "parentUuid": parent, "sessionId": str(target.session),
                "timestamp": iso(at_ms), "cwd": target.work_dir, "version": _VERSION, **body,
            }  # fmt: skip
            parent = uuid


def _body(turn: Turn) -> Record:
    match turn:
        case Prompt(pieces):
            return {"type": "user", "message": _content("user", [_part(each) for each in pieces])}
        case Answer(texts, calls):
            said = [_part(each) for each in texts]
            called = [
                {"functionCall": {"id": each.identity, "name": each.name, "args": each.arguments}}
                for each in calls
            ]
            message = _content("model", [*said, *called])
            return {"type": "assistant", "model": "unknown", "message": message}
        case Result(call, pieces, failed):
            response: Record = {
                "id": call.identity, "name": call.name,
                "response": {"error" if failed else "output": text_of_pieces(pieces)},
            }  # fmt: skip
            if pictures := pictures_of(pieces):
                response["parts"] = [_part(each) for each in pictures]
            shown = {"callId": call.identity, "status": "error" if failed else "success"}
            message = _content("user", [{"functionResponse": response}])
            return {"type": "tool_result", "message": message, "toolCallResult": shown}
        case _ as never:
            assert_never(never)


def _content(role: str, parts: list[Record]) -> Record:
    return {"role": role, "parts": parts}


def _part(piece: Piece) -> Record:
    match piece:
        case str():
            return {"text": piece}
        case Picture(media, data, ""):
            return {"inlineData": {"mimeType": media, "data": data}}
        case Picture(link=link):
            return {"fileData": {"mimeType": "image/png", "fileUri": link}}

"""Small transcripts of other agents in a home folder, as the programs write them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steno_agents.detection import Detector
from steno_agents.transcript import ForeignTranscript

CLAUDE = "11111111-2222-4333-8444-555555555555"
CODEX = "01234567-89ab-7cde-8f01-23456789abcd"
CLAUDE_SESSION = f"claude-code/srv-shop/{CLAUDE}"
CODEX_SESSION = f"codex/{CODEX}"
AT = "2026-11-21T10:00:00.000Z"


def write_lines(path: Path, records: Iterable[object]) -> Path:
    """Write records, one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def add_lines(path: Path, records: Iterable[object]) -> None:
    """Append records, one a line."""
    with path.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in records)


def claude_node(
    uuid: str,
    parent: str | None,
    kind: str,
    content: object,
    *,
    message: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A record of Claude Code's tree."""
    said = {"role": kind, "content": content, "id": f"msg-{uuid}", **(message or {})}
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": CLAUDE, "cwd": "/srv/shop",
        "gitBranch": "fix/till", "timestamp": AT, "isSidechain": False, "message": said, **fields,
    }  # fmt: skip


def claude_answer(uuid: str, parent: str, text: str, **fields: Any) -> dict[str, Any]:
    """An answer with its model and its tokens: 5 read, 90 of a cache, 10 to it, 15 written."""
    usage = {
        "input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 10,
        "output_tokens": 15,
    }  # fmt: skip
    message = {"model": "claude-test-1", "usage": usage}
    return claude_node(
        uuid, parent, "assistant", [{"type": "text", "text": text}], message=message, **fields
    )


def claude_file(home: Path, *more: object) -> Path:
    """A session of Claude Code with a title of its own, and what follows."""
    return write_lines(
        home / ".claude" / "projects" / "-srv-shop" / f"{CLAUDE}.jsonl",
        [
            claude_node("1", None, "user", "Mend the till"),
            claude_answer("2", "1", "It is mended."),
            {"type": "custom-title", "customTitle": "The till", "sessionId": CLAUDE},
            *more,
        ],
    )


def codex_line(kind: str, payload: Mapping[str, Any], at: str = AT) -> dict[str, Any]:
    """A record of a rollout."""
    return {"timestamp": at, "type": kind, "payload": payload}


def codex_tokens(whole: int, *, at: str = AT) -> dict[str, Any]:
    """A token count: 60 read, 40 of a cache, 20 written; `whole` is the sum of the session."""
    last = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 20,
            "total_tokens": 120}  # fmt: skip
    info = {"total_token_usage": {"total_tokens": whole}, "last_token_usage": last}
    return codex_line("event_msg", {"type": "token_count", "info": info}, at)


def codex_file(home: Path, *more: object, cwd: str = "/srv/bakery") -> Path:
    """A rollout of Codex, and what follows."""
    head = {
        "id": CODEX, "timestamp": AT, "cwd": cwd, "originator": "test", "cli_version": "1",
        "source": "cli", "git": {"branch": "main"},
    }  # fmt: skip
    prompt = {"type": "message", "role": "user",
              "content": [{"type": "input_text", "text": "Bake bread"}]}  # fmt: skip
    answer = {"type": "message", "role": "assistant",
              "content": [{"type": "output_text", "text": "It is baked."}]}  # fmt: skip
    day = home / ".codex" / "sessions" / "2026" / "11" / "21"
    return write_lines(
        day / f"rollout-2026-11-21T10-00-00-{CODEX}.jsonl",
        [
            codex_line("session_meta", head),
            codex_line("turn_context", {"cwd": cwd, "model": "codex-test-1"}),
            codex_line("response_item", prompt),
            codex_line("response_item", answer),
            # The same count again, with other limits.
            codex_tokens(120),
            codex_tokens(120),
            *more,
        ],
    )


def detect(records: Iterable[dict[str, Any]]) -> type[ForeignTranscript] | None:
    """The format that the first records of a file show, None if none does."""
    detector = Detector()
    any(map(detector.feed, records))
    return detector.finish()

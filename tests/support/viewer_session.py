"""A session in which everything that the viewer shows has happened."""

import json
import struct
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import steno

TURNS = 6

_ANSWER = """I read the file first.

| case | result |
|---|---|
| `2026-02-29` | *fails* |

```python
def parse(text: str) -> date:
    # 2026 is no leap year
    return date.fromisoformat(text)
```

- the test is right
- the parser is **wrong**

> See the [calendar](https://example.org/).
"""
_THOUGHT = (
    "The user wants the tests to pass. I should look at the file first, then run the tests, and"
    " then decide."
)


def picture(width: int = 320, height: int = 120) -> str:
    """A picture as a data URL: a field of colour that changes from side to side."""
    rows = b"".join(
        b"\0" + b"".join(bytes((40 + x * 200 // width, 90, 160)) for x in range(width))
        for _ in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )
    return f"data:image/png;base64,{b64encode(data).decode()}"


def write_session(root: Path, name: str) -> None:
    """Write the session, a fork of it, and some small ones, with two clients."""
    with (
        steno.connect_sync(root, name="planner") as client,
        steno.connect_sync(root, name="worker") as other,
    ):
        session, peer = client.open(name), other.open(name)
        session.write_system_prompt("You are a careful engineer.")
        session.describe(title="Repair the parser of dates", labels=["urgent", "parser"])
        for turn in range(TURNS):
            _write_turn(session, peer, turn)
        _rewrite(session, name)
        for small, title in (("docs", "Write the guide"), ("night-run", "Nightly evaluation")):
            made = client.open(small, follow=False)
            made.append_message(_user("hello"))
            made.update_token_count(120)
            made.describe(title=title)
        old = client.open("old/trial", follow=False)
        old.append_message(_user("hello"))
        old.describe(archived=True)


def _write_turn(session: steno.BlockingSession, peer: steno.BlockingSession, turn: int) -> None:
    call_id = f"call_{turn}"
    arguments = json.dumps({"command": "pytest -q tests/test_dates.py", "timeout": 60})
    call = {
        "type": "function",
        "id": call_id,
        "function": {"name": "Shell", "arguments": arguments},
    }
    session.append_wire("TurnBegin", {"user_input": f"Step {turn}: look at dates.py"})
    session.checkpoint()
    session.append_message(_user(f"Step {turn}: please look at **dates.py** and run `pytest`."))
    peer.append_message(
        {
            "role": "assistant",
            "content": [{"type": "think", "think": _THOUGHT}, {"type": "text", "text": _ANSWER}],
            "tool_calls": [call],
        }
    )
    peer.append_wire("ToolCall", call)
    if turn == 2:
        peer.append_wire("ApprovalRequest", {"tool_call_id": call_id, "action": "run command"})
    output = "\n".join(f"tests/test_dates.py::test_{number} PASSED" for number in range(30))
    peer.append_message({"role": "tool", "tool_call_id": call_id, "content": output})
    result = {"is_error": turn == 3, "output": "30 passed"}
    peer.append_wire("ToolResult", {"tool_call_id": call_id, "return_value": result})
    if turn == 3:
        peer.append_wire("StepRetry", {"n": 2, "why": "overloaded"})
    session.update_token_count(2000 + 1500 * turn)
    session.append_wire("TurnEnd", {}, durability="synced")


def _rewrite(session: steno.BlockingSession, name: str) -> None:
    session.revert_to(4, why="wrong turn")
    session.append_message(_user("Once more, from checkpoint 4."))
    session.checkpoint()
    session.append_message({"role": "assistant", "content": "All right."})
    session.update_token_count(7000)
    mail = session.send_dmail(2, "Do not trust the cache.")
    session.deliver_dmail(mail.id)
    session.append_message({"role": "assistant", "content": "I know now that the cache lies."})
    session.update_token_count(4100)
    session.fork(f"{name}-fork", checkpoint=1)
    image = {"type": "image_url", "image_url": {"url": picture()}}
    question = {"type": "text", "text": "What is in this picture?"}
    session.append_message({"role": "user", "content": [question, image]})
    session.append_message({"role": "assistant", "content": "A field that turns from blue to red."})
    session.compact(lambda _: "The parser fails on leap days; the cache lies.", preserve=2)
    session.update_token_count(900)
    session.append_message(_user("Go on."))


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}

"""A realistic history for pictures: sessions of several agents, and writers that go on.

The history has titles, tool calls, Markdown, checkpoints, a revert, and sessions of other days.
"""

import json
import multiprocessing
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import steno
from steno_protocol import paths

_DAY_S: Final = 86_400
_WORK_DIR: Final = "kimi/9f86d081884c7d659a2feaa0c55ad015"

_PLAN: Final = """The tests fail since the password change ends **all** sessions of a user:

1. `login` writes the new hash first,
2. `end_sessions` then ends the session that has *just* begun.

| case | before | after |
|---|---|---|
| login | ok | ok |
| change, then login | **401** | ok |
"""

_PATCH: Final = """I end the older sessions only:

```python
def end_sessions(user: User, since: datetime) -> int:
    # The session of this request began later.
    return sessions.delete(user=user, began_before=since)
```
"""

_OTHERS: Final = (
    (f"{_WORK_DIR}/0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11", "Search for the slow query", 84, 0.02),
    (f"{_WORK_DIR}/0199f1d7-5b1e-7a90-8000-3d1c5e9b7a12", "Read the crash of Monday", 31, 0.2),
    ("release", "Release notes of 0.2", 46, 1.2),
    ("docs/tour", "Write the guided tour", 120, 2.4),
    ("bench/nightly", "Nightly evaluation", 412, 9.0),
    ("old/spike", "", 12, 45.0),
)
"""The other sessions: id, title, number of messages, and days since the last of them."""

_WRITERS: Final = (
    ("fix-login", "coder", 0.01, 900),
    (_OTHERS[0][0], "searcher", 0.03, 2500),
    ("bench/nightly", "evaluator", 0.004, 200),
    ("docs/tour", "writer", 0.12, 700),
    ("release", "planner", 0.6, 300),
)
"""The agents that go on writing: session, name, mean pause in seconds, most bytes of a message."""


def write_history(root: Path) -> None:
    """Write the sessions of a root, and leave it without a daemon."""
    with (
        steno.connect_sync(root, name="planner") as client,
        steno.connect_sync(root, name="coder") as coder,
    ):
        _write_login(client, coder)
        for name, title, messages, _ in _OTHERS:
            _write_other(client, name, title, messages)
        client.drain()
    now = time.time()
    for name, _, _, days in _OTHERS:
        file = root / paths.SESSIONS / name / paths.CONTEXT
        os.utime(file, (now - days * _DAY_S, now - days * _DAY_S))


def _write_login(client: steno.BlockingClient, coder: steno.BlockingClient) -> None:
    session, peer = client.open("fix-login"), coder.open("fix-login")
    session.describe(title="Fix the login after a password change", labels=["auth"])
    session.write_system_prompt("You are a careful engineer.")
    session.append_message(_user("The login fails after a password change. Please find out why."))
    session.checkpoint()
    peer.append_message(_calling("call_1", "Shell", {"command": "pytest -q tests/test_login.py"}))
    output = "FAILED tests/test_login.py::test_login_after_change - 401\n1 failed, 11 passed"
    peer.append_message({"role": "tool", "tool_call_id": "call_1", "content": output})
    peer.append_message({"role": "assistant", "content": _PLAN})
    session.update_token_count(3120)
    checkpoint = session.checkpoint().checkpoint_id
    peer.append_message({"role": "assistant", "content": "I delete the test, which is too strict."})
    session.revert_to(checkpoint or 0, why="the test is right")
    session.append_message(_user("The test is right: change the code."))
    peer.append_message({"role": "assistant", "content": _PATCH})
    peer.append_message(_calling("call_2", "Shell", {"command": "pytest -q tests/test_login.py"}))
    peer.append_message({"role": "tool", "tool_call_id": "call_2", "content": "12 passed"})
    session.append_message({"role": "assistant", "content": "Done: all **12** tests pass."})
    session.update_token_count(5480)


def _write_other(client: steno.BlockingClient, name: str, title: str, messages: int) -> None:
    chosen = random.Random(name)
    session = client.open(name, follow=False)
    for number in range(messages):
        role = ("user", "assistant")[number % 2]
        session.append_message({"role": role, "content": "x" * chosen.randint(40, 4000)})
    if title:
        session.describe(title=title)


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _calling(call: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    calls = [{"type": "function", "id": call, "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


@contextmanager
def writing(root: Path) -> Iterator[None]:
    """Agents, each in a process of its own, that append until the block ends."""
    spawn = multiprocessing.get_context("spawn")
    is_over = spawn.Event()
    agents = [
        spawn.Process(target=_write_on, args=(root, is_over, *each), daemon=True)
        for each in _WRITERS
    ]
    for agent in agents:
        agent.start()
    try:
        yield
    finally:
        is_over.set()
        for agent in agents:
            agent.join()


def _write_on(
    root: Path, is_over: Event, name: str, agent: str, pause_s: float, most_bytes: int
) -> None:
    chosen = random.Random(agent)
    with steno.connect_sync(root, name=agent, spawn=False) as client:
        session = client.open(name)
        while not is_over.wait(chosen.expovariate(1 / pause_s)):
            session.append_message(_user("x" * chosen.randint(20, most_bytes)))


def write_turns(file: Path, messages: int) -> None:
    """Write a file of messages for `steno append`."""
    chosen = random.Random(messages)
    with file.open("w") as lines:
        for number in range(messages):
            text = f"turn {number} " + "x" * chosen.randint(40, 400)
            lines.write(json.dumps(_user(text)) + "\n")

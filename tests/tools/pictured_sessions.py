"""A realistic history for pictures: sessions of several agents, and writers that go on.

The history has titles, tool calls, Markdown, checkpoints, a revert, and sessions of other days.
"""

import json
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any, Final

import steno
from steno_protocol import paths
from support.command import Steno

_DAY_S: Final = 86_400
_WAIT_S: Final = 60.0
_LOGIN_AGE_S: Final = 150.0
_LOGIN_TOOK_S: Final = 480.0
"""How long ago the session `fix-login` ended, and how long it took."""

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

_COUNTS: Final = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"
)  # fmt: skip

_SPENT: Final = (
    ("claude-sonnet-4-5", 0, (18_400, 912_000, 40_100, 21_300)),
    ("claude-sonnet-4-5", 1, (22_900, 1_480_000, 61_700, 34_800)),
    ("claude-haiku-4-5", 1, (9_300, 210_000, 12_000, 6_100)),
    ("claude-sonnet-4-5", 2, (11_200, 604_000, 25_900, 14_600)),
)
"""What imported programs counted: model, days ago, and tokens."""

_PRICES: Final = """currency = "USD"

[models."claude-sonnet-*"]
input = 3.00
cache_read = 0.30
cache_write = 3.75
output = 15.00

[models."claude-haiku-*"]
input = 1.00
cache_read = 0.10
cache_write = 1.25
output = 5.00
"""

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
    ages = {"fix-login": _LOGIN_AGE_S / _DAY_S, **{name: days for name, _, _, days in _OTHERS}}
    now = time.time()
    for name, days in ages.items():
        file = root / paths.SESSIONS / name / paths.CONTEXT
        os.utime(file, (now - days * _DAY_S, now - days * _DAY_S))


def write_spending(root: Path) -> None:
    """Write a root with imported transcripts whose models have prices, and end its daemon."""
    projects = root.parent / "projects" / "bakery"
    projects.mkdir(parents=True)
    for number, (model, days, counted) in enumerate(_SPENT):
        at = time.strftime("%Y-%m-%dT10:00:00.000Z", time.gmtime(time.time() - days * _DAY_S))
        session = f"0199f1c2-5b1e-4a90-8000-3d1c5e9b7a{number:02}"
        common = {"sessionId": session, "timestamp": at, "cwd": "/srv/bakery", "version": "2.0"}
        usage = dict(zip(_COUNTS, counted, strict=True))
        answer = {"id": f"m{number}", "role": "assistant", "model": model, "usage": usage}
        asked = {"role": "user", "content": "Go on."}
        nodes = (
            {"type": "user", "uuid": "u", "parentUuid": None, "message": asked},
            {"type": "assistant", "uuid": "a", "parentUuid": "u",
             "message": {**answer, "content": [{"type": "text", "text": "Done."}]}},
        )  # fmt: skip
        lines = (json.dumps({**node, **common}) + "\n" for node in nodes)
        (projects / f"{session}.jsonl").write_text("".join(lines))
    steno = Steno(root)
    assert steno("import", str(projects.parent)).code == 0
    (root / "prices.toml").write_text(_PRICES)
    steno("stop")


def _write_login(client: steno.BlockingClient, coder: steno.BlockingClient) -> None:
    """Write the session that a picture shows as a conversation."""
    session, peer = client.open("fix-login"), coder.open("fix-login")
    keys = _keys(time.time() - _LOGIN_AGE_S - _LOGIN_TOOK_S)
    session.describe(title="Fix the failing login", labels=["auth"])
    session.write_system_prompt("You are a careful engineer.", key=next(keys))
    question = "The login fails after a password change. Please find out why."
    session.append_message(_user(question), key=next(keys))
    session.checkpoint(key=next(keys))
    peer.append_message(_calling("call_1", "I run the tests first."), key=next(keys))
    output = "FAILED tests/test_login.py::test_login_after_change - 401\n1 failed, 11 passed"
    peer.append_message(_result("call_1", output), key=next(keys))
    peer.append_message(_assistant(_PLAN), key=next(keys))
    session.update_token_count(3120, key=next(keys))
    checkpoint = session.checkpoint(key=next(keys)).checkpoint_id
    peer.append_message(_assistant("I delete the test, which is too strict."), key=next(keys))
    session.revert_to(checkpoint or 0, why="the test is right", key=next(keys))
    session.append_message(_user("The test is right: change the code."), key=next(keys))
    peer.append_message(_assistant(_PATCH), key=next(keys))
    peer.append_message(_calling("call_2", "Once more:"), key=next(keys))
    peer.append_message(_result("call_2", "12 passed"), key=next(keys))
    peer.append_message(_assistant("Done: all **12** tests pass."), key=next(keys))
    session.update_token_count(5480, key=next(keys))


def _keys(at: float) -> Iterator[str]:
    """Idempotency keys that contain times, from `at` on, as agents need them for their work."""
    chosen = random.Random(0)
    while True:
        digits = f"{int(at * 1000):012x}"
        yield f"{digits[:8]}-{digits[8:]}-7000-8000-{chosen.getrandbits(48):012x}"
        at += chosen.uniform(2, 2 * _LOGIN_TOOK_S / 16 - 2)


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


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text.strip()}


def _calling(call: str, text: str) -> dict[str, Any]:
    arguments = json.dumps({"command": "pytest -q tests/test_login.py"})
    function = {"name": "Shell", "arguments": arguments}
    return {
        **_assistant(text),
        "tool_calls": [{"type": "function", "id": call, "function": function}],
    }


def _result(call: str, output: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": output}


@contextmanager
def writing(root: Path, agents: int) -> Iterator[None]:
    """So many agents, each in a process of its own, that append until the block ends."""
    spawn = multiprocessing.get_context("spawn")
    is_over, ready = spawn.Event(), spawn.Barrier(agents + 1)
    processes = [
        spawn.Process(target=_write_on, args=(root, ready, is_over, *each), daemon=True)
        for each in _WRITERS[:agents]
    ]
    for process in processes:
        process.start()
    ready.wait(_WAIT_S)
    try:
        yield
    finally:
        is_over.set()
        for process in processes:
            process.join()


def _write_on(
    root: Path, ready: Barrier, is_over: Event, name: str, agent: str, pause_s: float, most: int
) -> None:
    chosen = random.Random(agent)
    with steno.connect_sync(root, name=agent, spawn=False) as client:
        session = client.open(name)
        session.append_message(_user("go on"))
        ready.wait(_WAIT_S)
        while not is_over.wait(chosen.expovariate(1 / pause_s)):
            session.append_message(_user("x" * chosen.randint(20, most)))


def write_turns(file: Path, messages: int) -> None:
    """Write a file of messages for `steno append`."""
    chosen = random.Random(messages)
    with file.open("w") as lines:
        for number in range(messages):
            text = f"turn {number} " + "x" * chosen.randint(40, 400)
            lines.write(json.dumps(_user(text)) + "\n")

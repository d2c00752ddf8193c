"""An agent process of the demo: appends its turns, and prints each acknowledgement.

`python -m steno.cli.demo.agent ROOT SESSION NAME TURNS`: says `ready` on stdout, waits for a line
on stdin, then prints one `Acked` document a line. Before its last turn it waits for another line:
an agent that is done would start no new daemon.
"""

import sys
from typing import Any

import msgspec

from steno import connect_sync
from steno.cli.demo.proof import Acked

_BATCH_EVERY = 5
"""Each fifth turn is a batch of two records: a tool call and its result."""


def main(root: str, session_id: str, name: str, turns: int) -> None:
    """Append `turns` turns, one after the other, each with a key of its own."""
    with connect_sync(root, name=name) as client:
        session = client.open(session_id, follow=False, create=False)
        _print(b"ready")
        sys.stdin.readline()
        for number in range(turns):
            if number == turns - 1:
                sys.stdin.readline()
            records = turn(name, number)
            key = f"{name}-{number}"
            ack = session.append_message(records, key=key)
            acked = Acked(
                writer=name,
                key=key,
                first=str(ack.first),
                last=str(ack.last),
                duplicate=ack.duplicate,
                sent=records,
            )
            _print(msgspec.json.encode(acked))


def turn(name: str, number: int) -> list[dict[str, Any]]:
    """What an agent says in one turn."""
    if number % _BATCH_EVERY != _BATCH_EVERY - 1:
        role = "user" if number % _BATCH_EVERY == 0 else "assistant"
        return [{"role": role, "content": f"{name} in its turn {number}"}]
    call_id = f"call-{name}-{number}"
    function = {"name": "count_turns", "arguments": f'{{"agent":"{name}"}}'}
    call = {"type": "function", "id": call_id, "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": str(number + 1), "tool_call_id": call_id},
    ]


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

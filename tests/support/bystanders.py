"""What writes beside a fork or a deletion; run as `python -m support.bystanders ROOT SESSION`.

It prints one JSON line per acknowledged message, and ends when the session is there no more or
when its standard input ends.
"""

import json
import os
import select
import sys

import steno


def append(session: "steno.BlockingSession") -> None:
    """Append events and messages in turn."""
    number = 0
    while not _is_over():
        session.append_wire("TurnBegin", {"user_input": f"{os.getpid()} {number}"})
        ack = session.append_message({"role": "user", "content": f"{os.getpid()} {number}"})
        print(json.dumps({"key": ack.key, "first": str(ack.first)}), flush=True)
        number += 1


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    root, name = sys.argv[1:]
    with steno.connect_sync(root, name="bystander") as client:
        try:
            append(client.open(name, follow=False))
        except steno.NotFound:
            print(json.dumps({"gone": True}), flush=True)

"""What the processes of the race tests do; run as `python -m support.racers ROLE ROOT COUNT`.

Each prints one JSON line per acknowledged command, so that the test knows what was promised.
"""

import json
import sys

import steno


def append(session: "steno.BlockingSession", count: int) -> None:
    """Append messages, each with a key of its own."""
    for number in range(count):
        ack = session.append_message({"role": "user", "content": f"message {number}"})
        print(json.dumps({"key": ack.key, "first": str(ack.first)}), flush=True)


def checkpoint(session: "steno.BlockingSession", count: int) -> None:
    """Make checkpoints."""
    for _ in range(count):
        ack = session.checkpoint()
        print(json.dumps({"key": ack.key, "checkpoint": ack.checkpoint_id}), flush=True)


def revert(session: "steno.BlockingSession", count: int) -> None:
    """Make a checkpoint and revert to it, whatever the others wrote meanwhile."""
    for _ in range(count):
        made = session.checkpoint()
        try:
            ack = session.revert_to(made.checkpoint_id or 0)
        except steno.NotFound:
            # Another revert was faster and took the checkpoint with it.
            continue
        print(json.dumps({"key": ack.key, "rotated": str(ack.rotated)}), flush=True)


ROLES = {"append": append, "checkpoint": checkpoint, "revert": revert}


if __name__ == "__main__":
    role, root, count = sys.argv[1:]
    with steno.connect_sync(root, name=role) as client:
        ROLES[role](client.open("race", follow=False), int(count))

"""Processes of the races: `python -m support.racers ROLE ROOT COUNT`.

Each prints one JSON line per acknowledged command, so that the test knows what was promised.
"""

import asyncio
import json
import select
import sys
import time

import steno


def wait_for_jitter(seconds: float) -> None:
    """Let a random time pass, in a race against a clock, where no fact can be waited for."""
    time.sleep(seconds)


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
    """Make a checkpoint and revert to it, beside the writes of others."""
    for _ in range(count):
        made = session.checkpoint()
        try:
            ack = session.revert_to(made.checkpoint_id or 0)
        except steno.NotFound:
            # Another revert was faster and took the checkpoint with it.
            continue
        print(json.dumps({"key": ack.key, "rotated": str(ack.rotated)}), flush=True)


def work(session: "steno.BlockingSession", count: int) -> None:
    """Write as an agent does, `count` times, or until stdin ends."""
    for number in range(count):
        if select.select([sys.stdin], [], [], 0)[0]:
            return
        if number % 7 == 6:
            session.update_token_count(number)
        if number % 5 == 4:
            ack = session.checkpoint(add_user_message=number % 2 == 0)
            print(json.dumps({"key": ack.key, "checkpoint": ack.checkpoint_id}), flush=True)
        ack = session.append_message({"role": "user", "content": f"message {number}"})
        print(json.dumps({"key": ack.key, "first": str(ack.first)}), flush=True)


def work_async(session: "steno.BlockingSession", count: int) -> None:
    """Append by the async client, `count` times, or until stdin ends."""

    async def main() -> None:
        async with steno.connect(sys.argv[2], name="work_async") as client:
            mine = await client.open(session.id, follow=False)
            for number in range(count):
                if select.select([sys.stdin], [], [], 0)[0]:
                    return
                ack = await mine.append_message({"role": "user", "content": f"message {number}"})
                print(json.dumps({"key": ack.key, "first": str(ack.first)}), flush=True)

    asyncio.run(main())


def begin_compaction(session: "steno.BlockingSession", count: int) -> None:
    """Begin a compaction that is good for `count` ms, say so, and wait for the end."""
    begun = session.compact(_hang, preserve=2, lease=count / 1000)
    print(json.dumps({"compacted": begun is not None}), flush=True)


def _hang(_: object) -> str:
    print(json.dumps({"asked": True}), flush=True)
    sys.stdin.read()
    return "too late"


def stream(session: "steno.BlockingSession", count: int) -> None:
    """Append batches of two records to a stream."""
    race = session.stream("race")
    for number in range(count):
        ack = race.append([{"n": number, "part": part} for part in range(2)])
        print(json.dumps({"key": ack.key, "first": str(ack.first)}), flush=True)


ROLES = {
    "stream": stream,
    "append": append,
    "checkpoint": checkpoint,
    "revert": revert,
    "work": work,
    "work_async": work_async,
    "begin_compaction": begin_compaction,
}


if __name__ == "__main__":
    role, root, count = sys.argv[1:]
    with steno.connect_sync(root, name=role) as client:
        ROLES[role](client.open("race", follow=False), int(count))

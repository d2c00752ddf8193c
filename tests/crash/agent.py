"""A client process that sends commands under keys and reports what came of each.

    python -m crash.agent        an order on stdin; facts on stdout until stdin ends

A command is sent again under its key until its outcome is known, to whichever daemon answers. Where
every attempt was refused as not applied, the agent sometimes takes the daemons at their word, and
reports that the command is absent.
"""

import random
import sys
import threading
import time
from contextlib import suppress

import msgspec

import steno
from crash.facts import Fact, Order, record_name
from support.pacing import wait_for_s

REQUEST_S = 4.0
"""Time of one attempt: less than a daemon stays stopped, so that the other one is tried."""

RETRY_S = 0.05
END_S = 60.0
"""Time in which the last command has to be decided after the end was asked for."""

NOTES = "notes"
LARGE_RECORDS = 5
LARGE_BYTES = 400_000
"""Together more than one message of the journal."""

KINDS = {
    "append": 60,
    "batch": 14,
    "wire": 8,
    "stream": 8,
    "checkpoint": 8,
    "revert": 2,
    "large": 0.05,
}
"""How often each kind of command is chosen."""

FILES = {"wire": "wire.jsonl", "stream": f"stream-{NOTES}.jsonl"}


class Agent:
    """One client, and what it does.

    Args:
        order: what to do.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._random = random.Random(order.seed)
        self._clients: dict[str, steno.BlockingClient] = {}
        self._sessions: dict[tuple[str, str], steno.BlockingSession] = {}
        self._owners: dict[str, str] = {}
        self._checkpoints: dict[str, list[int]] = {each: [] for each in order.sessions}
        self._is_ending = threading.Event()
        self._end_s = 0.0

    def run(self) -> None:
        """Send commands until stdin ends."""
        threading.Thread(target=self._watch, daemon=True).start()
        number = 0
        while not self._is_ending.wait(self._order.pause_s):
            number += 1
            fact = self._command(number)
            print(msgspec.json.encode(fact).decode(), flush=True)

    def _watch(self) -> None:
        sys.stdin.read()
        self._end_s = time.monotonic() + END_S
        self._is_ending.set()

    def _command(self, number: int) -> Fact:
        session = self._random.choice(self._order.sessions)
        (kind,) = self._random.choices(list(KINDS), list(KINDS.values()))
        checkpoint = None
        if kind == "revert":
            if self._checkpoints[session]:
                checkpoint = self._random.choice(self._checkpoints[session])
            else:
                kind = "checkpoint"
        key = f"{self._order.seed}-{self._order.agent}-{number}"
        takes_word = self._random.random() < 0.5
        attempts, errors, is_doubtful = 0, list[str](), False
        while True:
            attempts += 1
            endpoint = self._owners.setdefault(session, self._random.choice(self._order.endpoints))
            try:
                ack = self._send(endpoint, session, kind, key, number, checkpoint)
            except steno.StenoError as error:
                is_doubtful |= error.outcome is steno.Outcome.UNKNOWN
                text = f"{type(error).__name__}: {error.message}"
                if text not in errors:
                    errors.append(text)
                outcome = self._refused(error, session, is_doubtful, takes_word)
            else:
                outcome = "ack"
                if kind == "checkpoint" and ack.checkpoint_id is not None:
                    self._checkpoints[session].append(ack.checkpoint_id)
                    checkpoint = ack.checkpoint_id
                return self._fact(
                    number, session, kind, outcome, attempts, errors, endpoint, checkpoint,
                    (ack.first.generation, ack.first.line), is_duplicate=ack.duplicate,
                )  # fmt: skip
            if outcome:
                return self._fact(
                    number, session, kind, outcome, attempts, errors, endpoint, checkpoint
                )
            wait_for_s(RETRY_S)

    def _refused(
        self, error: steno.StenoError, session: str, is_doubtful: bool, takes_word: bool
    ) -> str:
        """Choose the next daemon; returns what came of the command, empty if it goes on."""
        if isinstance(error, steno.NotFound) and "checkpoint" in error.message:
            # Another agent went back to before the checkpoint.
            self._checkpoints[session].clear()
            return "unknown" if is_doubtful else "absent"
        others = [each for each in self._order.endpoints if each != self._owners[session]]
        named = error.endpoint if isinstance(error, steno.Held) else None
        self._owners[session] = named or self._random.choice(others)
        if self._end_s and time.monotonic() > self._end_s:
            return "unknown" if is_doubtful else "absent"
        is_refusal = isinstance(error, steno.StorageFailed)
        return "absent" if is_refusal and takes_word and not is_doubtful else ""

    def _fact(
        self,
        number: int,
        session: str,
        kind: str,
        outcome: str,
        attempts: int,
        errors: list[str],
        endpoint: str,
        checkpoint: int | None,
        first: tuple[int, int] = (0, 0),
        *,
        is_duplicate: bool = False,
    ) -> Fact:
        return Fact(
            at_s=time.monotonic(), agent=self._order.agent, number=number, kind=kind,
            session=session, file=FILES.get(kind, "context.jsonl"), outcome=outcome,
            records=self._count(kind, number), first=first, checkpoint=checkpoint,
            attempts=attempts, is_duplicate=is_duplicate, endpoint=endpoint, errors=tuple(errors),
        )  # fmt: skip

    def _count(self, kind: str, number: int) -> int:
        if kind == "large":
            return LARGE_RECORDS
        return 2 + number % 6 if kind in {"batch", "stream"} else 1

    def _send(
        self, endpoint: str, session: str, kind: str, key: str, number: int, checkpoint: int | None
    ) -> steno.Ack:
        opened = self._session(endpoint, session)
        name = record_name(self._order.agent, number)
        filler = "x" * LARGE_BYTES if kind == "large" else ""
        texts = [f"{name}{each}:{filler}" for each in range(self._count(kind, number))]
        match kind:
            case "wire":
                # A repeat has the same records.
                return opened.append_wire(
                    "Note", {"text": texts[0]}, float(number), key=key, durability="synced"
                )
            case "stream":
                return opened.stream(NOTES).append([{"content": text} for text in texts], key=key)
            case "checkpoint":
                return opened.checkpoint(key=key)
            case "revert":
                assert checkpoint is not None
                return opened.revert_to(checkpoint, key=key)
            case _:
                messages = [{"role": "user", "content": text} for text in texts]
                return opened.append_message(messages, key=key)

    def _session(self, endpoint: str, session: str) -> steno.BlockingSession:
        client = self._clients.get(endpoint)
        if client is None:
            name = f"agent-{self._order.agent}"
            client = steno.connect_sync(endpoint=endpoint, name=name, timeout=REQUEST_S)
            self._clients[endpoint] = client
        found = self._sessions.get((endpoint, session))
        if found is None:
            found = client.open(session, follow=False)
            self._sessions[endpoint, session] = found
        return found


def main() -> None:
    """Work until stdin ends."""
    order = msgspec.json.decode(sys.stdin.readline(), type=Order)
    with suppress(BrokenPipeError):
        Agent(order).run()


if __name__ == "__main__":
    main()

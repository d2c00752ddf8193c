"""Generated messages through a daemon's socket; `tests/fuzz` gives them to its router."""

import os
import random
from pathlib import Path

import steno
from fuzz.frames import check_content, messages
from fuzz.source import Source
from steno_protocol.commands import Drain
from support.daemon_in_thread import DaemonInThread
from support.raw_peer import RawPeer

MESSAGES = int(os.environ.get("STENO_FUZZ_MESSAGES", "600"))


def test_every_generated_message_gets_a_reply_and_the_daemon_continues(
    root: Path, daemon: DaemonInThread, seed: int
) -> None:
    chance = random.Random(seed)
    with steno.connect_sync(root, spawn=False, name="keeper") as client:
        peer = RawPeer(root)
        sent = 0
        while sent < MESSAGES:
            for each in messages(Source(chance.randbytes(900))):
                if any(isinstance(command, Drain) for command in each.commands):
                    continue
                sent += 1
                peer.send(*each.frames)
                for name, answer in peer.answers(each.answered).items():
                    assert answer.get("code") != "internal", (name, each.frames)
        peer.close()
        session = client.open("keeper", follow=False)
        session.append_message({"role": "user", "content": "still here"})
    assert not any("internal" in line for line in daemon.log)
    for file in (root / "sessions").rglob("*.jsonl"):
        check_content(file.name, file.read_bytes())

"""The demo as it happens: agents write, a follower follows, the daemon dies and comes back."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from steno._connect.lock_holder import is_free
from steno._sync.client import BlockingClient, connect_sync
from steno.cli.demo.proof import Acked, Seen
from steno.cli.demo.stage import Player, Stage
from steno_protocol import limits
from steno_protocol.errors import Exists, StenoError

_LAST_KEY: Final = "the-end"
_DIRECTOR: Final = "director"

_acked = msgspec.json.Decoder(Acked)
_seen = msgspec.json.Decoder(Seen)


@dataclass(slots=True)
class Evidence:
    """What happened, as far as the agents reported it.

    Attributes:
        root: the folder that the daemon owned.
        session: the id of the session.
        file: the session's file.
        acked: every acknowledgement; those of one agent in the order in which it sent.
        seen: what the follower saw, in order.
        killed_pid: the daemon that was killed.
        next_pid: the one that came after it.
        away_s: seconds without a daemon that answers.
    """

    root: Path
    session: str
    file: Path
    acked: list[Acked] = field(default_factory=list[Acked])
    seen: list[Seen] = field(default_factory=list[Seen])
    killed_pid: int = 0
    next_pid: int = 0
    away_s: float = 0.0


Watch = Callable[[str, Evidence], None]
"""Called with each phase (`agents`, `writing`, `killed`, `back`) and what is known by then."""


def run(root: Path, agents: int, turns: int, watch: Watch) -> Evidence:
    """Let it happen, and end the daemon; the session's file is left as it is.

    Raises:
        StenoError: it could not be carried out; no process is left behind.
    """
    with connect_sync(root, name=_DIRECTOR) as client:
        evidence = _new_session(client)
    # From here on only the agents may start a daemon: that is what is to be seen.
    with connect_sync(root, name=_DIRECTOR, spawn=False) as client:
        try:
            with Stage() as stage:
                _play(stage, client, evidence, agents, turns, watch)
        finally:
            _end_daemon(evidence.root)
    return evidence


def _end_daemon(root: Path) -> None:
    """Whatever went wrong, no daemon of the demo stays behind; one may be just starting."""
    deadline = time.monotonic() + limits.SPAWN_TIMEOUT_S
    while not is_free(root) and time.monotonic() < deadline:
        with (
            suppress(StenoError),
            connect_sync(root, spawn=False, timeout=limits.PROBE_TIMEOUT_S) as client,
        ):
            client.drain()
        time.sleep(limits.START_LOCK_POLL_S)


def _new_session(client: BlockingClient) -> Evidence:
    """A session that was not there before: `demo`, or `demo-2`, `demo-3`, ..."""
    number = 1
    while True:
        name = "demo" if number == 1 else f"demo-{number}"
        try:
            session = client.open(name, follow=False, exclusive=True)
        except Exists:
            number += 1
            continue
        return Evidence(Path(client.welcome.root), name, session.file_backend)


def _play(
    stage: Stage, client: BlockingClient, evidence: Evidence, agents: int, turns: int, watch: Watch
) -> None:
    place = (str(evidence.root), evidence.session)
    watch("agents", evidence)
    follower = stage.add(Player("follower", "demo.tailer", *place, _LAST_KEY))
    names = [f"agent-{number}" for number in range(1, agents + 1)]
    writers = [stage.add(Player(name, "demo.agent", *place, name, str(turns))) for name in names]
    stage.hear_until_ready()
    for writer in writers:
        writer.go()
    # No agent is done by then: each has its last turn still to come.
    half = agents * (turns - 1) // 2
    for player, line in stage.hear():
        if player is follower:
            evidence.seen.append(_seen.decode(line))
            continue
        evidence.acked.append(_acked.decode(line))
        watch("writing", evidence)
        if len(evidence.acked) == half:
            _kill(client, writers, evidence, watch)
        if len(evidence.acked) == agents * turns:
            evidence.acked.append(_say_the_end(client, evidence.session))


def _kill(
    client: BlockingClient, writers: Sequence[Player], evidence: Evidence, watch: Watch
) -> None:
    """Kill the daemon, let the agents come to their end, and wait until another one answers."""
    evidence.killed_pid = client.status().pid
    os.kill(evidence.killed_pid, signal.SIGKILL)
    killed_at = time.monotonic()
    watch("killed", evidence)
    for writer in writers:
        writer.go()
    evidence.next_pid = client.status().pid
    evidence.away_s = time.monotonic() - killed_at
    watch("back", evidence)


def _say_the_end(client: BlockingClient, session: str) -> Acked:
    sent = {"role": "system", "content": "the end"}
    ack = client.session(session).append_message(sent, key=_LAST_KEY)
    return Acked(
        writer=_DIRECTOR,
        key=_LAST_KEY,
        first=str(ack.first),
        last=str(ack.last),
        duplicate=ack.duplicate,
        sent=[sent],
    )

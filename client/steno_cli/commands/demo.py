"""`steno demo`: concurrent writers and a killed daemon, proved from the file."""

import os
import signal
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import anyio

from steno import Client, connect
from steno.local import is_free
from steno_cli.arguments import argument, between, command, keep_option
from steno_cli.command_limits import DEMO_PREFIX, DEMO_TIMEOUT_S
from steno_cli.connection import prepared_root, refuse_endpoint, root_of
from steno_cli.demo.agents import (
    Evidence,
    Made,
    apart_from_clusters,
    removed_after_failure,
    show_evidence,
    stop_daemon,
    write_session,
)
from steno_cli.demo.proofs import changes_of_writer
from steno_cli.render.output import Output
from steno_present.wording import count, number
from steno_protocol.errors import Exists, Held, Internal


@command(
    "demo",
    "Several processes write one session at once while another follows it, and the daemon is"
    " killed in the middle. The demo then proves from the file that every acknowledged record"
    " is there exactly once and in order. Without --root, it uses a temporary folder, which it"
    " removes if the proofs hold.",
    argument(
        "--agents", metavar="N", type=between(1, 32), default=4,
        help="number of processes (default: 4)",
    ),
    argument(
        "--turns", metavar="N", type=between(10, 100_000), default=300,
        help="turns of each process (default: 300)",
    ),
    keep_option,
    example="steno demo --agents 8",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Run the demo; fails unless every proof holds."""
    root = _root(options)
    made = Made(root if options.root is None else None, options.keep)
    apart = apart_from_clusters() if options.root is None else nullcontext()
    with removed_after_failure(made), apart:
        evidence = anyio.run(play, root, options.agents, options.turns, output)
    opening = _opening(evidence, options.agents)
    return show_evidence(evidence, options.agents, opening, output, made)


def _root(options: Namespace) -> Path:
    refuse_endpoint(options)
    if options.root is None:
        return Path(tempfile.mkdtemp(prefix=DEMO_PREFIX)).resolve()
    prepared_root(options)
    root = root_of(options)
    if not is_free(root):
        raise Held(
            f"a daemon runs on {root}, and the demo would kill it: stop it with `steno stop`, or"
            " leave --root out"
        )
    return root


def _opening(evidence: Evidence, agents: int) -> Iterator[str]:
    changes = changes_of_writer(evidence.file.read_bytes())
    yield (
        f"{count(agents, 'agent')} wrote {number(len(evidence.acked))} records into one session at"
        f" once (the writer changes {count(changes, 'time')})."
    )
    yield (
        f"The daemon {evidence.killed_pid} was killed in the middle; {evidence.next_pid} answered"
        f" {evidence.away_s:.2f} s later."
    )
    if evidence.repeated:
        yield (
            f"{count(evidence.repeated, 'command')} had been written but not answered: sent again,"
            " answered, and not written again."
        )


async def play(root: Path, agents: int, turns: int, output: Output) -> Evidence:
    """Run the demo and stop its daemon; no process is left.

    Raises:
        StenoError: it could not be carried out.
    """
    async with connect(root, name="demo") as client:
        evidence = await _new_session(client)
    # From here on only an agent can start a daemon: the demo shows that it does.
    async with connect(root, name="demo", spawn=False) as client:
        try:
            with anyio.fail_after(DEMO_TIMEOUT_S):
                await write_session(
                    client,
                    evidence,
                    agents,
                    turns,
                    output,
                    partial(_kill, client, evidence, output),
                )
        except TimeoutError:
            raise Internal(f"the demo took longer than {DEMO_TIMEOUT_S:.0f} s") from None
        finally:
            with anyio.CancelScope(shield=True):
                await stop_daemon(evidence.root)
    return evidence


async def _new_session(client: Client) -> Evidence:
    """A new session: `demo`, or `demo-2`, `demo-3`, ..."""
    suffix = 1
    while True:
        name = "demo" if suffix == 1 else f"demo-{suffix}"
        try:
            session = await client.open(name, follow=False, exclusive=True)
        except Exists:
            suffix += 1
            continue
        # The file is ROOT/sessions/NAME/context.jsonl.
        return Evidence(session.file_backend.parents[2], name, session.file_backend)


async def _kill(client: Client, evidence: Evidence, output: Output, is_killed: anyio.Event) -> None:
    """Kill the daemon and wait until another one answers."""
    evidence.killed_pid = (await client.status()).pid
    os.kill(evidence.killed_pid, signal.SIGKILL)
    killed_at = anyio.current_time()
    is_killed.set()
    output.say(f"killed the daemon {evidence.killed_pid} with SIGKILL")
    evidence.next_pid = (await client.status()).pid
    evidence.away_s = anyio.current_time() - killed_at
    output.say(
        f"an agent started a new one, {evidence.next_pid}: it answers {evidence.away_s:.2f} s later"
    )

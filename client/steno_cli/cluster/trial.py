"""The trial of `steno cluster try`: a session survives its owner, proved from the file."""

import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import anyio

from steno import Client, connect
from steno.local import is_free, note_of
from steno_cli.cluster.nodes import running_nodes
from steno_cli.cluster.server_files import Plan, files_of
from steno_cli.command_limits import TRIAL_PREFIX, TRY_TIMEOUT_S
from steno_cli.daemon_control import write_request
from steno_cli.demo.agents import (
    Evidence,
    Made,
    apart_from_clusters,
    removed_after_failure,
    show_evidence,
    stop_daemon,
    write_session,
)
from steno_cli.demo.proofs import Acked, changes_of_writer
from steno_cli.render.output import Output
from steno_present.wording import count, number
from steno_protocol import paths
from steno_protocol.errors import Internal

_SERVERS: Final = 3
_SESSION: Final = "demo"
_NAME: Final = "demo"
_TAKEN_KEY: Final = "the-takeover"


def run_trial(agents: int, turns: int, output: Output, *, keep: bool) -> int:
    """Play a takeover and print its proofs; returns the exit code.

    Raises:
        BadRequest: nats-server or nats-py is not installed.
        StenoError: the trial could not be carried out; nothing of it is left.
    """
    folder = Path(tempfile.mkdtemp(prefix=TRIAL_PREFIX)).resolve()
    made = Made(folder, keep)
    with removed_after_failure(made), _ended_by_any_signal(), apart_from_clusters():
        evidence = anyio.run(_play, folder, agents, turns, output)
    _leave_a_plain_root(folder, evidence.root)
    return show_evidence(evidence, agents, _opening(evidence, agents), output, made)


@contextmanager
def _ended_by_any_signal() -> Generator[None]:
    """End as after Ctrl-C when the terminal is closed or the process is terminated."""

    def interrupt(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _play(folder: Path, agents: int, turns: int, output: Output) -> Evidence:
    """Run the trial; neither a server nor a daemon is left.

    Raises:
        StenoError: it could not be carried out.
    """
    owner, other = folder / "a", folder / "b"
    async with AsyncExitStack() as stack:
        plan = await stack.enter_async_context(running_nodes(folder / "nats", _SERVERS))
        output.say(f"{count(_SERVERS, 'server')} chose a leader: {', '.join(plan.servers)}")
        for root in (owner, other):
            _prepare(root, plan)
            stack.push_async_callback(_end_daemon, root)
        try:
            with anyio.fail_after(TRY_TIMEOUT_S):
                return await _write(owner, other, agents, turns, output)
        except TimeoutError:
            raise Internal(f"the trial took longer than {TRY_TIMEOUT_S:.0f} s") from None


def _prepare(root: Path, plan: Plan) -> None:
    root.mkdir(mode=0o700)
    (root / paths.CONFIG).write_text(files_of(plan)[paths.CONFIG])
    write_request(root, "create")


async def _write(owner: Path, other: Path, agents: int, turns: int, output: Output) -> Evidence:
    """Let one daemon own a session, and let agents write it through the other one."""
    async with connect(owner, name=_NAME) as client:
        await client.open(_SESSION, follow=False, exclusive=True)
        output.say(f"host a, {owner}, owns the session {_SESSION}")
    # Nobody starts a daemon on the killed host: the host is gone.
    async with (
        connect(owner, name=_NAME, spawn=False) as victim,
        connect(other, name=_NAME) as survivor,
    ):
        evidence = Evidence(other, _SESSION, other / paths.SESSIONS / _SESSION / paths.CONTEXT)
        accident = partial(_kill, victim, survivor, evidence, output)
        await write_session(survivor, evidence, agents, turns, output, accident)
    return evidence


async def _kill(
    victim: Client,
    survivor: Client,
    evidence: Evidence,
    output: Output,
    is_killed: anyio.Event,
) -> None:
    """Kill the owner, and wait until the other daemon acknowledges a record."""
    evidence.killed_pid = (await victim.status()).pid
    os.kill(evidence.killed_pid, signal.SIGKILL)
    killed_at = anyio.current_time()
    output.say(f"killed host a, the daemon {evidence.killed_pid}, with SIGKILL")
    sent = {"role": "system", "content": "host b took over"}
    ack = await survivor.session(evidence.session).append_message(sent, key=_TAKEN_KEY)
    evidence.away_s = anyio.current_time() - killed_at
    evidence.acked.append(Acked(_NAME, _TAKEN_KEY, str(ack.first), ack.duplicate, sent))
    evidence.next_pid = (await survivor.status()).pid
    is_killed.set()
    output.say(
        f"host b, the daemon {evidence.next_pid}, took over: it acknowledges"
        f" {evidence.away_s:.2f} s later"
    )


async def _end_daemon(root: Path) -> None:
    """End the daemon of a root, by force if it does not end by itself."""
    with anyio.CancelScope(shield=True):
        await stop_daemon(root)
        note = note_of(root)
        if note is not None and not is_free(root):
            with suppress(ProcessLookupError):
                os.kill(note.pid, signal.SIGKILL)


def _leave_a_plain_root(folder: Path, root: Path) -> None:
    """Keep the files of the surviving host, which `steno show` reads without a cluster."""
    (root / paths.CONFIG).unlink()
    for each in folder.iterdir():
        if each != root:
            shutil.rmtree(each, ignore_errors=True)


def _opening(evidence: Evidence, agents: int) -> Iterator[str]:
    changes = changes_of_writer(evidence.file.read_bytes())
    yield (
        f"{count(agents, 'agent')} on host b wrote {number(len(evidence.acked))} records into a"
        f" session of host a (the writer changes {count(changes, 'time')})."
    )
    yield (
        f"Host a was killed in the middle; host b took over, and acknowledged"
        f" {evidence.away_s:.2f} s later."
    )
    if evidence.repeated:
        yield (
            f"{count(evidence.repeated, 'command')} had reached the journal but had no answer: sent"
            " again to host b, answered, and not written again."
        )

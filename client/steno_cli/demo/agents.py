"""Agents that write one session at once: processes of the command, and what they saw.

Each agent is a `steno append` process that gets its next turn once the last one is acknowledged,
and the follower is a `steno tail -f` process.
"""

import json
import os
import shlex
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
import msgspec
from anyio.abc import ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

from steno import Client, connect
from steno.local import is_free, is_starting
from steno_cli.demo.proofs import Acked, Seen, prove
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.render.printed_commands import own_command
from steno_cli.render.progress import Progress
from steno_present.wording import count, number
from steno_protocol import limits
from steno_protocol.errors import Internal, StenoError

_CLUSTER_VARIABLES: Final = "STENO_REPLICATION_"
_LAST_KEY: Final = "the-end"
_LINE_BYTES_MAX: Final = 1 << 20
"""Longest line of a process, far more than a record of the demo."""


Accident = Callable[[anyio.Event], Awaitable[None]]
"""What happens in the middle; it sets the event once the agents may send their last turns."""


@dataclass(slots=True)
class Evidence:
    """The events of a demo.

    Attributes:
        root: the folder of the daemon.
        session: the id of the session.
        file: the session's file.
        acked: every acknowledgement; those of one agent in the order of its turns.
        seen: the records of the follower, in order.
        killed_pid: the daemon that was killed.
        next_pid: its successor.
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

    @property
    def repeated(self) -> int:
        """The commands that were written before the accident and answered after it."""
        return sum(each.duplicate for each in self.acked)


@dataclass(frozen=True, slots=True)
class Made:
    """The folder that a demo made; None if it was given one.

    Attributes:
        folder: the folder.
        is_wanted: the user wants to look at it afterwards.
    """

    folder: Path | None
    is_wanted: bool

    @property
    def is_kept(self) -> bool:
        """Whether it stays after a demo that has shown what it claims."""
        return self.folder is None or self.is_wanted

    def remove(self) -> None:
        """Remove the folder, of which no daemon runs any more."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def removed_after_failure(made: Made) -> Generator[None]:
    """Remove the folder if the block fails; the first error of a process is raised alone."""
    try:
        yield
    except BaseException as errors:
        made.remove()
        error = errors
        # The others follow from it.
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseException", error.exceptions[0])
        raise error from None


@contextmanager
def apart_from_clusters() -> Generator[None]:
    """Let daemons that are started in the block join no cluster that the environment names.

    Its sessions would otherwise lie among those of real users.
    """
    named = {name: os.environ[name] for name in os.environ if name.startswith(_CLUSTER_VARIABLES)}
    for name in named:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(named)


async def write_session(
    client: Client,
    evidence: Evidence,
    agents: int,
    turns: int,
    output: Output,
    accident: Accident,
) -> None:
    """Let agents write a session while a follower reads it and an accident happens.

    Args:
        client: appends the last record.
        evidence: names the session, and gets the acknowledgements and what the follower saw.
        agents: the number of agents.
        turns: the turns of each.
        output: of the command.
        accident: called once half of the turns are acknowledged.

    Raises:
        Internal: a process ended early.
        StenoError: the last record was refused.
    """
    total, is_half_done, is_killed = agents * turns, anyio.Event(), anyio.Event()
    output.say(f"{count(agents, 'agent')} and a follower use the daemon on {evidence.root}")

    async def write_turns(name: str) -> None:
        words = ("append", evidence.session, "--key", name)
        async with steno_process(evidence, name, *words) as (stdin, stdout):
            for turn_number in range(turns):
                if turn_number == turns - 1:
                    # An agent without an open turn would start no daemon.
                    await is_killed.wait()
                sent = turn(name, turn_number)
                await stdin.send(json.dumps(sent).encode() + b"\n")
                ack = json.loads(await _line(name, stdout))
                position, duplicate = ack["first"], ack["duplicate"]
                evidence.acked.append(Acked(name, ack["key"], position, duplicate, sent))
                progress.show(f"{number(len(evidence.acked))} of {number(total)} turns")
                if len(evidence.acked) == total // 2:
                    is_half_done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_follow, evidence)
        with Progress(output, "acknowledged") as progress:
            async with anyio.create_task_group() as writers:
                for each in range(1, agents + 1):
                    writers.start_soon(write_turns, f"agent-{each}")
                await is_half_done.wait()
                await accident(is_killed)
        output.say(f"{number(total)} of {number(total)} turns acknowledged")
        sent = {"role": "system", "content": "the end"}
        ack = await client.session(evidence.session).append_message(sent, key=_LAST_KEY)
        evidence.acked.append(Acked("demo", _LAST_KEY, str(ack.first), ack.duplicate, sent))


def turn(agent: str, turn_number: int) -> dict[str, Any]:
    """The record of one turn."""
    role = "assistant" if turn_number % 2 else "user"
    return {"role": role, "content": f"{agent} in its turn {turn_number}"}


async def _follow(evidence: Evidence) -> None:
    """Note what the follower prints, until the last record."""
    words = ("tail", evidence.session, "--after", "0:0", "-f")
    async with steno_process(evidence, "follower", *words) as (_, stdout):
        key = None
        while key != _LAST_KEY:
            evidence.seen.append(msgspec.json.decode(await _line("follower", stdout), type=Seen))
            key = json.loads(bytes(evidence.seen[-1].record))["_id"]


@asynccontextmanager
async def steno_process(
    evidence: Evidence, name: str, *words: str
) -> AsyncGenerator[tuple[ByteSendStream, BufferedByteReceiveStream]]:
    """The input and output of a `steno` process, which is killed at the end."""
    process = await anyio.open_process(
        own_command(evidence.root, "--json", "--name", name, *words), stderr=None
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, BufferedByteReceiveStream(process.stdout)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _line(name: str, stdout: BufferedByteReceiveStream) -> bytes:
    """The next line of a process.

    Raises:
        Internal: the process has ended.
    """
    try:
        return await stdout.receive_until(b"\n", _LINE_BYTES_MAX)
    except (anyio.EndOfStream, anyio.IncompleteRead):
        raise Internal(f"the process {name} of the demo ended early") from None


async def stop_daemon(root: Path) -> None:
    """Stop a daemon, also one that a cancelled connect is just starting in its thread."""
    with anyio.move_on_after(limits.SPAWN_TIMEOUT_S):
        while is_starting(root) or not is_free(root):
            with suppress(StenoError):
                async with connect(root, spawn=False, timeout=limits.PROBE_TIMEOUT_S) as client:
                    await client.drain()
            await anyio.sleep(limits.START_LOCK_POLL_S)


def show_evidence(
    evidence: Evidence, agents: int, opening: Iterable[str], output: Output, made: Made
) -> int:
    """Prove from the file what the agents were told, and print the proofs.

    Returns:
        The exit code: a failure unless every proof holds.
    """
    proofs = prove(evidence.file.read_bytes(), evidence.acked, evidence.seen)
    is_proved = not any(proofs.values())
    # The file is what contradicts a proof.
    is_kept = made.is_kept or not is_proved
    if output.as_json:
        shown = [
            {"claim": claim, "holds": not detail, "detail": detail}
            for claim, detail in proofs.items()
        ]
        facts = {**_facts(evidence, agents), "kept": is_kept}
        output.document({"proved": is_proved, "proofs": shown, **facts})
    else:
        for line in opening:
            output.write(line)
        _print_proofs(proofs, output)
        output.write(f"file: {evidence.file}")
        if is_kept:
            look = shlex.join(["steno", "--root", str(evidence.root), "show", evidence.session])
            output.write(f"look: {look}")
        else:
            output.write("removed again: --keep keeps it")
    if not is_kept:
        made.remove()
    return Exit.DONE if is_proved else Exit.FAILED


def _facts(evidence: Evidence, agents: int) -> dict[str, Any]:
    return {
        "root": str(evidence.root),
        "session": evidence.session,
        "file": str(evidence.file),
        "agents": agents,
        "records": len(evidence.acked),
        "repeated": evidence.repeated,
        "killed_pid": evidence.killed_pid,
        "next_pid": evidence.next_pid,
        "away_s": round(evidence.away_s, 3),
    }


def _print_proofs(proofs: dict[str, str], output: Output) -> None:
    output.write()
    for claim, detail in proofs.items():
        mark = output.style("✗", "bold", "red") if detail else output.style("✓", "green")
        output.write(f"{mark} {claim}")
        if detail:
            output.write(f"  {output.style(detail, 'red')}")
    output.write()

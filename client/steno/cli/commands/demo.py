"""`steno demo`: concurrent writers and a killed daemon, proved from the file.

Each agent is a `steno append` process that gets its next turn once the last one is acknowledged,
and the follower is a `steno tail -f` process.
"""

import json
import os
import signal
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

import anyio
import msgspec
from anyio.abc import ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

from steno._async.client import Client, connect
from steno._connect.lock_holder import is_free
from steno.cli.arguments import Subcommands, between, command
from steno.cli.command_limits import DEMO_TIMEOUT_S
from steno.cli.connection import prepared_root, refuse_endpoint, root_of
from steno.cli.exits import Exit
from steno.cli.render.output import Output
from steno.cli.render.progress import Progress
from steno.cli.render.wording import count, number
from steno_protocol import limits
from steno_protocol._json import is_object
from steno_protocol.errors import Exists, Held, Internal, StenoError
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS

_LAST_KEY: Final = "the-end"
_LINE_BYTES_MAX: Final = 1 << 20
"""Longest line of a process, far more than a record of the demo."""


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "demo", run,
        "Several processes write one session at once while another follows it, and the daemon is"
        " killed in the middle. The demo then proves from the file that every acknowledged record"
        " is there exactly once and in order. Without --root, it uses a temporary folder.",
        example="steno demo --agents 8",
    )  # fmt: skip
    parser.add_argument(
        "--agents", metavar="N", type=between(1, 32), default=4,
        help="number of processes (default: 4)",
    )  # fmt: skip
    parser.add_argument(
        "--turns", metavar="N", type=between(10, 100_000), default=300,
        help="turns of each process (default: 300)",
    )  # fmt: skip


def run(options: Namespace, output: Output) -> int:
    """Run the demo; fails unless every proof holds."""
    root = _root(options)
    try:
        evidence = anyio.run(play, root, options.agents, options.turns, output)
    except ExceptionGroup as errors:
        # The first error of a process; the others follow from it.
        error: Exception = errors
        while isinstance(error, ExceptionGroup):
            error = cast("Exception", error.exceptions[0])
        raise error from None
    data = evidence.file.read_bytes()
    proofs = prove(data, evidence.acked, evidence.seen)
    facts = {
        "root": str(evidence.root),
        "session": evidence.session,
        "file": str(evidence.file),
        "agents": options.agents,
        "records": len(evidence.acked),
        "repeated": sum(each.duplicate for each in evidence.acked),
        "killed_pid": evidence.killed_pid,
        "next_pid": evidence.next_pid,
        "away_s": round(evidence.away_s, 3),
    }
    is_proved = not any(proofs.values())
    if output.as_json:
        shown = [
            {"claim": claim, "holds": not detail, "detail": detail}
            for claim, detail in proofs.items()
        ]
        output.document({"proved": is_proved, "proofs": shown, **facts})
    else:
        _print(output, facts, proofs, _changes_of_writer(data))
    return Exit.DONE if is_proved else Exit.FAILED


def _root(options: Namespace) -> Path:
    refuse_endpoint(options)
    if options.root is None:
        return Path(tempfile.mkdtemp(prefix="steno-demo-")).resolve()
    prepared_root(options)
    root = root_of(options)
    if not is_free(root):
        raise Held(
            f"a daemon runs on {root}, and the demo would kill it: stop it with `steno stop`, or"
            " leave --root out"
        )
    return root


def _print(output: Output, facts: dict[str, Any], proofs: dict[str, str], changes: int) -> None:
    output.write(
        f"{count(facts['agents'], 'agent')} wrote {number(facts['records'])} records into one"
        f" session at once (the writer changes {count(changes, 'time')})."
    )
    output.write(
        f"The daemon {facts['killed_pid']} was killed in the middle; {facts['next_pid']} answered"
        f" {facts['away_s']:.2f} s later."
    )
    if facts["repeated"]:
        output.write(
            f"{count(facts['repeated'], 'command')} had been written but not answered: sent again,"
            " answered, and not written again."
        )
    output.write()
    for claim, detail in proofs.items():
        mark = output.style("✗", "bold", "red") if detail else output.style("✓", "green")
        output.write(f"{mark} {claim}")
        if detail:
            output.write(f"  {output.style(detail, 'red')}")
    output.write()
    output.write(f"file: {facts['file']}")
    output.write(f"look: steno --root {facts['root']} show {facts['session']}")


@dataclass(frozen=True, slots=True)
class Acked:
    """One acknowledged append: its writer, its key, its position, and the record as sent."""

    writer: str
    key: str
    cursor: str
    duplicate: bool
    sent: dict[str, Any]


class Seen(msgspec.Struct, frozen=True):
    """One record of the follower: its cursor and its bytes."""

    cursor: str
    record: msgspec.Raw


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
                await _write(client, evidence, agents, turns, output)
        except TimeoutError:
            raise Internal(f"the demo took longer than {DEMO_TIMEOUT_S:.0f} s") from None
        finally:
            with anyio.CancelScope(shield=True):
                await _stop_daemon(evidence.root)
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


async def _write(
    client: Client, evidence: Evidence, agents: int, turns: int, output: Output
) -> None:
    total, is_half_done, is_killed = agents * turns, anyio.Event(), anyio.Event()
    output.say(f"{count(agents, 'agent')} and a follower use the daemon on {evidence.root}")

    async def write_turns(name: str) -> None:
        words = ("append", evidence.session, "--key", name)
        async with _steno(evidence, name, *words) as (stdin, stdout):
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
                await _kill(client, evidence, output, is_killed)
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
    async with _steno(evidence, "follower", *words) as (_, stdout):
        key = None
        while key != _LAST_KEY:
            evidence.seen.append(msgspec.json.decode(await _line("follower", stdout), type=Seen))
            key = json.loads(bytes(evidence.seen[-1].record))["_id"]


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


@asynccontextmanager
async def _steno(
    evidence: Evidence, name: str, *words: str
) -> AsyncGenerator[tuple[ByteSendStream, BufferedByteReceiveStream]]:
    """The input and output of a `steno` process, which is killed at the end."""
    process = await anyio.open_process(
        # -P: a module in the working folder must not replace one of ours.
        [
            sys.executable, "-P", "-m", "steno.cli", "--root", str(evidence.root), "--json",
            "--name", name, *words,
        ],
        stderr=None,
    )  # fmt: skip
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


async def _stop_daemon(root: Path) -> None:
    """Stop the daemon of the demo, also one that is just starting."""
    with anyio.move_on_after(limits.SPAWN_TIMEOUT_S):
        while not is_free(root):
            with suppress(StenoError):
                async with connect(root, spawn=False, timeout=limits.PROBE_TIMEOUT_S) as client:
                    await client.drain()
            await anyio.sleep(limits.START_LOCK_POLL_S)


def prove(data: bytes, acked: Sequence[Acked], seen: Sequence[Seen]) -> dict[str, str]:
    """The claims of the demo, each with its first contradiction in the file; empty if it holds.

    Args:
        data: the bytes of `context.jsonl`.
        acked: every acknowledgement, those of one writer in the order of its turns.
        seen: the records of the follower, in order.
    """
    *lines, rest = data.split(b"\n")
    records = [_object(line) for line in lines]
    contradictions = {
        f"the file is {count(len(lines), 'line')}, each one a whole JSON object": _not_whole(
            rest, lines, records
        ),
        f"each of the {number(len(acked))} acknowledged records is in it exactly once": _not_once(
            records, acked
        ),
        "each is at the position of its acknowledgement, as it was sent, in the order of its"
        " writer": _not_there(records, acked),
        "the follower saw these very lines in this order, without gap or duplicate": _not_seen(
            lines, seen
        ),
    }
    return {claim: next(found, "") for claim, found in contradictions.items()}


def _changes_of_writer(data: bytes) -> int:
    """How often the next line of the file has another writer: a measure of concurrency."""
    writers = [record.get("_by") for line in data.splitlines() if (record := _object(line))]
    return sum(before != after for before, after in pairwise(writers))


Records = Sequence[dict[str, Any] | None]
"""The lines of the file as objects, None for damaged ones."""


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


def _not_whole(rest: bytes, lines: Sequence[bytes], records: Records) -> Iterator[str]:
    if rest:
        yield f"it ends with {len(rest)} bytes that are no whole line"
    for line_number, record in enumerate(records):
        if record is None:
            yield f"line {line_number + 1} is no JSON object: {lines[line_number][:60]!r}"


def _not_once(records: Records, acked: Sequence[Acked]) -> Iterator[str]:
    there = Counter(str(record.get("_id")) for record in records if record is not None)
    wanted = Counter(each.key for each in acked)
    for key, times in wanted.items():
        if times > 1:
            yield f"the record {key} was acknowledged to {times} commands"
        if there[key] != 1:
            yield f"the record {key} was acknowledged and is there {there[key]} times"
    for key in there.keys() - wanted.keys():
        yield f"the record {key} is there without an acknowledgement"


def _not_there(records: Records, acked: Sequence[Acked]) -> Iterator[str]:
    lines = {f"0:{line_number}": record for line_number, record in enumerate(records)}
    last: dict[str, Position] = {}
    for each in acked:
        record = lines.get(each.cursor)
        if record is None or record.get("_id") != each.key:
            yield f"the line at {each.cursor} is not the record {each.key}"
        elif {key: record[key] for key in record if key not in RESERVED_KEYS} != each.sent:
            yield f"the record {each.key} at {each.cursor} has not the content that was sent"
        position = Position.parse(each.cursor)
        if position <= last.get(each.writer, Position(0, -1)):
            yield f"{each.key} is at {position}, before an earlier record of {each.writer}"
        last[each.writer] = position


def _not_seen(lines: Sequence[bytes], seen: Sequence[Seen]) -> Iterator[str]:
    for line_number, (line, each) in enumerate(zip(lines, seen, strict=False)):
        if each.cursor != f"0:{line_number}":
            yield f"the record after line {line_number} came as {each.cursor}"
        if bytes(each.record) != line:
            yield f"the line at 0:{line_number} came as {bytes(each.record)[:60]!r}"
    if len(lines) != len(seen):
        yield f"the file has {len(lines)} lines and {len(seen)} were seen"

"""Reverts of a long session: steno, a kernel copy, and kimi-cli."""

import asyncio
import importlib.util
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import steno
from bench.lines import CHECKPOINTS, RECORDS, write_long_session
from bench.measuring import Comparison
from steno_protocol import paths
from support.foreground import ForegroundDaemon

COPY: Final = "kernel copy + fsync"
KIMI: Final = "kimi-cli revert_to"
STENO: Final = "steno revert_to"


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Reverts to 10, 50 and 90 % of the records; each works on a fresh copy of the session.

    The revert alone is timed: neither steno's opening of the session nor kimi-cli's loading of it.
    kimi-cli takes seconds, so it is measured in the first round only.
    """
    long_session = folder / "long.jsonl"
    write_long_session(long_session)
    kept = _kept_bytes(long_session)
    found = [
        Comparison(f"revert that keeps {share} % of {RECORDS:,} records", ("ms",), "ms", (COPY,))
        for share in CHECKPOINTS
    ]
    root = folder / "revert-root"
    with ForegroundDaemon(root), steno.connect_sync(root, spawn=False) as client:
        for number in range(rounds):
            for comparison, checkpoint_id in zip(found, CHECKPOINTS.values(), strict=True):
                comparison.add(COPY, {"ms": _copy(long_session, kept[checkpoint_id])})
                session = f"revert-{number}-{checkpoint_id}"
                comparison.add(STENO, {"ms": _steno(client, root, session, long_session,
                                                    checkpoint_id)})  # fmt: skip
                if number == 0 and importlib.util.find_spec("kimi_cli") is not None:
                    comparison.add(KIMI, {"ms": _kimi(folder, long_session, checkpoint_id)})
                report(f"{comparison.title}: round {number + 1}")
    return found


def _kept_bytes(path: Path) -> dict[int, int]:
    """The offset of each checkpoint."""
    data = path.read_bytes()
    return {number: data.index(b'{"role":"_checkpoint","id":%d}' % number)
            for number in CHECKPOINTS.values()}  # fmt: skip


def _copy(source: Path, size: int) -> float:
    target = source.with_name("copied.jsonl")
    start = time.perf_counter()
    with source.open("rb") as old, target.open("wb") as new:
        copied = 0
        while copied < size:
            copied += os.copy_file_range(old.fileno(), new.fileno(), size - copied)
        os.fsync(new.fileno())
    elapsed = time.perf_counter() - start
    target.unlink()
    return elapsed * 1e3


def _steno(
    client: steno.BlockingClient, root: Path, name: str, source: Path, checkpoint_id: int
) -> float:
    folder = root / paths.SESSIONS / name
    folder.mkdir(parents=True)
    shutil.copyfile(source, folder / paths.CONTEXT)
    os.sync()
    session = client.open(name, follow=False)
    start = time.perf_counter()
    session.revert_to(checkpoint_id)
    elapsed = time.perf_counter() - start
    for file in folder.iterdir():
        # The space matters more than the name: sixty megabytes a round.
        if file.suffix == ".jsonl":
            os.truncate(file, 0)
    return elapsed * 1e3


def _kimi(folder: Path, source: Path, checkpoint_id: int) -> float:
    from kimi_cli.soul.context import Context

    target = folder / "kimi" / paths.CONTEXT
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    os.sync()

    async def run() -> float:
        context = Context(file_backend=target)
        await context.restore()
        start = time.perf_counter()
        await context.revert_to(checkpoint_id)
        return time.perf_counter() - start

    elapsed = asyncio.run(run())
    shutil.rmtree(target.parent)
    return elapsed * 1e3

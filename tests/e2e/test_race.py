"""Races of processes that append and revert at once."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol.records import stamp_of

TESTS = Path(__file__).parents[1]


def _race(root: Path, *runners: tuple[str, int]) -> list[dict[str, Any]]:
    """Run processes at once; returns all their acks."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "support.racers", role, str(root), str(count)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for role, count in runners
    ]
    said = [process.communicate(timeout=90)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(runners)
    return [json.loads(line) for text in said for line in text.splitlines()]


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_acknowledged_record_is_lost_beside_reverts(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.open("race", follow=False)
        folder = Path(session.stat().folder)
    acknowledged: list[dict[str, Any]] = []
    for _ in range(10):
        acknowledged += _race(root, *[("append", 12)] * 4, ("revert", 6))

    files = [folder / "context.jsonl", *sorted(folder.glob("context_*.jsonl"))]
    held: Counter[str] = Counter()
    for file in files:
        lines = _lines(file)
        assert all(isinstance(json.loads(line), dict) for line in lines), file
        keys = [stamp.key for line in lines if (stamp := stamp_of(line)) is not None]
        assert len(keys) == len(lines) == len(set(keys)), f"a line twice in {file}"
        held.update(keys)
    appended = [ack for ack in acknowledged if "first" in ack]
    assert len(appended) == 10 * 4 * 12
    for ack in appended:
        generation, line = map(int, ack["first"].split(":"))
        # The record is at the position of its ack, because reverts leave the old generation whole.
        past = folder / f"context_{generation + 1}.jsonl"
        place = past if past.exists() else folder / "context.jsonl"
        stamp = stamp_of(_lines(place)[line])
        assert stamp is not None
        assert stamp.key == ack["key"]
        assert held[ack["key"]] >= 1

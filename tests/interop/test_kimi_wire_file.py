"""The twin of kimi-cli's WireFile beside the original."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interop.peers import peer
from steno import BadRequest
from steno.adapters.kimi import WireFile

pytestmark = pytest.mark.interop

file = peer("kimi_cli.wire.file")
types = peer("kimi_cli.wire.types")

NAMES = pytest.mark.parametrize("name", ["wire.jsonl", "events.jsonl"])
HEADER = {"type": "metadata", "protocol_version": "1.10"}


def messages(random: Random, count: int) -> list[Any]:
    """Events of several types, with characters of every length."""
    texts = ["hi", "汉字", "\U0001f600", "two\nlines", "\u2028", ""]
    makers = [
        lambda: types.TurnBegin(user_input=random.choice(texts)),
        lambda: types.StepBegin(n=random.randrange(100)),
        lambda: types.TextPart(text=random.choice(texts)),
        lambda: types.StatusUpdate(context_usage=random.random()),
        types.TurnEnd,
    ]
    return [random.choice(makers)() for _ in range(count)]


async def read(wire_file: Any) -> list[tuple[float, Any]]:
    """Timestamps and messages of a file."""
    return [(each.timestamp, each.to_wire_message()) async for each in wire_file.iter_records()]


def lines_of(path: Path) -> list[Any]:
    """The JSON of each line."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def facts(wire_file: Any) -> tuple[str, bool, str, Path]:
    """The state of a file."""
    return wire_file.version, wire_file.is_empty(), str(wire_file), wire_file.path


@NAMES
def test_each_program_reads_the_events_of_the_other(folder: Path, seed: int, name: str) -> None:
    path = folder / "made" / "by it" if name != "wire.jsonl" else folder / "made"
    path /= name
    random = Random(seed)

    async def live() -> None:
        assert facts(WireFile(path)) == facts(file.WireFile(path))
        expected = []
        for number in range(4):
            writer = WireFile(path) if number % 2 == 0 else file.WireFile(path)
            for message in messages(random, 10):
                at = round(random.uniform(1.7e9, 1.8e9), 3)
                await writer.append_message(message, timestamp=at)
                expected.append((at, message))
            assert await read(file.WireFile(path)) == expected
            assert await read(WireFile(path)) == expected
            assert facts(WireFile(path)) == facts(file.WireFile(path))

    asyncio.run(live())
    documents = lines_of(path)
    assert [each for each in documents if "type" in each] == [HEADER]
    assert documents[0] == HEADER


@NAMES
def test_both_write_the_same_lines(folder: Path, tmp_path: Path, seed: int, name: str) -> None:
    ours, theirs = WireFile(folder / name), file.WireFile(tmp_path / name)

    async def live() -> None:
        for message in messages(Random(seed), 30):
            record = file.WireMessageRecord.from_wire_message(message, timestamp=1.5)
            await ours.append_record(record)
            await theirs.append_record(record)

    asyncio.run(live())
    assert lines_of(ours.path) == lines_of(theirs.path)


@pytest.mark.parametrize(
    "content",
    [
        b"\n \n",
        b'{"type": "metadata", "protocol_version": "1.3"}\n',
        b'\n{"type": "metadata", "protocol_version": "1.3", "session_id": "x"}\n\n',
        b'{"timestamp": 1, "message": {"type": "TurnEnd", "payload": {}}}\n',
        b'{"timestamp": 1, "message": {"type": "TurnEnd", "payload": {}}}',
        b"{broken\n",
        (
            b'{"timestamp": 1, "message": {}}\n'
            b'{"timestamp": 2, "message": {"type": "A", "payload": {}}}\n'
        ),
        b'{"type": "metadata"}\n{"timestamp": "2.5", "message": {"type": "A", "payload": {}}}\n',
    ],
)
def test_both_say_the_same_of_a_file_that_is_there(folder: Path, content: bytes) -> None:
    path = folder / "wire.jsonl"
    path.write_bytes(content)

    async def raw(wire_file: Any) -> list[Any]:
        return [each.model_dump() async for each in wire_file.iter_records()]

    ours, theirs = WireFile(path), file.WireFile(path)
    assert ours.is_empty() == theirs.is_empty()
    if content.strip():
        # Of a file without any line kimi-cli says that it is a legacy one.
        assert ours.version == theirs.version
    assert asyncio.run(raw(ours)) == asyncio.run(raw(theirs))


def test_a_torn_character_hides_nothing_from_the_twin(folder: Path) -> None:
    path = folder / "wire.jsonl"

    async def live() -> None:
        await file.WireFile(path).append_message(types.TextPart(text="one"), timestamp=1)
        whole = path.read_bytes()
        torn = whole.splitlines()[-1].replace(b"one", "汉".encode()[:2])[:-4]
        path.write_bytes(whole + torn)
        ours = WireFile(path)
        assert (ours.version, ours.is_empty()) == ("1.10", False)
        assert len(await read(ours)) == 1
        assert ours.damaged == 1
        await ours.append_message(types.TextPart(text="two"), timestamp=2)
        expected = [(1.0, types.TextPart(text="one")), (2.0, types.TextPart(text="two"))]
        assert await read(WireFile(path)) == expected
        assert await read(file.WireFile(path)) == expected

    asyncio.run(live())
    [kept] = (folder / "quarantine").iterdir()
    assert kept.name.startswith("wire.jsonl.at-")


def test_an_event_that_cannot_be_stored_is_an_error_and_the_file_stays(folder: Path) -> None:
    path = folder / "wire.jsonl"

    async def live() -> None:
        await WireFile(path).append_message(types.TurnEnd(), timestamp=1)
        before = path.read_bytes()
        with pytest.raises(BadRequest):
            await WireFile(path).append_message(types.TurnEnd(), timestamp=float("nan"))
        assert path.read_bytes() == before

    asyncio.run(live())


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(folder: Path) -> None:
    path = folder / "wire.jsonl"
    ours, theirs = WireFile(path), file.WireFile(path)
    path.mkdir()
    assert (ours.is_empty(), theirs.is_empty()) == (False, False)


_WRITER = """
import asyncio, sys
from pathlib import Path
from kimi_cli.wire.types import StepBegin
from steno.adapters.kimi import WireFile

async def main():
    wire_file = WireFile(Path(sys.argv[1]))
    for number in range(20):
        await wire_file.append_message(StepBegin(n=int(sys.argv[2]) * 100 + number))

sys.stdin.read()
asyncio.run(main())
"""


@NAMES
def test_processes_that_are_the_first_at_once_write_one_header(folder: Path, name: str) -> None:
    path = folder / name
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(number)],
            stdin=subprocess.PIPE,
            env={**os.environ},
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    documents = lines_of(path)
    assert [each for each in documents if "type" in each] == [HEADER]
    found = [message.n for _, message in asyncio.run(read(file.WireFile(path)))]
    assert sorted(found) == sorted(number * 100 + n for number in range(3) for n in range(20))
    for number in range(3):
        assert [n for n in found if n // 100 == number] == [number * 100 + n for n in range(20)]

"""The WireFile adapter without kimi-cli, for any event with a `model_dump`.

Side by side with kimi-cli's own class it is tested in tests/interop.
"""

import copy
import dataclasses
import json
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import steno
from steno.adapters.kimi import WireFile
from support.daemons import end_daemon_of

pytestmark = pytest.mark.anyio

NAMES = pytest.mark.parametrize("name", ["wire.jsonl", "events.jsonl", "odd näme (1)"])


class Event:
    """As much of an event as the adapter needs."""

    def __init__(self, number: int) -> None:
        self.number = number

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"timestamp": 1.5, "message": {"type": "A", "payload": {"n": self.number}}}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """STENO_HOME of the adapters; they share one daemon, as they would in a program."""
    folder = Path(tempfile.mkdtemp(prefix="steno-")).resolve()
    (folder / "tree").mkdir()
    (folder / "config.toml").write_text(f'[mounts]\ntree = "{folder}/tree"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STENO_HOME", str(folder))
        yield folder
        end_daemon_of(folder)
        shutil.rmtree(folder)


@pytest.fixture
def folder(home: Path) -> Path:
    """An empty folder in the mounted tree."""
    return Path(tempfile.mkdtemp(prefix="session-", dir=home / "tree"))


@NAMES
async def test_events_are_readable_at_the_path_when_the_append_returns(
    folder: Path, name: str
) -> None:
    path = folder / name
    wire_file = WireFile(path)
    assert (wire_file.version, wire_file.is_empty(), str(wire_file)) == ("1.10", True, str(path))
    assert not path.exists()
    for number in range(3):
        await wire_file.append_record(Event(number))
        last = json.loads(path.read_bytes().splitlines()[-1])
        assert last == Event(number).model_dump(mode="json")
    assert path.read_bytes().startswith(b'{"type":"metadata","protocol_version":"1.10"}\n')
    assert path.read_bytes().count(b"metadata") == 1
    assert not WireFile(path).is_empty()


@NAMES
async def test_appends_of_several_tasks_and_objects_are_all_there(folder: Path, name: str) -> None:
    files = [WireFile(folder / name) for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(files[number % 3].append_record, Event(number))
    lines = (folder / name).read_bytes().splitlines()[1:]
    assert sorted(json.loads(line)["message"]["payload"]["n"] for line in lines) == list(range(30))


@NAMES
async def test_a_file_that_was_removed_begins_anew(folder: Path, name: str) -> None:
    path = folder / name
    wire_file = WireFile(path)
    for number in range(3):
        await wire_file.append_record(Event(number))
    path.unlink()
    assert WireFile(path).is_empty()
    for number in range(2):
        await wire_file.append_record(Event(7 + number))
    header, *lines = map(json.loads, path.read_bytes().splitlines())
    assert header["type"] == "metadata"
    assert [each["message"]["payload"]["n"] for each in lines] == [7, 8]


async def test_it_can_be_copied_and_pickled_as_any_dataclass(folder: Path) -> None:
    wire_file = WireFile(folder / "wire.jsonl")
    await wire_file.append_record(Event(1))
    for copied in (copy.deepcopy(wire_file), pickle.loads(pickle.dumps(wire_file))):
        assert copied == wire_file
        await copied.append_record(Event(2))
    assert dataclasses.asdict(wire_file)["path"] == wire_file.path
    assert wire_file.path.read_bytes().count(b"timestamp") == 3


@NAMES
async def test_another_path_that_it_is_given_is_written_and_read(folder: Path, name: str) -> None:
    wire_file = WireFile(folder / name)
    await wire_file.append_record(Event(1))
    wire_file.path = folder / "next" / name
    assert wire_file.is_empty()
    await wire_file.append_record(Event(2))
    for path, number in ((folder / name, 1), (wire_file.path, 2)):
        (line,) = path.read_bytes().splitlines()[1:]
        assert json.loads(line) == Event(number).model_dump(mode="json")


async def test_folders_that_are_missing_are_made(folder: Path) -> None:
    path = folder / "a" / "b" / "wire.jsonl"
    await WireFile(path).append_record(Event(1))
    assert not WireFile(path).is_empty()


async def test_the_session_of_the_folder_has_the_events(home: Path, folder: Path) -> None:
    await WireFile(folder / "wire.jsonl").append_record(Event(7))
    async with steno.connect(home) as client:
        session = client.session(f"tree:{folder.name}")
        await session.append_wire("B", {"n": 8}, durability="synced")
        assert [each.payload["n"] async for each in session.wire_records()] == [7, 8]


async def test_a_file_of_an_older_version_keeps_it(folder: Path) -> None:
    path = folder / "wire.jsonl"
    path.write_bytes(b'{"type":"metadata","protocol_version":"1.3","app":"x"}\n')
    wire_file = WireFile(path, protocol_version="1.9")
    assert (wire_file.version, wire_file.is_empty()) == ("1.3", True)
    await wire_file.append_record(Event(1))
    assert WireFile(path).version == "1.3"
    assert path.read_bytes().count(b"metadata") == 1


@pytest.mark.skipif(find_spec("kimi_cli") is not None, reason="kimi-cli is installed")
async def test_without_kimi_cli_its_objects_cannot_be_made_and_that_is_said(folder: Path) -> None:
    wire_file = WireFile(folder / "wire.jsonl")
    await wire_file.append_record(Event(1))
    with pytest.raises(ModuleNotFoundError, match="pip install kimi-cli"):
        await anext(aiter(wire_file.iter_records()))
    with pytest.raises(ModuleNotFoundError, match="pip install kimi-cli"):
        await wire_file.append_message(Event(1))

"""The adapters without the programs that they stand in for: any message class will do.

Side by side with kimi-cli's and kosong's own classes they are tested in tests/interop.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread
import pytest

import steno
from steno.adapters._address import find_address
from steno.adapters.kimi import Context
from steno.adapters.kosong import MemoryLinearStorage, StenoLinearStorage
from support.daemons import end_daemon_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls")]

NAMES = pytest.mark.parametrize("name", ["context.jsonl", "ctx.jsonl", "odd näme (1)"])


class Note:
    """A message of a user, with as much of a pydantic model as an adapter needs."""

    def __init__(self, content: str) -> None:
        self.content = content

    def model_dump_json(self, *, exclude_none: bool) -> str:
        return json.dumps({"role": "user", "content": self.content}, ensure_ascii=False)

    @classmethod
    def model_validate(cls, record: dict[str, Any]) -> Self:
        if not isinstance(record["content"], str):
            raise ValueError("a note holds text")
        return cls(record["content"])


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


def texts(messages: Any) -> list[str]:
    """The texts of notes."""
    return [message.content for message in messages]


def roles(path: Path) -> list[str]:
    """The roles of the records in a file."""
    return [json.loads(line)["role"] for line in path.read_bytes().splitlines()]


@NAMES
async def test_a_context_lives_in_its_file_and_comes_back_from_it(folder: Path, name: str) -> None:
    path = folder / name
    context = Context(file_backend=path)
    first = Note("hi")
    await context.append_message(first)
    assert context.history[0] is first
    assert path.read_bytes() == b'{"role": "user", "content": "hi"}\n'
    await context.write_system_prompt("be kind")
    await context.checkpoint(add_user_message=True)
    await context.update_token_count(7)
    await context.append_message([Note("x" * 9), Note("naïve")])
    assert context.file_backend == path
    assert roles(path) == [
        "_system_prompt",
        "user",
        "_checkpoint",
        "user",
        "_usage",
        "user",
        "user",
    ]
    assert (context.token_count, context.token_count_with_pending) == (7, 10)

    again = Context(file_backend=path, message_type=Note)
    assert await again.restore()
    assert texts(again.history) == texts(context.history)
    assert texts(again.history)[1] == "<system>CHECKPOINT 0</system>"
    assert (again.system_prompt, again.n_checkpoints, again.token_count) == ("be kind", 1, 7)

    await again.revert_to(0)
    assert texts(again.history) == ["hi"]
    assert roles(path) == ["_system_prompt", "user"]
    await again.clear()
    assert (list(again.history), again.system_prompt, path.read_bytes()) == ([], None, b"")


@NAMES
async def test_many_tasks_and_objects_lose_nothing_and_agree(folder: Path, name: str) -> None:
    contexts = [Context(file_backend=folder / name) for _ in range(4)]

    async def write(number: int) -> None:
        for count in range(10):
            await contexts[number % 4].append_message(Note(f"{number}-{count}"))
            await contexts[number % 4].checkpoint(False)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(write, number)

    restored = Context(file_backend=folder / name)
    await restored.append_message(Note("last"))
    await contexts[0].append_message(Note("very last"))
    lines = [json.loads(line) for line in (folder / name).read_bytes().splitlines()]
    checkpoints = [record["id"] for record in lines if record["role"] == "_checkpoint"]
    assert checkpoints == list(range(80))
    contents = [record["content"] for record in lines if record["role"] == "user"]
    seen = texts(contexts[0].history)
    assert seen == contents[-len(seen) :]
    for number in range(8):
        own = [text for text in contents if text.startswith(f"{number}-")]
        assert own == [f"{number}-{count}" for count in range(10)]


@NAMES
async def test_reverts_beside_appends_lose_nothing_that_was_acknowledged(
    folder: Path, name: str
) -> None:
    path = folder / name
    appended: list[str] = []

    async def append(number: int) -> None:
        context = Context(file_backend=path)
        for count in range(20):
            await context.append_message(Note(f"{number}-{count}"))
            appended.append(f"{number}-{count}")

    async def revert() -> None:
        for _ in range(10):
            context = Context(file_backend=path, message_type=Note)
            await context.checkpoint(False)
            await context.append_message(Note("doomed"))
            await context.revert_to(0)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(append, number)
        tasks.start_soon(revert)

    stem = Path(name).stem
    rotated = [file for file in folder.iterdir() if file.name.startswith(f"{stem}_")]
    assert len([file for file in rotated if file.is_file()]) == 10
    files = [path, *(file for file in rotated if file.is_file())]
    found = {
        json.loads(line).get("content") for file in files for line in file.read_bytes().splitlines()
    }
    assert found >= set(appended)
    again = Context(file_backend=path, message_type=Note)
    assert await again.restore()
    assert "doomed" not in texts(again.history)
    address = await anyio.to_thread.run_sync(find_address, path)
    assert path.samefile(address.context)


async def test_a_failed_append_is_told_and_changes_nothing(folder: Path) -> None:
    context = Context(file_backend=folder / "context.jsonl")
    await context.append_message(Note("fine"))
    with pytest.raises(steno.TooLarge):
        await context.append_message(Note("x" * (17 << 20)))
    assert texts(context.history) == ["fine"]
    assert roles(folder / "context.jsonl") == ["user"]
    with pytest.raises(ValueError, match="checkpoint 0 does not exist"):
        await context.revert_to(0)


async def test_without_a_class_for_messages_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kosong.message", None)
    context = Context(file_backend=folder / "context.jsonl")
    with pytest.raises(steno.BadRequest, match="not installed"):
        await context.checkpoint(True)
    assert list(folder.iterdir()) == []


async def test_a_storage_keeps_messages_and_the_last_count(folder: Path) -> None:
    for storage in (StenoLinearStorage(folder / "context.jsonl"), MemoryLinearStorage()):
        await storage.append_message(Note("a"))
        await storage.mark_token_count(3)
        await storage.append_message(Note("b"))
        assert (texts(storage.messages), storage.token_count) == (["a", "b"], 3)
    assert roles(folder / "context.jsonl") == ["user", "_usage", "user"]

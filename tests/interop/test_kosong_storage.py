"""kosong's LinearContext over steno's storage, beside kosong's own storages."""

import asyncio
import gc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interop.kimi_operations import message
from interop.peers import peer
from steno.adapters.kosong import MemoryLinearStorage, StenoLinearStorage
from steno.testing import LinearStorageContract

pytestmark = pytest.mark.interop

linear = peer("kosong.contrib.context.linear")
kosong = peer("kosong.message")


async def live(context: Any, random: Random) -> None:
    """Thirty operations that are the same for the same seed."""
    for _ in range(30):
        if random.random() < 0.3:
            await context.mark_token_count(random.randint(0, 9999))
        else:
            await context.add_message(message(random))


def facts(context: Any) -> tuple[list[Any], int]:
    """The state of a linear context."""
    return [message.model_dump() for message in context.history], context.token_count


def test_both_storages_are_linear_storages(folder: Path) -> None:
    assert isinstance(StenoLinearStorage(folder / "context.jsonl"), linear.LinearStorage)
    assert isinstance(MemoryLinearStorage(), linear.LinearStorage)


@pytest.mark.parametrize("number", range(5))
def test_a_linear_context_does_the_same_over_every_storage(
    folder: Path, tmp_path: Path, seed: int, number: int
) -> None:
    theirs_at, ours_at = tmp_path / "theirs.jsonl", folder / "ours.jsonl"
    contexts = [
        linear.LinearContext(storage)
        for storage in (
            linear.JsonlLinearStorage(theirs_at),
            StenoLinearStorage(ours_at),
            linear.MemoryLinearStorage(),
            MemoryLinearStorage(),
        )
    ]
    for context in contexts:
        asyncio.run(live(context, Random(f"{seed}-{number}")))

    assert all(facts(context) == facts(contexts[0]) for context in contexts)
    # kosong writes when the storage is collected.
    expected = facts(contexts.pop(0))
    gc.collect()
    assert ours_at.read_bytes() == theirs_at.read_bytes()

    for storage in (StenoLinearStorage(theirs_at), linear.JsonlLinearStorage(ours_at)):
        asyncio.run(storage.restore())
        assert facts(linear.LinearContext(storage)) == expected


def test_the_bytes_are_in_the_file_when_an_append_returns(folder: Path) -> None:
    path = folder / "context.jsonl"

    async def append() -> None:
        storage = StenoLinearStorage(path)
        await storage.append_message(kosong.Message(role="user", content="hi"))
        assert path.read_bytes() == b'{"role":"user","content":"hi"}\n'
        with pytest.raises(RuntimeError, match="already"):
            await storage.restore()

    asyncio.run(append())


def test_files_with_checkpoints_and_a_system_prompt_are_restored(folder: Path) -> None:
    path = folder / "context.jsonl"
    path.write_text(
        '{"role": "_system_prompt", "content": "be kind"}\n'
        '{"role":"user","content":"hi"}\n'
        '{"role": "_checkpoint", "id": 0}\n'
        '{"role": "_usage", "token_count": 12}\n'
        '{"role":"assistant","content":"hello","token_count":99}\n'
    )
    storage = StenoLinearStorage(path)
    asyncio.run(storage.restore())
    assert [message.extract_text() for message in storage.messages] == ["hi", "hello"]
    assert storage.token_count == 12


def test_without_a_file_nothing_is_restored_and_none_is_made(folder: Path) -> None:
    storage = StenoLinearStorage(folder / "context.jsonl")
    asyncio.run(storage.restore())
    assert storage.messages == []
    assert list(folder.iterdir()) == []


class KosongContract(LinearStorageContract):
    """Makes and reads messages for kosong's storages and their twins."""

    def make_message(self, text: str) -> Any:
        return kosong.Message(role="user", content=text)

    def text_of(self, message: Any) -> str:
        return str(message.extract_text())

    def release(self, storage: Any) -> None:
        if file := getattr(storage, "_file", None):
            file.close()
            storage._file = None


class TestStenoBesideKosong(KosongContract):
    is_shared = True
    is_jsonl = True

    @pytest.fixture
    def tmp_path(self, folder: Path) -> Path:
        return folder

    def make_storage(self, path: Path) -> Any:
        return StenoLinearStorage(path)


class TestKosongMemory(KosongContract):
    is_durable = False

    def make_storage(self, path: Path) -> Any:
        return linear.MemoryLinearStorage()


# kosong closes its file when it is collected, and opens it twice for two appends at once.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestKosongJsonl(KosongContract):
    is_jsonl = True

    def make_storage(self, path: Path) -> Any:
        return linear.JsonlLinearStorage(path)

    @pytest.mark.xfail(reason="kosong's restore() raises at a torn line", strict=True)
    def test_a_torn_last_line_costs_itself_alone(self, tmp_path: Path) -> None:
        super().test_a_torn_last_line_costs_itself_alone(tmp_path)

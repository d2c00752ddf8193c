"""The contract of storages, over steno's own and broken ones."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from unittest import SkipTest

import anyio.lowlevel
import pytest

from steno.adapters.kosong import MemoryLinearStorage, StenoLinearStorage
from steno.testing import LinearStorage, LinearStorageContract
from steno_protocol import paths
from support.daemon_in_thread import DaemonInThread


class Note:
    """A message, with as much of a pydantic model as an adapter needs."""

    def __init__(self, content: str) -> None:
        self.content = content

    def model_dump_json(self, *, exclude_none: bool) -> str:
        return json.dumps({"role": "user", "content": self.content})

    @classmethod
    def model_validate(cls, record: dict[str, Any]) -> Self:
        return cls(record["content"])


class TestStenoLinearStorage(LinearStorageContract):
    is_shared = True
    is_jsonl = True

    @pytest.fixture
    def tmp_path(self, root: Path, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("STENO_HOME", str(root))
        folder = root / paths.SESSIONS / "demo"
        folder.mkdir(parents=True)
        return folder

    def make_storage(self, path: Path) -> LinearStorage:
        return StenoLinearStorage(path, message_type=Note)

    def make_message(self, text: str) -> Note:
        return Note(text)


class TestStenoLinearStorageOfDicts(TestStenoLinearStorage):
    def make_message(self, text: str) -> Any:
        return {"role": "user", "content": text}


class TestMemoryLinearStorage(LinearStorageContract):
    is_durable = False

    def make_storage(self, path: Path) -> LinearStorage:
        return MemoryLinearStorage()

    def make_message(self, text: str) -> Note:
        return Note(text)


class FileStorage:
    """A plain storage of JSON Lines that keeps the contract, for one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[Any] = []
        self.token_count = 0

    async def restore(self) -> None:
        if self.messages:
            raise RuntimeError("it has messages")
        for line in self.path.read_bytes().splitlines() if self.path.exists() else []:
            try:
                record = json.loads(line) if line.strip() else None
            except ValueError:
                continue
            if record is not None:
                self.take(record)

    def take(self, record: dict[str, Any]) -> None:
        if "token_count" in record:
            self.token_count = record["token_count"]
        else:
            self.messages.append(record)

    def write(self, record: dict[str, Any]) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        begin = b"" if not data or data.endswith(b"\n") else b"\n"
        self.path.write_bytes(data + begin + json.dumps(record).encode() + b"\n")

    async def append_message(self, message: Any) -> None:
        self.messages.append(message)
        self.write(message)

    async def mark_token_count(self, token_count: int) -> None:
        self.token_count = token_count
        self.write({"role": "_usage", "token_count": token_count})


class TestFileStorage(LinearStorageContract):
    is_shared = True
    is_jsonl = True

    def make_storage(self, path: Path) -> LinearStorage:
        return FileStorage(path)


class Reversed(FileStorage):
    async def append_message(self, message: Any) -> None:
        self.messages.insert(0, message)
        self.write(message)


class Forgetful(FileStorage):
    async def append_message(self, message: Any) -> None:
        self.messages.append(message)


class Twice(FileStorage):
    async def restore(self) -> None:
        self.messages, before = [], self.messages
        await super().restore()
        self.messages = before + self.messages


class Fusing(FileStorage):
    def write(self, record: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


class Strict(FileStorage):
    async def restore(self) -> None:
        for line in self.path.read_bytes().splitlines() if self.path.exists() else []:
            self.take(json.loads(line))


class Adding(FileStorage):
    async def mark_token_count(self, token_count: int) -> None:
        await super().mark_token_count(self.token_count + token_count)


class Racing(FileStorage):
    async def append_message(self, message: Any) -> None:
        before = self.messages
        await anyio.lowlevel.checkpoint()
        self.messages = [*before, message]
        self.write(message)


class Ascii(FileStorage):
    async def append_message(self, message: Any) -> None:
        text = message["content"].encode("ascii", "replace").decode()
        await super().append_message({**message, "content": text})


class Overwriting(FileStorage):
    def write(self, record: dict[str, Any]) -> None:
        self.path.write_text("".join(json.dumps(each) + "\n" for each in self.messages))


def broken_promises(make: Callable[[Path], LinearStorage]) -> set[str]:
    """The tests of the contract that a storage fails."""
    contract = TestFileStorage()
    contract.make_storage = make  # type: ignore[method-assign]
    failed: set[str] = set()
    for name in dir(LinearStorageContract):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    getattr(contract, name)(Path(folder))
                except SkipTest:
                    pass
                except Exception:
                    failed.add(name)
    return failed


def test_a_storage_that_keeps_the_contract_fails_none_of_it() -> None:
    assert broken_promises(FileStorage) == set()


@pytest.mark.parametrize(
    ("storage", "promise"),
    [
        (Reversed, "test_messages_stay_in_the_order_of_their_appends"),
        (Forgetful, "test_a_restored_storage_is_as_the_first_one_was"),
        (Twice, "test_a_storage_that_has_messages_refuses_to_restore"),
        (Fusing, "test_a_torn_last_line_costs_itself_alone"),
        (Strict, "test_empty_lines_are_passed_over"),
        (Adding, "test_the_last_token_count_holds_and_changes_no_message"),
        (Racing, "test_appends_at_the_same_time_are_all_there_once"),
        (Ascii, "test_every_text_comes_back_as_it_was_given"),
        (Overwriting, "test_several_storages_at_one_path_lose_nothing"),
    ],
)
def test_a_storage_that_breaks_a_promise_fails_its_test(
    storage: Callable[[Path], LinearStorage], promise: str
) -> None:
    assert promise in broken_promises(storage)

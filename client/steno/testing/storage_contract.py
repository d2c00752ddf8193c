"""The contract of a storage of an agent's messages, as reusable tests.

    class TestMyStorage(LinearStorageContract):
        def make_storage(self, path):
            return MyStorage(path)

pytest collects the class; each test gets a folder of its own in `tmp_path`. A storage is kosong's
`LinearStorage`. A test of a promise that the storage does not claim is skipped with the reason.

Source: the promises are those that the documentation of kosong's linear context asks every storage
to be tested for: order, token counts, restoring, and damaged or empty lines.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast
from unittest import SkipTest

import anyio

_AT_ONCE = 20
_TEXTS = ("", "two\nlines\r\n", 'a "quote" \\ and \x00 \x1f', "汉字 é 😀 \u2028", "x" * (1 << 20))
_TORN = b'{"role":"user","content":"half of a rec'


class LinearStorage(Protocol):
    """The messages of one conversation in their order, with their token count."""

    @property
    def messages(self) -> Sequence[Any]:
        """All messages, the oldest first."""
        ...

    @property
    def token_count(self) -> int:
        """The last token count; 0 before the first."""
        ...

    async def append_message(self, message: Any) -> None:
        """Add a message behind all others."""

    async def mark_token_count(self, token_count: int) -> None:
        """Append the token count of the messages."""


class RestoredStorage(LinearStorage, Protocol):
    """A storage whose messages outlive it."""

    async def restore(self) -> None:
        """Load the stored messages; for a new object only."""


class LinearStorageContract:
    """The tests; a subclass makes the storage.

    Attributes:
        is_durable: another storage at the same path can restore the messages.
        is_shared: several storages at one path may be appended to at the same time.
        is_jsonl: the path is a file of JSON Lines, which a crash may leave with a torn end.
    """

    is_durable = True
    is_shared = False
    is_jsonl = False

    def make_storage(self, path: Path) -> LinearStorage:
        """Make a storage at a path, which is missing or was left by an earlier storage."""
        raise NotImplementedError(f"{type(self).__name__} has to override make_storage")

    def make_message(self, text: str) -> Any:
        """A user's message with this text, as the storage takes it."""
        return {"role": "user", "content": text}

    def text_of(self, message: Any) -> str:
        """The text of a message that the storage gave."""
        if isinstance(message, dict):
            return str(cast("dict[str, Any]", message)["content"])
        return str(message.content)

    def release(self, storage: LinearStorage) -> None:
        """Release a storage, so that the next one finds all its messages."""

    # --- the contract ----------------------------------------------------------------------------

    def test_a_new_storage_is_empty(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path / "context.jsonl")
        assert list(storage.messages) == []
        assert storage.token_count == 0

    def test_messages_stay_in_the_order_of_their_appends(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path / "context.jsonl")
        texts = [str(number) for number in range(50)]
        for number, text in enumerate(texts, 1):
            anyio.run(storage.append_message, self.make_message(text))
            assert self._texts(storage) == texts[:number]

    def test_the_last_token_count_holds_and_changes_no_message(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path / "context.jsonl")
        anyio.run(storage.append_message, self.make_message("hi"))
        for count in (7, 900, 0, 12):
            anyio.run(storage.mark_token_count, count)
            assert storage.token_count == count
        assert self._texts(storage) == ["hi"]

    def test_every_text_comes_back_as_it_was_given(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path / "context.jsonl")
        self._append(storage, _TEXTS)
        assert self._texts(storage) == [*_TEXTS]

    def test_appends_at_the_same_time_are_all_there_once(self, tmp_path: Path) -> None:
        storage = self.make_storage(tmp_path / "context.jsonl")
        anyio.run(self._append_at_once, [storage])
        assert sorted(self._texts(storage)) == sorted(_numbered(1))

    def test_a_restored_storage_is_as_the_first_one_was(self, tmp_path: Path) -> None:
        self._need(self.is_durable, "is_durable")
        path = tmp_path / "context.jsonl"
        first = self.make_storage(path)
        self._append(first, _TEXTS)
        for count in (7, 12):
            anyio.run(first.mark_token_count, count)
        self._append(first, ["the last"])
        self.release(first)

        second = self._restored(path)
        assert self._texts(second) == [*_TEXTS, "the last"]
        assert second.token_count == 12
        self._append(second, ["one more"])
        self.release(second)
        assert self._texts(self._restored(path)) == [*_TEXTS, "the last", "one more"]

    def test_nothing_is_restored_from_a_path_where_nothing_is(self, tmp_path: Path) -> None:
        self._need(self.is_durable, "is_durable")
        storage = self._restored(tmp_path / "context.jsonl")
        assert list(storage.messages) == []
        assert storage.token_count == 0

    def test_a_storage_that_has_messages_refuses_to_restore(self, tmp_path: Path) -> None:
        self._need(self.is_durable, "is_durable")
        storage = self.make_storage(tmp_path / "context.jsonl")
        self._append(storage, ["hi"])
        try:
            anyio.run(cast("RestoredStorage", storage).restore)
        except RuntimeError:
            assert self._texts(storage) == ["hi"]
        else:
            raise AssertionError("restore() of a storage that has messages raised no RuntimeError")

    def test_several_storages_at_one_path_lose_nothing(self, tmp_path: Path) -> None:
        self._need(self.is_shared, "is_shared")
        path = tmp_path / "context.jsonl"
        storages = [self.make_storage(path) for _ in range(3)]
        anyio.run(self._append_at_once, storages)
        for storage in storages:
            self.release(storage)
        assert sorted(self._texts(self._restored(path))) == sorted(_numbered(len(storages)))

    def test_empty_lines_are_passed_over(self, tmp_path: Path) -> None:
        self._need(self.is_jsonl, "is_jsonl")
        path = tmp_path / "context.jsonl"
        lines = [json.dumps({"role": "user", "content": text}) for text in ("one", "two")]
        path.write_text(f"\n{lines[0]}\n\n  \n{lines[1]}\n\n", encoding="utf-8")
        assert self._texts(self._restored(path)) == ["one", "two"]

    def test_a_torn_last_line_costs_itself_alone(self, tmp_path: Path) -> None:
        self._need(self.is_jsonl, "is_jsonl")
        path = tmp_path / "context.jsonl"
        whole = json.dumps({"role": "user", "content": "whole"}).encode() + b"\n"
        path.write_bytes(whole + _TORN)
        storage = self._restored(path)
        assert self._texts(storage) == ["whole"]
        self._append(storage, ["behind it"])
        self.release(storage)
        assert self._texts(self._restored(path)) == ["whole", "behind it"]

    # --- inside ----------------------------------------------------------------------------------

    def _need(self, claim: bool, name: str) -> None:
        if not claim:
            raise SkipTest(f"{type(self).__name__}.{name} is False: the storage does not claim it")

    def _restored(self, path: Path) -> LinearStorage:
        storage = self.make_storage(path)
        anyio.run(cast("RestoredStorage", storage).restore)
        return storage

    def _append(self, storage: LinearStorage, texts: Sequence[str]) -> None:
        for text in texts:
            anyio.run(storage.append_message, self.make_message(text))

    async def _append_at_once(self, storages: Sequence[LinearStorage]) -> None:
        async with anyio.create_task_group() as tasks:
            for number, storage in enumerate(storages):
                for text in _numbered_by(number):
                    tasks.start_soon(storage.append_message, self.make_message(text))

    def _texts(self, storage: LinearStorage) -> list[str]:
        return [self.text_of(message) for message in storage.messages]


def _numbered(storages: int) -> list[str]:
    return [text for number in range(storages) for text in _numbered_by(number)]


def _numbered_by(number: int) -> list[str]:
    return [f"{number}-{count}" for count in range(_AT_ONCE)]

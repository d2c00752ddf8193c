"""The adapters without their programs, for any message class.

Side by side with kimi-cli's and kosong's own classes they are tested in tests/interop.
"""

import copy
import fcntl
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread
import pytest

import steno
from steno.adapters import _twin
from steno.adapters._address import find_address
from steno.adapters._daemons import _clients
from steno.adapters._file_session import FileSession
from steno.adapters._wire_session import WireFileSession
from steno.adapters.kimi import Context, DenwaRenji, DenwaRenjiError, WireFile
from steno.adapters.kosong import MemoryLinearStorage, StenoLinearStorage
from support.crowd import wait_until
from support.daemons import end_daemons_below

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls")]

# From Python 3.12 on a fork beside libzmq's threads warns; these tests are about such forks.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

OTHER_NAMES = ["ctx.jsonl", "odd näme (1)"]
NAMES = pytest.mark.parametrize("name", ["context.jsonl", *OTHER_NAMES])
RACES = pytest.mark.parametrize(
    "name",
    ["context.jsonl", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_NAMES)],
)


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


class Signed(Note):
    """A note that asks for more than others have."""

    @classmethod
    def model_validate(cls, record: dict[str, Any]) -> Self:
        if "signature" not in record:
            raise ValueError("it is signed by nobody")
        return super().model_validate(record)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """STENO_HOME of the adapters; they share one daemon, as they would in a program."""
    folder = Path(tempfile.mkdtemp(prefix="steno-")).resolve()
    (folder / "tree").mkdir()
    (folder / "config.toml").write_text(f'[mounts]\ntree = "{folder}/tree"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STENO_HOME", str(folder))
        yield folder
        # Also those that adapters started for trees of their own.
        end_daemons_below(folder)
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


@RACES
async def test_many_tasks_and_objects_agree_on_all_messages(folder: Path, name: str) -> None:
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


@RACES
async def test_reverts_beside_appends_lose_no_acknowledged_message(folder: Path, name: str) -> None:
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


@NAMES
async def test_an_empty_restored_context_takes_in_other_appends(folder: Path, name: str) -> None:
    one, other = (Context(folder / name, message_type=Note) for _ in range(2))
    assert not await one.restore()
    assert not await other.restore()
    await other.append_message(Note("other"))
    await one.append_message(Note("one"))
    assert texts(one.history) == ["other", "one"]
    await other.checkpoint(add_user_message=False)
    assert texts(other.history) == ["other", "one"]


async def test_an_empty_restored_storage_takes_in_other_appends(folder: Path) -> None:
    path = folder / "context.jsonl"
    one, other = (StenoLinearStorage(path, message_type=Note) for _ in range(2))
    await one.restore()
    await other.append_message(Note("other"))
    await one.mark_token_count(3)
    assert texts(one.messages) == ["other"]


@pytest.mark.parametrize("is_restored", [False, True])
async def test_a_first_change_that_was_cancelled_is_taken_in_by_the_next(
    folder: Path, is_restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "context.jsonl"
    await Context(path).append_message(Note("before"))
    context = Context(path, message_type=Note)
    if is_restored:
        await context.restore()
    append = context._followed.file.append

    def lost(messages: Sequence[bytes]) -> steno.Ack:
        append(messages)
        raise InterruptedError

    # As asyncio's `cancel` of a task does it while the thread is at work.
    with monkeypatch.context() as patch:
        patch.setattr(context._followed.file, "append", lost)
        with pytest.raises(InterruptedError):
            await context.append_message(Note("cancelled"))
    await context.append_message(Note("next"))
    assert texts(context.history) == ["before"] * is_restored + ["cancelled", "next"]


@NAMES
@pytest.mark.parametrize("is_open", [False, True])
async def test_a_last_record_that_only_lacks_its_newline_is_restored(
    folder: Path, name: str, is_open: bool
) -> None:
    path = folder / name
    if is_open:
        await Context(path).append_message(Note("before"))
    whole = b'{"role":"user","content":"a"}\n{"role":"_checkpoint","id":3}\n'
    path.write_bytes(whole + b'{"role":"user","content":"b"}')
    # No process writes it any more, so no wait is needed.
    os.utime(path, (1, 1))
    context = Context(path, message_type=Note)
    storage = StenoLinearStorage(path, message_type=Note)
    assert await context.restore()
    await storage.restore()
    assert texts(context.history) == texts(storage.messages) == ["a", "b"]
    await storage.append_message(Note("c"))
    await context.append_message(Note("d"))
    assert texts(context.history) == ["a", "b", "c", "d"]
    assert path.read_bytes().startswith(whole + b'{"role":"user","content":"b"}\n{')


async def test_a_restore_leaves_an_end_that_is_no_record_as_it_is(folder: Path) -> None:
    path = folder / "context.jsonl"
    content = b'{"role":"user","content":"a"}\n{"role":"user","cont'
    path.write_bytes(content)
    context = Context(path, message_type=Note)
    assert await context.restore()
    assert texts(context.history) == ["a"]
    assert path.read_bytes() == content


async def test_a_checkpoint_that_another_object_set_can_be_reverted_to(folder: Path) -> None:
    path = folder / "context.jsonl"
    one, other = (Context(path, message_type=Note) for _ in range(2))
    await one.append_message(Note("a"))
    assert await other.restore()
    await one.checkpoint(add_user_message=False)
    await one.append_message(Note("b"))
    with pytest.raises(ValueError, match="checkpoint 1 does not exist"):
        await other.revert_to(1)
    assert texts(other.history) == ["a", "b"]
    await other.revert_to(0)
    assert texts(other.history) == ["a"]


async def test_a_folder_of_any_name_holds_a_context_and_its_events(
    home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "my séssion"
    folder.mkdir()
    path = folder / "context.jsonl"
    one, other = (Context(path, message_type=Note) for _ in range(2))
    await one.append_message(Note("a"))
    assert await other.restore()
    await one.checkpoint(add_user_message=False)
    await other.append_message(Note("b"))
    await one.revert_to(0)
    await one.append_message(Note("c"))
    events = WireFileSession(folder / "wire.jsonl")
    for _ in range(2):
        await anyio.to_thread.run_sync(
            events.append, b'{"timestamp":1.0,"message":{"type":"TurnEnd","payload":{}}}'
        )
    assert roles(path) == ["user", "user"]
    assert roles(folder / "context_1.jsonl") == ["user", "_checkpoint", "user"]
    again = Context(path, message_type=Note)
    assert await again.restore()
    assert texts(again.history) == ["a", "c"]
    assert len((folder / "wire.jsonl").read_bytes().splitlines()) == 3


@forks
@NAMES
def test_a_child_forked_during_an_adapter_call_can_use_adapters(folder: Path, name: str) -> None:
    file = FileSession(folder / name)
    file.append([b'{"role":"user","content":"before"}'])
    names = file.path.parent
    with _clients.guard, _twin.alone(names):
        child = os.fork()
        if child == 0:
            # It ends by the alarm if it hangs.
            signal.alarm(30)
            FileSession(folder / name).append([b'{"role":"user","content":"child"}'])
            signal.pause()
    try:
        with (names / _twin._LOCK).open() as lock:
            # The child has this file open, too.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        FileSession(folder / name).append([b'{"role":"user","content":"parent"}'])
        wait_until(lambda: len(roles(file.path)) == 3)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


async def test_a_failed_append_is_an_error_and_changes_nothing(folder: Path) -> None:
    context = Context(file_backend=folder / "context.jsonl")
    await context.append_message(Note("fine"))
    with pytest.raises(steno.TooLarge):
        await context.append_message(Note("x" * (17 << 20)))
    assert texts(context.history) == ["fine"]
    assert roles(folder / "context.jsonl") == ["user"]
    with pytest.raises(ValueError, match="checkpoint 0 does not exist"):
        await context.revert_to(0)


async def test_an_object_refuses_a_second_thread_and_stays_intact(
    folder: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    context = Context(file_backend=folder / "context.jsonl")
    append = FileSession.append

    async def append_soon(text: str) -> None:
        with anyio.fail_after(60):
            await context.append_message(Note(text))

    def append_in_a_loop_of_this_thread(text: str) -> None:
        anyio.run(append_soon, text, backend=anyio_backend_name)

    refused: list[str] = []

    def append_beside_another_thread(file: FileSession, messages: Sequence[bytes]) -> steno.Ack:
        # This is a thread beside the loop, and so may run one of its own.
        with pytest.raises(steno.BadRequest, match="object of its own") as raised:
            append_in_a_loop_of_this_thread("refused")
        refused.append(raised.value.message)
        return append(file, messages)

    monkeypatch.setattr(FileSession, "append", append_beside_another_thread)
    await context.append_message(Note("a"))
    monkeypatch.undo()
    assert len(refused) == 1
    assert roles(folder / "context.jsonl") == ["user"]
    # One after the other they may.
    await anyio.to_thread.run_sync(append_in_a_loop_of_this_thread, "b")
    await context.append_message(Note("c"))
    assert texts(context.history) == ["a", "b", "c"]


async def test_a_context_without_a_message_class_writes_no_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kosong.message", None)
    context = Context(file_backend=folder / "context.jsonl")
    with pytest.raises(ModuleNotFoundError, match="pip install kosong"):
        await context.checkpoint(True)
    assert list(folder.iterdir()) == []


@NAMES
async def test_a_relative_path_stays_where_it_was_when_the_working_directory_changes(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    context = await anyio.to_thread.run_sync(Context, name)
    await context.append_message(Note("a"))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    await context.append_message(Note("b"))
    await context.checkpoint(add_user_message=False)
    await context.revert_to(0)
    assert texts(context.history) == ["a", "b"]
    assert context.file_backend == Path(name)
    assert list(elsewhere.iterdir()) == []
    again = Context(folder / name, message_type=Note)
    assert await again.restore()
    assert texts(again.history) == ["a", "b"]


@pytest.mark.parametrize("message_type", [None, Note])
async def test_a_message_of_a_subclass_hides_no_other_message(
    folder: Path, message_type: type | None
) -> None:
    context = Context(folder / "context.jsonl", message_type=message_type)
    for batch in ([Note("a")], [Signed("b"), Note("c")], [Signed("d")]):
        await context.append_message(batch)
    await context.checkpoint(add_user_message=False)
    await context.revert_to(0)
    assert texts(context.history) == ["a", "b", "c", "d"]


async def test_a_given_message_class_is_used_for_reading(folder: Path) -> None:
    context = Context(folder / "context.jsonl", message_type=Signed)
    await context.append_message(Note("unsigned"))
    await context.checkpoint(add_user_message=False)
    await context.revert_to(0)
    assert texts(context.history) == []


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))], ids=["copy", "pickle"]
)
async def test_a_copy_of_an_object_goes_on_in_its_file(
    folder: Path, copied: Callable[[Any], Any]
) -> None:
    context = Context(folder / "context.jsonl", message_type=Note)
    await context.append_message(Note("a"))
    again = copied(context)
    await context.append_message(Note("b"))
    await again.append_message(Note("c"))
    assert (texts(context.history), texts(again.history)) == (["a", "b"], ["a", "b", "c"])


async def test_a_storage_keeps_messages_and_the_last_count(folder: Path) -> None:
    for storage in (StenoLinearStorage(folder / "context.jsonl"), MemoryLinearStorage()):
        await storage.append_message(Note("a"))
        await storage.mark_token_count(3)
        await storage.append_message(Note("b"))
        assert (texts(storage.messages), storage.token_count) == (["a", "b"], 3)
    assert roles(folder / "context.jsonl") == ["user", "_usage", "user"]


async def test_a_plain_dict_is_a_message_of_the_class_of_the_others(folder: Path) -> None:
    path = folder / "context.jsonl"
    given: dict[str, Any] = {"role": "user", "content": "hi", "extra": None}
    context = Context(path)
    await context.append_message([Note("first"), given])
    await context.append_message(given)
    storage = StenoLinearStorage(path, message_type=Note)
    await storage.append_message(given)
    memory = MemoryLinearStorage()
    await memory.append_message(Note("first"))
    await memory.append_message(given)

    for shown in (context.history, storage.messages, memory.messages):
        assert {type(message) for message in shown} == {Note}
    assert texts(context.history) == ["first", "hi", "hi"]
    assert texts(memory.messages) == ["first", "hi"]
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines == [{"role": "user", "content": "first"}, given, given, given]


async def test_a_dict_that_is_no_message_is_refused_without_a_change(folder: Path) -> None:
    path = folder / "context.jsonl"
    context = Context(path, message_type=Note)
    for odd, reason in (
        ({"role": "user", "content": 5}, "the dict is no Note: a note holds text"),
        ({"role": "user", "content": "x", "n": float("nan")}, "the message's field n is NaN"),
        ({"role": "user", "content": "x", "n": {1}}, "the message's field n is a set"),
    ):
        with pytest.raises(steno.BadRequest, match=f"^{reason}"):
            await context.append_message(odd)
        with pytest.raises(steno.BadRequest, match=f"^message 2 of 2: {reason}"):
            await context.append_message([Note("fine"), odd])
    assert (context.history, path.exists()) == ([], False)


class Roled(Note):
    """A message of a program that knows the role `system` only, as kosong does."""

    role = "system"

    @classmethod
    def model_validate(cls, record: dict[str, Any]) -> Self:
        if record["role"] != "system":
            raise ValueError("only system is a role")
        return super().model_validate(record)


async def test_the_role_developer_is_system_for_a_class_that_knows_only_that(folder: Path) -> None:
    path = folder / "context.jsonl"
    given = {"role": "developer", "content": "hi"}
    await Context(path, message_type=Note).append_message(given)
    context = Context(path, message_type=Roled)
    assert await context.restore()
    assert texts(context.history) == ["hi"]
    await context.append_message(given)
    with pytest.raises(steno.BadRequest, match="the dict is no Roled: only system"):
        await context.append_message({"role": "function", "content": "hi"})
    assert texts(context.history) == ["hi", "hi"]
    assert roles(path) == ["developer", "system"]


async def test_an_event_may_be_a_plain_dict(folder: Path) -> None:
    wire = WireFile(folder / "wire.jsonl")
    await wire.append_message({"type": "Noted", "payload": {}}, timestamp=1.5)
    await wire.append_record({"timestamp": 2, "message": {"type": "Noted", "payload": {"n": 1}}})
    with pytest.raises(steno.BadRequest, match=r"the event's field message.payload.n is NaN"):
        await wire.append_message({"type": "Noted", "payload": {"n": float("nan")}})
    _, *events = [json.loads(line) for line in wire.path.read_bytes().splitlines()]
    assert events == [
        {"timestamp": 1.5, "message": {"type": "Noted", "payload": {}}},
        {"timestamp": 2, "message": {"type": "Noted", "payload": {"n": 1}}},
    ]


async def test_a_message_of_another_form_is_refused_without_a_change(folder: Path) -> None:
    path = folder / "context.jsonl"
    context, storage = Context(path), StenoLinearStorage(path)
    message: Any = b'{"role":"user","content":"hi"}'
    with pytest.raises(steno.BadRequest, match=r"a pydantic model here, .* not a bytes"):
        await storage.append_message(message)
    with pytest.raises(steno.BadRequest, match=r"^message 2 of 3: .* model here, .* not a object"):
        await context.append_message([Note("fine"), object(), Note("fine")])  # type: ignore[list-item]  # the mistake
    assert (context.history, path.exists()) == ([], False)
    # kimi-cli gives a Path; a text is as good.
    wire = WireFile(str(folder / "wire.jsonl"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(steno.BadRequest, match=r"a pydantic model here, .* not a bytes"):
        await wire.append_record(message)
    assert wire.is_empty()
    with pytest.raises(DenwaRenjiError, match="is not a str"):
        DenwaRenji(path).send_dmail("hi")  # type: ignore[arg-type]  # the mistake

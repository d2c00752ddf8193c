"""The SimpleCompaction adapter, with a substitute for kimi-cli's class.

Side by side with kimi-cli's it is tested in tests/interop.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import pytest

import steno
from steno.adapters.kimi import Context, SimpleCompaction
from steno_protocol import timeline_entries
from support.daemon_in_thread import DaemonInThread

pytestmark = pytest.mark.anyio

NAMES = pytest.mark.parametrize("name", ["context.jsonl", "odd näme (1)"])


class Note:
    """A message, with as much of a pydantic model as the adapter needs."""

    def __init__(self, content: Any, role: str = "user", **extra: Any) -> None:
        self.record = {"role": role, "content": content, **extra}

    @property
    def content(self) -> Any:
        return self.record["content"]

    def model_dump_json(self, *, exclude_none: bool) -> str:
        return json.dumps(self.record, ensure_ascii=False)

    @classmethod
    def model_validate(cls, record: dict[str, Any]) -> "Note":
        return cls(**{key: each for key, each in record.items() if not key.startswith("_")})


@dataclass
class Result:
    """What kimi-cli's class returns."""

    messages: Sequence[Note]
    usage: Any = None


class TheirCompaction:
    """A class that keeps the given number of messages; its model is a function."""

    def __init__(self, max_preserved_messages: int = 2) -> None:
        self.kept = max_preserved_messages

    def prepare(self, messages: Sequence[Note], *, custom_instruction: str = "") -> Any:
        return len(messages) - self.kept, custom_instruction

    async def compact(
        self,
        messages: Sequence[Note],
        llm: Callable[[], Awaitable[str]],
        *,
        custom_instruction: str = "",
    ) -> Result:
        cut = len(messages) - self.kept
        if cut <= 0:
            return Result(messages)
        summary = Note(f"{await llm()}{custom_instruction} of {cut}")
        return Result([summary, *messages[cut:]], SimpleNamespace(output=40))


@pytest.fixture(autouse=True)
def theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, where kimi-cli's class would be."""
    module = ModuleType("kimi_cli.soul.compaction")
    module.SimpleCompaction = TheirCompaction  # type: ignore[attr-defined]
    for name in ("kimi_cli", "kimi_cli.soul"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "kimi_cli.soul.compaction", module)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for one session in a root of its own."""
    home = Path(tempfile.mkdtemp(prefix="steno-")).resolve()
    (home / "tree" / "demo").mkdir(parents=True)
    (home / "config.toml").write_text(f'[mounts]\ntree = "{home}/tree"\n')
    with pytest.MonkeyPatch.context() as patch, DaemonInThread(home):
        patch.setenv("STENO_HOME", str(home))
        yield home / "tree" / "demo"
    shutil.rmtree(home)


async def model() -> str:
    return "In short"


async def talked(path: Path, count: int = 4) -> Context:
    """A context with messages that are numbered."""
    context = Context(path, message_type=Note)
    await context.restore()
    await context.write_system_prompt("be kind")
    await context.checkpoint(add_user_message=False)
    for number in range(count):
        await context.append_message(Note(f"{number}"))
    return context


async def put_in_place(context: Context, result: Result, *, notice: bool = False) -> None:
    """As kimi-cli's soul does it."""
    await context.clear()
    await context.write_system_prompt("be kind")
    await context.checkpoint(add_user_message=notice)
    await context.append_message(result.messages)
    await context.update_token_count(50)


def texts(context: Context) -> list[Any]:
    return [message.content for message in context.history]


def roles(path: Path) -> list[str]:
    return [json.loads(line)["role"] for line in path.read_bytes().splitlines()]


def rewrites() -> list[str]:
    """The rewrites of the session `tree:demo`, oldest first."""
    with steno.connect_sync() as client:
        kinds = [entry.kind for entry in client.session("tree:demo").timeline()]
    return [kind for kind in kinds if kind in timeline_entries.REWRITES]


async def appended_by_another(path: Path, text: str) -> None:
    await Context(path, message_type=Note).append_message(Note(text))


@NAMES
async def test_a_compaction_is_one_rewrite_that_keeps_other_appends(
    folder: Path, name: str
) -> None:
    path = folder / name
    context = await talked(path)

    async def slow_model() -> str:
        await appended_by_another(path, "while the model thinks")
        return "In short"

    result = await SimpleCompaction().compact(
        context.history, slow_model, custom_instruction=", as told,"
    )
    assert [message.content for message in result.messages] == ["In short, as told, of 2", "2", "3"]
    before = path.read_bytes()
    await context.clear()
    await context.write_system_prompt("be kind")
    await appended_by_another(path, "behind the clear")
    await context.checkpoint(add_user_message=False)
    assert path.read_bytes().startswith(before)
    await context.append_message(result.messages)

    expected = [
        "In short, as told, of 2", "2", "3", "while the model thinks", "behind the clear",
    ]  # fmt: skip
    assert texts(context) == expected
    assert roles(path) == ["_system_prompt", "_checkpoint", *["user"] * 5, "_usage"]
    assert (context.system_prompt, context.n_checkpoints) == ("be kind", 2)
    await context.update_token_count(50)
    again = Context(path, message_type=Note)
    assert await again.restore()
    assert (texts(again), again.token_count) == (expected, 50)
    rotated = path.with_name(f"{path.stem}_1{path.suffix}")
    assert rotated.read_bytes().startswith(before)
    if name == "context.jsonl":
        assert rewrites() == ["compacted"]


async def test_the_notice_of_the_checkpoint_is_the_first_part_of_the_summary(folder: Path) -> None:
    context = await talked(folder / "context.jsonl")
    result = await SimpleCompaction(1).compact(context.history, model)
    await put_in_place(context, result, notice=True)
    first, *rest = texts(context)
    parts = [part["text"] for part in first]
    assert parts == ["<system>CHECKPOINT 1</system>", "In short of 3"]
    assert rest == ["3"]
    assert (context.token_count, context.n_checkpoints) == (50, 2)


async def test_another_system_prompt_is_put_in_the_place_of_the_old_one(folder: Path) -> None:
    context = await talked(folder / "context.jsonl")
    result = await SimpleCompaction().compact(context.history, model)
    await context.clear()
    await context.write_system_prompt("be brief")
    await context.checkpoint(add_user_message=False)
    await context.append_message(result.messages)
    assert (context.system_prompt, len(context.history)) == ("be brief", 3)
    assert rewrites() == ["compacted", "prompted"]


async def test_a_tools_result_stays_with_its_call(folder: Path) -> None:
    context = await talked(folder / "context.jsonl", 2)
    call = {"type": "function", "id": "c", "function": {"name": "look", "arguments": "{}"}}
    await context.append_message(Note("I look", "assistant", tool_calls=[call]))
    await context.append_message(Note("seen", "tool", tool_call_id="c"))
    await context.append_message(Note("so it is", "assistant"))
    result = await SimpleCompaction().compact(context.history, model)
    await put_in_place(context, result)
    assert texts(context) == ["In short of 3", "I look", "seen", "so it is"]


async def test_a_process_that_dies_midway_leaves_the_file_unchanged(folder: Path) -> None:
    path = folder / "context.jsonl"
    context = await talked(path)
    result = await SimpleCompaction().compact(context.history, model)
    before = path.read_bytes()
    await context.clear()
    await context.write_system_prompt("be kind")
    await context.checkpoint(add_user_message=True)
    assert path.read_bytes() == before
    assert texts(context) == ["0", "1", "2", "3"]
    assert len(result.messages) == 3


async def test_a_clear_that_no_summary_follows_is_a_clear(folder: Path) -> None:
    path = folder / "context.jsonl"
    context = await talked(path)
    await SimpleCompaction().compact(context.history, model)
    await context.clear()
    await context.write_system_prompt("be kind")
    await context.checkpoint(add_user_message=True)
    await context.append_message(Note("another matter"))
    assert texts(context) == ["<system>CHECKPOINT 0</system>", "another matter"]
    assert roles(path) == ["_system_prompt", "_checkpoint", "user", "user"]
    assert rewrites() == ["cleared"]


async def test_an_abandoned_compaction_changes_no_later_clear(folder: Path) -> None:
    path = folder / "context.jsonl"
    context = await talked(path)
    await SimpleCompaction().compact(context.history, model)
    await context.append_message(Note("4"))
    await context.clear()
    assert path.read_bytes() == b""

    for number in range(4):
        await context.append_message(Note(f"{number}"))
    await SimpleCompaction().compact(context.history, model)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(context.clear)
    assert path.read_bytes() == b""


async def test_an_append_of_another_task_leaves_the_compaction_one_rewrite(folder: Path) -> None:
    context = await talked(folder / "context.jsonl")
    result = await SimpleCompaction().compact(context.history, model)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(context.append_message, Note("from another task"))
    await put_in_place(context, result)
    assert texts(context) == ["In short of 2", "2", "3", "from another task"]
    assert rewrites() == ["compacted"]


async def test_a_rewrite_in_between_is_a_conflict_and_changes_nothing(folder: Path) -> None:
    path = folder / "context.jsonl"
    context = await talked(path)
    result = await SimpleCompaction().compact(context.history, model)
    other = Context(path, message_type=Note)
    await other.restore()
    await other.revert_to(0)
    with pytest.raises(steno.Conflict, match="was rewritten"):
        await put_in_place(context, result)
    assert roles(path) == ["_system_prompt"]
    await context.append_message(Note("on"))
    assert texts(context) == ["on"]


async def test_a_failing_model_leaves_no_lease_behind(folder: Path) -> None:
    path = folder / "context.jsonl"
    context = await talked(path)
    before = path.read_bytes()

    async def failing() -> str:
        raise ValueError("no credit")

    with pytest.raises(ValueError, match="no credit"):
        await SimpleCompaction().compact(context.history, failing)
    assert path.read_bytes() == before
    # No caller has to wait for a lease.
    result = await SimpleCompaction().compact(context.history, model)
    other = Context(path, message_type=Note)
    await other.restore()
    with pytest.raises(steno.Busy):
        await SimpleCompaction().compact(other.history, model)
    await put_in_place(context, result)
    assert texts(context) == ["In short of 2", "2", "3"]


@pytest.mark.parametrize("kind", ["a list", "nothing to do", "not restored"])
async def test_other_calls_stay_a_clear_and_appends(folder: Path, kind: str) -> None:
    path = folder / "context.jsonl"
    context = await talked(path, 1 if kind == "nothing to do" else 4)
    if kind == "not restored":
        context = Context(path, message_type=Note)
        for number in range(4):
            await context.append_message(Note(f"{number}"))
    history = list(context.history) if kind == "a list" else context.history
    result = await SimpleCompaction().compact(history, model)
    expected = [message.content for message in result.messages]
    await put_in_place(context, result)
    assert texts(context) == expected
    assert rewrites() == ["cleared"]


async def test_the_summary_prompt_equals_that_of_kimi_cli(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = await talked(folder / "context.jsonl")
    compaction = SimpleCompaction(3)
    assert compaction.prepare(context.history, custom_instruction="paths") == (1, "paths")
    monkeypatch.setitem(sys.modules, "kimi_cli.soul.compaction", None)
    with pytest.raises(ModuleNotFoundError, match="pip install kimi-cli"):
        compaction.prepare(context.history)

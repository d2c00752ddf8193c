"""The twin of kimi-cli's Context beside the original."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import steno
from interop.kimi_operations import facts, message, message_lines, operations
from interop.peers import peer
from steno.adapters.kimi import Context, DenwaRenji, DenwaRenjiError

pytestmark = pytest.mark.interop

KimiContext = peer("kimi_cli.soul.context").Context
kosong = peer("kosong.message")


def user(text: str) -> Any:
    """A message of a user."""
    return kosong.Message(role="user", content=text)


def records(path: Path) -> list[dict[str, Any]]:
    """The records of a file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def texts(context: Any) -> list[str]:
    """The texts of a history."""
    return [message.extract_text() for message in context.history]


@pytest.mark.parametrize("name", ["context.jsonl", "ctx.jsonl"])
@pytest.mark.parametrize("number", range(8))
def test_the_same_operations_make_the_same_history_counts_and_file(
    folder: Path, tmp_path: Path, seed: int, name: str, number: int
) -> None:
    random = Random(f"{seed}-{number}")
    ours_at, theirs_at = folder / name, tmp_path / name
    ours, theirs = Context(file_backend=ours_at), KimiContext(file_backend=theirs_at)

    async def live() -> None:
        nonlocal ours, theirs
        for choose in operations(random, 40):
            operation = choose(theirs)
            if operation.name == "clear" and not theirs_at.exists():
                continue
            await operation.on(theirs)
            await operation.on(ours)
            assert facts(ours) == facts(theirs), operation
            assert records(ours_at) == records(theirs_at), operation
            assert message_lines(ours_at) == message_lines(theirs_at), operation
            if random.random() < 0.1:
                ours, theirs = Context(file_backend=ours_at), KimiContext(file_backend=theirs_at)
                assert await ours.restore() == await theirs.restore()
                assert facts(ours) == facts(theirs)

    asyncio.run(live())

    reread = KimiContext(file_backend=ours_at)
    asyncio.run(reread.restore())
    assert facts(reread)["history"] == facts(ours)["history"]


def test_rotated_files_have_kimi_clis_names(folder: Path, tmp_path: Path) -> None:
    async def live(context: Any) -> None:
        for round_number in range(3):
            await context.append_message(user(f"round {round_number}"))
            await context.checkpoint(True)
            await context.append_message(user("dropped"))
            await context.revert_to(0)
        await context.clear()

    for name in ("context", "ctx"):
        asyncio.run(live(Context(file_backend=folder / f"{name}.jsonl")))
        asyncio.run(live(KimiContext(file_backend=tmp_path / f"{name}.jsonl")))
        for number in range(1, 5):
            rotated = f"{name}_{number}.jsonl"
            assert records(folder / rotated) == records(tmp_path / rotated)


@pytest.mark.parametrize("name", ["context", "ctx"])
def test_a_rotated_file_is_numbered_behind_all_that_are_there(
    folder: Path, tmp_path: Path, name: str
) -> None:
    async def live(context: Any) -> None:
        (context.file_backend.parent / f"{name}_5.jsonl").write_text("older\n")
        for _ in range(2):
            await context.append_message(user("dropped"))
            await context.clear()

    asyncio.run(live(Context(file_backend=folder / f"{name}.jsonl")))
    asyncio.run(live(KimiContext(file_backend=tmp_path / f"{name}.jsonl")))

    rotated = sorted(path.name for path in folder.glob(f"{name}_*.jsonl"))
    assert rotated == sorted(path.name for path in tmp_path.glob(f"{name}_*.jsonl"))
    assert rotated == [f"{name}_{number}.jsonl" for number in (5, 6, 7)]
    assert (folder / rotated[0]).read_text() == "older\n"


def test_two_objects_on_one_path_see_each_other_at_their_next_call(folder: Path) -> None:
    async def live() -> None:
        one, other = (Context(file_backend=folder / "context.jsonl") for _ in range(2))
        await one.append_message(user("a"))
        await other.restore()
        await one.append_message(user("b"))
        await one.checkpoint(False)
        await other.append_message(user("c"))
        assert texts(other) == ["a", "b", "c"]
        await other.checkpoint(False)
        assert (one.n_checkpoints, other.n_checkpoints) == (1, 2)
        await one.update_token_count(7)
        assert texts(one) == ["a", "b", "c"]
        await other.revert_to(0)
        await one.append_message(user("d"))
        assert texts(one) == ["a", "b", "d"]
        assert one.n_checkpoints == 0

    asyncio.run(live())


@pytest.mark.parametrize("name", ["context.jsonl", "ctx.jsonl"])
def test_records_of_kimi_cli_are_adopted_at_their_place(folder: Path, name: str) -> None:
    path = folder / name

    async def live() -> None:
        ours = Context(file_backend=path)
        await ours.append_message(user("one"))
        theirs = KimiContext(file_backend=path)
        await theirs.restore()
        await theirs.append_message(user("two"))
        await theirs.checkpoint(False)
        await ours.append_message(user("three"))
        assert texts(ours) == ["one", "two", "three"]
        assert ours.n_checkpoints == 1
        assert ours.token_count_with_pending == theirs.token_count_with_pending + len("three") // 4
        assert texts(ours) == [record["content"] for record in records(path) if "content" in record]

    asyncio.run(live())


@pytest.mark.parametrize("name", ["context.jsonl", "ctx.jsonl"])
def test_programs_alternate_on_one_session_and_restore_each_other(
    folder: Path, tmp_path: Path, seed: int, name: str
) -> None:
    random = Random(f"{seed}-turns")
    shared_at, alone_at = folder / name, tmp_path / name
    shared, alone = Context(file_backend=shared_at), KimiContext(file_backend=alone_at)

    async def live() -> None:
        nonlocal shared, alone
        for turn in range(8):
            for choose in operations(random, 5):
                operation = choose(alone)
                if operation.name == "clear" and not alone_at.exists():
                    continue
                await operation.on(alone)
                await operation.on(shared)
            kind = Context if turn % 2 else KimiContext
            shared, alone = kind(file_backend=shared_at), KimiContext(file_backend=alone_at)
            assert await shared.restore() == await alone.restore()
            assert facts(shared) == facts(alone)
            assert records(shared_at) == records(alone_at)

    asyncio.run(live())


@pytest.mark.parametrize("name", ["context.jsonl", "ctx.jsonl"])
def test_a_revert_by_kimi_cli_itself_is_followed(folder: Path, name: str) -> None:
    path = folder / name

    async def live() -> None:
        ours = Context(file_backend=path)
        await ours.append_message(user("kept"))
        await ours.checkpoint(False)
        await ours.append_message(user("dropped"))
        theirs = KimiContext(file_backend=path)
        await theirs.restore()
        await theirs.revert_to(0)
        await ours.append_message(user("after"))
        assert texts(ours) == ["kept", "after"]
        assert [record["content"] for record in records(path)] == ["kept", "after"]

    asyncio.run(live())


@pytest.mark.parametrize("name", ["context.jsonl", "ctx.jsonl"])
def test_a_file_that_was_removed_begins_anew(folder: Path, name: str) -> None:
    path = folder / name

    async def live() -> None:
        ours = Context(file_backend=path)
        await ours.append_message(user("gone"))
        path.unlink()
        again = Context(file_backend=path)
        assert not await again.restore()
        await again.append_message(user("new"))
        assert [record["content"] for record in records(path)] == ["new"]

    asyncio.run(live())


def test_a_checkpoint_that_is_not_there_is_a_value_error_and_changes_nothing(folder: Path) -> None:
    path = folder / "context.jsonl"

    async def live() -> None:
        context = Context(file_backend=path)
        await context.append_message(user("a"))
        await context.checkpoint(False)
        before = path.read_bytes()
        for number in (1, -1):
            with pytest.raises(ValueError, match="does not exist"):
                await context.revert_to(number)
        assert path.read_bytes() == before
        assert not (folder / "context_1.jsonl").exists()

    asyncio.run(live())


def test_a_checkpoint_protects_where_kimi_clis_ids_are_used_again(folder: Path) -> None:
    path = folder / "context.jsonl"

    async def run() -> None:
        mine, theirs = Context(path), Context(path)
        mark: Any = await mine.checkpoint(False)
        await mine.append_message(user("of A"))
        await theirs.restore()
        await theirs.revert_to(mark)
        await theirs.append_message(user("of B"))
        again: Any = await theirs.checkpoint(False)
        await theirs.append_message(user("more of B"))
        assert (mark.id, again.id) == (0, 0)

        for checkpoint in (mark, mark.handle):
            with pytest.raises(steno.Conflict, match="checkpoint 0 is another one now"):
                await mine.revert_to(checkpoint)
            mail = SimpleNamespace(checkpoint_id=checkpoint, message="back")
            with pytest.raises(DenwaRenjiError, match="checkpoint 0 is another one now"):
                await asyncio.to_thread(DenwaRenji(path).send_dmail, mail)
        await mine.revert_to(again)
        assert texts(mine) == ["of B"]

    asyncio.run(run())


def test_a_missing_folder_is_an_error_and_is_never_made(folder: Path) -> None:
    async def live(context: Any) -> None:
        with pytest.raises(RuntimeError):
            await context.clear()
        assert not await context.restore()
        with pytest.raises(FileNotFoundError):
            await context.append_message(user("a"))

    for kind in (Context, KimiContext):
        asyncio.run(live(kind(file_backend=folder / "missing" / "context.jsonl")))
    assert not (folder / "missing").exists()


def test_a_message_that_cannot_be_written_is_in_neither_memory_nor_file(folder: Path) -> None:
    path = folder / "context.jsonl"

    async def live() -> None:
        context = Context(file_backend=path)
        await context.append_message(user("a"))
        with pytest.raises(steno.BadRequest):
            await context.append_message(_Unwritable())
        assert texts(context) == ["a"]
        assert len(records(path)) == 1

    asyncio.run(live())


class _Unwritable:
    def model_dump_json(self, *, exclude_none: bool) -> str:
        """No message at all."""
        return '{"role":"user"}'


def test_restore_is_for_an_object_without_history(folder: Path) -> None:
    async def live() -> None:
        context = Context(file_backend=folder / "context.jsonl")
        assert not await context.restore()
        await context.append_message(message(Random(1)))
        with pytest.raises(RuntimeError, match="already"):
            await context.restore()

    asyncio.run(live())


def test_part_of_an_unknown_type_stays_and_stops_no_restore(folder: Path) -> None:
    path = folder / "context.jsonl"
    strange = b'{"role":"user","content":[{"type":"hologram","beam":[1,2]}],"mood":"calm"}\n'
    path.write_bytes(strange + b'{"role":"user","content":"plain"}\n')

    async def live() -> None:
        context = Context(file_backend=path)
        assert await context.restore()
        await context.checkpoint(False)
        await context.revert_to(0)
        assert texts(context) == ["plain"]

    asyncio.run(live())
    assert path.read_bytes().startswith(strange)


@pytest.mark.parametrize(
    "odd",
    [b'{"role":"user","content":"tab \t bell \x07"}\n', b'{"role":"user","content":"\xe4\xb8"}\n'],
)
def test_a_line_that_kimi_cli_reads_survives_a_revert(
    folder: Path, tmp_path: Path, odd: bytes
) -> None:
    plain = b'{"role":"user","content":"plain"}\n'

    async def live(context: Any) -> dict[str, Any]:
        context.file_backend.write_bytes(odd + plain)
        await context.restore()
        await context.checkpoint(False)
        await context.append_message(user("dropped"))
        await context.revert_to(0)
        return facts(context)

    ours = asyncio.run(live(Context(file_backend=folder / "context.jsonl")))
    theirs = asyncio.run(live(KimiContext(file_backend=tmp_path / "context.jsonl")))

    assert ours == theirs
    assert len(ours["history"]) == 2
    assert (folder / "context.jsonl").read_bytes() == odd + plain


def test_a_last_line_that_kimi_cli_reads_is_restored_and_stays(
    folder: Path, tmp_path: Path
) -> None:
    lines = b'{"role":"user","content":"one"}\n{"role":"user","content":"a \t tab"}\n'

    async def live(context: Any) -> dict[str, Any]:
        context.file_backend.write_bytes(lines)
        await context.restore()
        await context.append_message(user("new"))
        return facts(context)

    ours = asyncio.run(live(Context(file_backend=folder / "context.jsonl")))
    theirs = asyncio.run(live(KimiContext(file_backend=tmp_path / "context.jsonl")))

    assert ours == theirs
    assert len(ours["history"]) == 3
    assert (folder / "context.jsonl").read_bytes().startswith(lines)


_PROGRAM = """
import asyncio, sys
from pathlib import Path
from kosong.message import Message
from steno.adapters.kimi import Context, DenwaRenji, DenwaRenjiError

async def main():
    context = Context(file_backend=Path(sys.argv[1]))
    for number in range(25):
        await context.append_message(Message(role="user", content=f"{sys.argv[2]}-{number}"))

asyncio.run(main())
"""


def test_programs_without_any_setup_share_a_daemon_that_the_last_of_them_ends(
    tmp_path: Path, home: Path
) -> None:
    root = home / "fresh"
    path = tmp_path / "context.jsonl"
    environment = {**os.environ, "STENO_HOME": str(root)}
    programs = [
        subprocess.Popen([sys.executable, "-c", _PROGRAM, str(path), f"p{number}"], env=environment)
        for number in range(3)
    ]

    assert [program.wait(60) for program in programs] == [0, 0, 0]

    contents = [record["content"] for record in records(path)]
    assert sorted(contents) == sorted(f"p{n}-{k}" for n in range(3) for k in range(25))
    for number in range(3):
        own = [content for content in contents if content.startswith(f"p{number}-")]
        assert own == [f"p{number}-{k}" for k in range(25)]
    [tree] = (root / "adapters").iterdir()
    with (tree / "stenod.lock").open("rb") as lock:
        # The daemon holds it for its life.
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert not (tree / "stenod.sock").exists()

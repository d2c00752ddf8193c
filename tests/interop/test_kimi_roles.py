"""Roles that kimi-cli does not know, in files that kimi-cli and its twin restore."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import steno
from interop.peers import peer
from steno.adapters.kimi import Context
from steno.adapters.kosong import StenoLinearStorage
from support.command import Steno

pytestmark = pytest.mark.interop

KimiContext = peer("kimi_cli.soul.context").Context
kosong = peer("kosong.message")
LinearContext = peer("kosong.contrib.context.linear").LinearContext

FOREIGN = [
    {"role": "developer", "content": "be brief"},
    {"role": "function", "name": "f", "content": "done"},
]


def _written(home: Path, folder: Path) -> Path:
    """A file in which clients of steno wrote foreign roles between two messages."""
    with steno.connect_sync(home) as client:
        session = client.open(f"kimi:{folder.name}")
        session.append_message({"role": "user", "content": "one"})
        session.append_message(FOREIGN)
        session.checkpoint()
        session.append_message({"role": "user", "content": "two"})
    return folder / "context.jsonl"


def _heard(context: Any) -> list[tuple[str, str]]:
    return [(message.role, message.extract_text()) for message in context.history]


def test_kimi_cli_restores_a_file_with_foreign_roles_without_them(home: Path, folder: Path) -> None:
    path = _written(home, folder)

    async def restore() -> Any:
        context = KimiContext(file_backend=path)
        assert await context.restore()
        return context

    context = asyncio.run(restore())
    assert _heard(context) == [("user", "one"), ("user", "two")]
    assert context.n_checkpoints == 1
    roles = [json.loads(line)["role"] for line in path.read_bytes().splitlines()]
    assert roles == ["user", "developer", "function", "_checkpoint", "user"]


def test_a_revert_of_kimi_cli_drops_foreign_roles_and_keeps_them_in_the_rotated_file(
    home: Path, folder: Path
) -> None:
    path = _written(home, folder)

    async def revert() -> None:
        context = KimiContext(file_backend=path)
        await context.restore()
        await context.revert_to(0)

    asyncio.run(revert())
    kept = [json.loads(line)["role"] for line in path.read_bytes().splitlines()]
    rotated = (folder / "context_1.jsonl").read_bytes().splitlines()
    assert kept == ["user"]
    assert [json.loads(line)["role"] for line in rotated][:3] == ["user", "developer", "function"]


def test_the_twin_shows_developer_as_system_and_a_revert_keeps_all_roles(
    home: Path, folder: Path
) -> None:
    path = _written(home, folder)

    async def live() -> None:
        context = Context(file_backend=path)
        assert await context.restore()
        assert _heard(context) == [("user", "one"), ("system", "be brief"), ("user", "two")]
        await context.revert_to(0)
        assert _heard(context) == [("user", "one"), ("system", "be brief")]

    asyncio.run(live())
    kept = [json.loads(line)["role"] for line in path.read_bytes().splitlines()]
    assert kept == ["user", "developer", "function"]


def test_dicts_that_the_twin_appends_are_restored_by_kimi_cli(folder: Path) -> None:
    path = folder / "context.jsonl"

    async def live() -> None:
        twin = Context(file_backend=path)
        await twin.append_message([FOREIGN[0], {"role": "user", "content": "hi", "note": 1}])
        with pytest.raises(steno.BadRequest, match=r"(?s)the dict is no Message: .*role"):
            await twin.append_message(FOREIGN[1])
        assert all(type(message) is kosong.Message for message in twin.history)
        theirs = KimiContext(file_backend=path)
        assert await theirs.restore()
        assert _heard(theirs) == _heard(twin) == [("system", "be brief"), ("user", "hi")]

    asyncio.run(live())
    assert json.loads(path.read_bytes().splitlines()[1])["note"] == 1


def test_a_linear_context_takes_dicts(folder: Path) -> None:
    async def live() -> None:
        context: Any = LinearContext(StenoLinearStorage(folder / "linear.jsonl"))
        await context.add_message({"role": "developer", "content": "be brief"})
        await context.add_message(kosong.Message(role="user", content="hi"))
        assert _heard(context) == [("system", "be brief"), ("user", "hi")]

    asyncio.run(live())


def test_pydantic_models_are_messages_of_both_clients(root: Path) -> None:
    message = kosong.Message(
        role="assistant",
        content=[kosong.ThinkPart(think="hm"), kosong.TextPart(text="hi")],
    )
    part = kosong.TextPart(text="inside a dict")
    plain = {"role": "user", "content": [part]}
    expected = [
        message.model_dump(mode="json"),
        {"role": "user", "content": [{"type": "text", "text": "inside a dict"}]},
    ]

    async def live() -> None:
        async with steno.connect(root) as client:
            session = await client.open("demo")
            await session.append_message(message)
            await session.append_message([plain, message])
            assert session.history == [expected[0], expected[1], expected[0]]

    asyncio.run(live())
    with steno.connect_sync(root) as client:
        session = client.open("demo")
        session.append_message([message, plain])
        assert session.history[-2:] == expected


def test_an_export_for_kimi_cli_keeps_foreign_roles_and_is_restored(
    root: Path, tmp_path: Path
) -> None:
    with steno.connect_sync(root) as client:
        client.open("demo").append_message([*FOREIGN, {"role": "user", "content": "hi"}])
    folder = tmp_path / "exported"
    command = Steno(root)
    assert command("export", "demo", "--format", "kimi", "-o", str(folder)).code == 0

    async def restore() -> None:
        context = KimiContext(file_backend=folder / "context.jsonl")
        assert await context.restore()
        assert _heard(context) == [("user", "hi")]

    asyncio.run(restore())
    assert command("import", str(folder), "again").code == 0
    again = command("show", "again", "--json").document["messages"]
    assert again == [*FOREIGN, {"role": "user", "content": "hi"}]


def test_only_the_twin_restores_a_content_part_of_an_unknown_type(home: Path, folder: Path) -> None:
    with steno.connect_sync(home) as client:
        session = client.open(f"kimi:{folder.name}")
        session.append_message({"role": "user", "content": [{"type": "input_text", "text": "x"}]})
        session.append_message({"role": "user", "content": "hi"})
    path = folder / "context.jsonl"

    async def live() -> None:
        with pytest.raises(KeyError, match="input_text"):
            await KimiContext(file_backend=path).restore()
        twin = Context(file_backend=path)
        assert await twin.restore()
        assert _heard(twin) == [("user", "hi")]

    asyncio.run(live())

"""Verify and repair through both clients, against a real daemon."""

from pathlib import Path

import pytest

import steno
from steno import connect, connect_sync

pytestmark = pytest.mark.anyio

WELDED = b'{"role":"user","content":"half{"role":"user","content":"whole"}\n'


def damage(root: Path) -> Path:
    """A session of two good lines with a broken one between them."""
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.append_message({"role": "user", "content": "first"})
        file = Path(session.stat().folder) / "context.jsonl"
        client.drain()
    file.write_bytes(file.read_bytes() + WELDED + b'{"role":"user","content":"last"}\n')
    return file


async def test_a_session_is_repaired_as_it_was_verified(root: Path) -> None:
    damaged = damage(root).read_bytes()
    async with connect(root) as client:
        session = await client.open("demo")
        report = await session.verify()
        assert report.damage == 1
        ack = await session.repair(report, why="welded")
        assert ack.rotated is not None
        assert Path(ack.rotated).read_bytes() == damaged
        contents = [message["content"] for message in session.history]
        assert contents == ["first", "whole", "last"]
        assert (await session.verify()).damage <= report.damage
        with pytest.raises(steno.Conflict):
            await session.repair(report)

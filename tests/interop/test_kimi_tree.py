"""A tree of kimi-cli as a root and as a mount."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import steno
from interop.peers import peer
from support.kimi_tree import STRANGE, KimiSession, plant

pytestmark = pytest.mark.interop

KimiContext = peer("kimi_cli.soul.context").Context
kosong = peer("kosong.message")

WRITERS = 8
APPENDS = 40


@dataclass(frozen=True, slots=True)
class Tree:
    """A planted tree, a client of the daemon that has it, and what its ids begin with there."""

    client: steno.BlockingClient
    root: Path
    prefix: str
    folder: Path

    def plant(self, *, strange: bool = False) -> list[KimiSession]:
        return plant(self.folder, strange=strange)


@pytest.fixture(params=["root", "mount"])
def tree(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Iterator[Tree]:
    """The tree in the root's own `sessions`, or mounted from elsewhere."""
    if request.param == "root":
        folder, prefix = root / "sessions", ""
    else:
        folder, prefix = tmp_path / "kimi sessions", "kimi:"
        (root / "config.toml").write_text(f'[mounts]\nkimi = "{folder}"\n')
    folder.mkdir()
    with steno.connect_sync(root, name="test") as client:
        yield Tree(client, root, prefix, folder)


def restored(session: KimiSession) -> list[str]:
    """The texts that kimi-cli's own restore finds."""
    context = KimiContext(file_backend=session.context)
    assert asyncio.run(context.restore())
    return [message.extract_text() for message in context.history]


def test_it_is_listed_and_shown_without_being_changed(tree: Tree) -> None:
    planted = tree.plant(strange=True)
    before = [session.bytes() for session in planted]

    listed = [entry.session for entry in tree.client.sessions()]
    assert listed == [tree.prefix + session.id for session in planted]
    for session in planted:
        lines = list(tree.client.session(tree.prefix + session.id).lines())
        assert b"".join(lines) == session.context.read_bytes()
        assert tree.client.stat(tree.prefix + session.id).token_count == 1472

    assert [session.bytes() for session in planted] == before


def test_appends_leave_every_old_byte_and_every_other_file_as_they_were(tree: Tree) -> None:
    for session in tree.plant(strange=True):
        before = session.bytes()
        opened = tree.client.open(tree.prefix + session.id)
        assert len(opened.history) == 4
        assert opened.history[-1] == json.loads(STRANGE)
        ack = opened.append_message({"role": "user", "content": "ours"})

        after = session.bytes()
        old = before.pop("context.jsonl")
        assert after["context.jsonl"].startswith(old)
        added = json.loads(after["context.jsonl"][len(old) :])
        assert added == {"role": "user", "content": "ours", "_by": "test", "_id": ack.key}
        assert {name: after[name] for name in before} == before


def test_revert_keeps_unknown_entries(tree: Tree) -> None:
    session = tree.plant(strange=True)[0]
    old = session.context.read_bytes()
    opened = tree.client.open(tree.prefix + session.id)
    opened.checkpoint()
    opened.append_message({"role": "user", "content": "dropped"})
    opened.revert_to(2)
    assert session.context.read_bytes() == old


_WRITER = """
import sys, steno
with steno.connect_sync(sys.argv[1], name=sys.argv[3]) as client:
    session = client.open(sys.argv[2], follow=False)
    for number in range(int(sys.argv[4])):
        session.append_message({"role": "user", "content": f"{sys.argv[3]}-{number}"})
"""


def test_after_eight_processes_appended_at_once_kimi_cli_restores_everything(tree: Tree) -> None:
    session = tree.plant()[0]
    before = restored(session)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tree.root), tree.prefix + session.id,
             f"writer{number}", str(APPENDS)]
        )
        for number in range(WRITERS)
    ]  # fmt: skip
    assert [writer.wait(60) for writer in writers] == [0] * WRITERS

    texts = restored(session)

    assert texts[: len(before)] == before
    for number in range(WRITERS):
        own = [text for text in texts if text.startswith(f"writer{number}-")]
        assert own == [f"writer{number}-{count}" for count in range(APPENDS)]
    assert len(texts) == len(before) + WRITERS * APPENDS


def test_kimi_clis_own_revert_shows_in_the_timeline_and_loses_nothing(tree: Tree) -> None:
    session = tree.plant()[0]
    opened = tree.client.open(tree.prefix + session.id)
    opened.append_message({"role": "user", "content": "before the revert"})

    async def revert() -> None:
        context = KimiContext(file_backend=session.context)
        await context.restore()
        await context.revert_to(1)
        await context.append_message(kosong.Message(role="user", content="theirs"))

    asyncio.run(revert())
    opened.append_message({"role": "user", "content": "ours"})

    assert [message["content"] for message in opened.history][-2:] == ["theirs", "ours"]
    assert restored(session)[-2:] == ["theirs", "ours"]
    past = opened.history_at(0)
    assert past.history[-1]["content"] == "before the revert"
    assert opened.head.generation == 1
    assert [(entry.kind, entry.generation, entry.inferred) for entry in opened.timeline()] == [
        ("adopted", 0, False),
        ("rotated", 1, True),
        *([] if tree.prefix else [("counted", 1, False)]),
        ("foreign", 1, False),
    ]


def test_a_revert_that_kimi_cli_made_before_steno_came_is_inferred(tree: Tree) -> None:
    session = tree.plant()[0]

    async def revert() -> None:
        context = KimiContext(file_backend=session.context)
        await context.restore()
        await context.revert_to(1)

    asyncio.run(revert())

    [entry] = tree.client.timeline(tree.prefix + session.id)
    assert (entry.generation, entry.inferred) == (1, True)
    opened = tree.client.open(tree.prefix + session.id)
    # kimi-cli freed checkpoint 1; a session in the root does not assign it again.
    assert opened.n_checkpoints == (1 if tree.prefix else 2)
    assert len(opened.history_at(0).history) == 3

"""The command `steno gc`."""

from pathlib import Path

import steno
from steno_protocol import paths
from support.command import Steno
from support.daemon_in_thread import DaemonInThread


def rewrite(root: Path) -> None:
    """Leave three past generations in a session."""
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        for number in range(3):
            session.append_message({"role": "user", "content": f"generation {number}"})
            session.clear()


def test_dry_run_shows_the_garbage(root: Path, daemon: DaemonInThread) -> None:
    rewrite(root)
    call = Steno(root)
    shown = call("gc", "--dry-run", "--keep-generations", "1", "--json").document
    assert (shown["dry_run"], shown["files"], shown["failed"]) == (True, 2, [])
    assert "would free" in call("gc", "--dry-run", "--keep-generations", "1").err
    removed = call("gc", "demo", "--keep-generations", "1", "--with-lineage", "--json").document
    assert removed["files"] == 2
    assert call("gc", "--trash", "--generations-older", "1").code == 0


def test_gc_fails_when_something_cannot_be_removed(root: Path, daemon: DaemonInThread) -> None:
    trash = root / paths.SESSIONS / paths.TRASH
    trash.mkdir(parents=True)
    (trash / "1000000000.key.link").symlink_to(root)
    ran = Steno(root)("gc", "--trash", "--json")
    assert (ran.code, ran.document["files"], len(ran.document["failed"])) == (1, 0, 1)


def test_gc_says_what_it_compresses(root: Path, daemon: DaemonInThread) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        for number in range(3):
            session.append_message({"role": "user", "content": f"{number} " + "again " * 2000})
            session.clear()
    (root / paths.CONFIG).write_text("[retention]\ngenerations_compressed_days = 1e-9\n")
    daemon.reload()
    call = Steno(root)
    dry = call("gc", "--retention", "--dry-run")
    assert "context_1.jsonl  compressed: retention.generations_compressed_days = 1e-09" in dry.out
    assert "2 files would be compressed" in dry.err
    assert "2 files are compressed" in call("gc", "--retention").err
    kimi = root / "kimi"
    assert call("export", "demo", "--format", "kimi", "-o", str(kimi)).code == 0
    assert {path.name for path in kimi.rglob("context_*")} == {
        "context_1.jsonl", "context_2.jsonl", "context_3.jsonl",
    }  # fmt: skip

"""The command on sessions whose streams a rule compressed, and daemons killed meanwhile."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.test_read_only_roots import as_root_elsewhere
from e2e.test_reads_leave_files import facts_of
from support.agent_files import CLAUDE_SESSION, claude_file
from support.command import Steno
from support.crowd import wait_until

RULE = "[retention]\nstreams_compressed_days = 1e-9\n"
DEADLINE_S = 60
RECORDS = 400
NAME = "stream-notes.jsonl"
PACKED = f"{NAME}.zst"

_DIE = """
import os, signal, sys
from steno_protocol import paths
from stenod.cli import main
from stenod.store.posix import PosixDisk
at = int(os.environ["AT"])
begun = count = 0
def dying(name):
    real = getattr(PosixDisk, name)
    def call(*arguments):
        global begun, count
        begun = begun or any("stream-notes.jsonl" in str(each) for each in arguments)
        count += bool(begun)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)
    setattr(PosixDisk, name, call)
for name in ("open_new", "write", "fsync", "rename", "unlink"):
    dying(name)
sys.exit(main())
"""
"""A daemon that dies at its call number AT, counted from the first one for the stream."""


def moments(end: int) -> list[object]:
    """The calls at which a daemon dies; each takes seconds, and the simulated disk has all."""
    often = {2, 4, end - 2}
    return [each if each in often else pytest.param(each, marks=pytest.mark.slow)
            for each in range(1, end)]  # fmt: skip


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def forms(root: Path, session: str = "demo") -> list[str]:
    folder = root / "sessions" / session
    return sorted(
        path.name for path in folder.glob("stream-*") if path.suffix in {".jsonl", ".zst"}
    )


@pytest.fixture
def steno(root: Path) -> Steno:
    """The command on a root with a closed session that has a plain stream."""
    call = Steno(root)
    assert call("append", "demo", "hello", "--create").code == 0
    lines = "".join(f'{{"number":{number},"text":"{"again " * 9}"}}\n' for number in range(RECORDS))
    assert call("stream", "demo", "notes", "--append", "-", stdin=lines).code == 0
    return call


def compress(steno: Steno) -> None:
    """Let a daemon follow the rule, which only this one has."""
    steno("stop")
    config = steno.root / "config.toml"
    config.write_text(RULE)
    # Behind what the daemon does as it starts.
    ran = steno("gc", "--retention")
    steno("stop")
    config.unlink()
    assert ran.code == 0, ran.err


def read(steno: Steno, session: str = "demo") -> str:
    # The reader of another user's root ends with its process.
    ran = steno.forked("stream", session, "notes")
    assert ran.code == 0, ran.err
    assert ran.out.count("\n") == RECORDS
    return digest(ran.out)


def test_every_command_reads_a_compressed_stream(
    steno: Steno, root: Path, second_root: Path, tmp_path: Path
) -> None:
    wanted = read(steno)
    steno("stop")
    before = [steno(*words).out for words in (("sessions", "--json"), ("stream", "demo", "--json"))]
    exported = steno("export", "demo", "--format", "json").out
    compress(steno)
    assert forms(root) == [PACKED]
    assert read(steno) == wanted
    assert [
        steno(*words).out for words in (("sessions", "--json"), ("stream", "demo", "--json"))
    ] == before
    assert steno("stream", "demo", "notes", "-n", "1").out.startswith(f'{{"number":{RECORDS - 1}')
    assert digest(steno("export", "demo", "--format", "json").out) == digest(exported)
    assert "hello" in steno("show", "demo").out
    assert "hello" in steno("grep", "hello").out
    for words in (("verify", "demo"), ("verify", str(root / "sessions" / "demo"))):
        checked = steno(*words, "--json").document
        assert (checked["damage"], checked["notes"]) == (0, 0)
        assert NAME in {each["file"] for each in checked["files"]}
    assert forms(root) == [PACKED], "a read opened it"

    kimi = tmp_path / "kimi"
    assert steno("export", "demo", "--format", "kimi", "-o", str(kimi)).code == 0
    assert [path.name for path in kimi.glob("stream-*")] == [NAME]
    assert steno("fork", "demo", "fork").code == 0
    assert read(steno, "fork") == wanted
    assert steno("rename", "demo", "team/moved").code == 0
    assert read(steno, "team/moved") == wanted
    assert steno("delete", "team/moved", "--yes").code == 0
    assert steno("undelete", "team/moved").code == 0
    assert read(steno, "team/moved") == wanted

    copy, restored = second_root / "copy", second_root / "restored"
    assert steno("backup", str(copy)).code == 0
    assert forms(copy, "team/moved") == [PACKED]
    shutil.copytree(copy, restored)
    other = Steno(restored)
    assert read(other, "team/moved") == wanted
    assert other("verify", "--all").code == 0
    other("stop")

    imported = steno("import", str(copy / "sessions"), "copied")
    assert imported.code == 0, imported.err
    assert forms(root, "copied/team/moved") == [NAME]
    assert read(steno, "copied/team/moved") == wanted
    assert forms(root, "team/moved") == [PACKED]
    assert steno("doctor").out.count("problem") == 0


def test_an_append_and_a_follower_expand_it(steno: Steno, root: Path) -> None:
    wanted = read(steno)
    compress(steno)
    with steno.begin("stream", "demo", "notes", "-n", "1", "-f") as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith(f'{{"number":{RECORDS - 1}')
        ran = steno("stream", "demo", "notes", "--append", '{"number":"new"}', "--key", "k")
        assert ran.code == 0
        assert following.stdout.readline() == '{"number":"new"}\n'
        following.terminate()
    assert forms(root) == [NAME]
    again = steno("stream", "demo", "notes", "--append", '{"number":"new"}', "--key", "k")
    assert (again.code, again.out) == (0, ran.out)
    *old, _ = steno("stream", "demo", "notes").out.splitlines(keepends=True)
    assert digest("".join(old)) == wanted


@pytest.mark.parametrize("at", moments(10))
def test_a_daemon_that_is_killed_while_it_compresses_loses_nothing(
    steno: Steno, root: Path, at: int
) -> None:
    wanted = read(steno)
    steno("stop")
    (root / "config.toml").write_text(RULE)
    # It follows the rule as it starts.
    with dying(root, at) as daemon:
        assert daemon.wait(DEADLINE_S) == -signal.SIGKILL
    (root / "config.toml").unlink()
    assert read(steno) == wanted
    ran = steno("stream", "demo", "notes", "--append", '{"number":"new"}')
    assert ran.out.startswith(f"0:{RECORDS + 1}")
    assert steno("verify", "demo").code == 0
    assert forms(root) == [NAME]


@pytest.mark.parametrize("at", moments(8))
def test_a_daemon_that_is_killed_while_it_expands_loses_nothing(
    steno: Steno, root: Path, at: int
) -> None:
    wanted = read(steno)
    compress(steno)
    assert forms(root) == [PACKED]
    with dying(root, at) as daemon:
        wait_until((root / "stenod.sock").exists, DEADLINE_S)
        # The next daemon, which the command starts, applies it.
        ran = steno("stream", "demo", "notes", "--append", '{"number":"new"}')
        assert daemon.wait(DEADLINE_S) == -signal.SIGKILL
    assert (ran.code, ran.out) == (0, f"0:{RECORDS + 1}\n")
    *old, new = steno("stream", "demo", "notes").out.splitlines(keepends=True)
    assert (digest("".join(old)), new) == (wanted, '{"number":"new"}\n')
    assert steno("verify", "demo").code == 0
    assert forms(root) == [NAME]


def dying(root: Path, at: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", _DIE, "--foreground", "--root", str(root)],
        env={**os.environ, "AT": str(at)},
        stderr=subprocess.DEVNULL,
    )


def test_the_usage_of_a_compressed_transcript_is_the_same(root: Path, tmp_path: Path) -> None:
    steno = Steno(root, TZ="UTC")
    with claude_file(tmp_path).open("a") as file:
        file.write('{"type":"system","text":"' + "long " * 2000 + '"}\n')
    assert steno("import", str(tmp_path / ".claude/projects")).code == 0
    (folder,) = {path.parent for path in (root / "sessions").rglob("stream-claude-code.jsonl")}
    before = steno("usage", "--json").out
    compress(steno)
    assert (folder / "stream-claude-code.jsonl.zst").exists()
    assert steno("usage", "--json").out == before
    assert CLAUDE_SESSION in steno("sessions").out
    assert steno("sessions", "--program", "claude-code").out == steno("sessions").out
    again = steno("import", str(tmp_path / ".claude/projects"))
    assert "is unchanged" in again.err + again.out
    assert (folder / "stream-claude-code.jsonl.zst").exists()


def test_another_users_compressed_stream_is_read_and_followed(steno: Steno, root: Path) -> None:
    wanted = read(steno)
    compress(steno)
    as_root_elsewhere(root)
    known = facts_of(root)
    assert read(steno) == wanted
    with steno.begin("stream", "demo", "notes", "-n", "1", "-f") as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith(f'{{"number":{RECORDS - 1}')
        following.terminate()
    assert facts_of(root) == known

"""Roots that are only read: another user's, and those on a read-only file system."""

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.test_reads_leave_files import FOLLOWS, READS, facts_of
from steno_protocol import paths
from support.command import Ran, Steno
from support.daemons import remove_root

STRANGER = 65534

Run = Callable[..., Ran]


def plain(*arguments: str, root: Path, words: tuple[str, ...] = (), user: int | None = None) -> Ran:
    """Run the command in a process of its own, perhaps behind other words or as another user."""
    steno = Steno(root, HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent")
    ran = subprocess.run(
        [*words, *steno.words(*arguments)],
        env=steno.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@pytest.fixture
def written(root: Path) -> Iterator[Path]:
    """A root with a past generation, an event, and half a line that no daemon has repaired."""
    below = root / "root"
    steno = Steno(below)
    for text in ("one", "two", "three"):
        assert steno("append", "demo", text).code == 0
    assert steno("append", "other", "hello").code == 0
    assert steno("emit", "demo", "Noted", "{}").code == 0
    assert steno("clear", "demo").code == 0
    assert steno("append", "demo", "four").code == 0
    assert steno("stop").code == 0
    with (below / paths.SESSIONS / "demo" / paths.CONTEXT).open("ab") as file:
        file.write(b'{"role":"user","content":"fi')
    try:
        yield below
    finally:
        remove_root(below)


def as_root_elsewhere(root: Path) -> Run:
    """Root, in the root of another user."""
    if os.geteuid() != 0:
        pytest.skip("only root may give files to another user")
    for each in (root, *root.rglob("*")):
        os.chown(each, STRANGER, STRANGER)
    return lambda *arguments: plain(*arguments, root=root)


def as_stranger(root: Path) -> Run:
    """Another user, in a root that everybody may read."""
    if os.geteuid() != 0:
        pytest.skip("only root may run a command as another user")
    for each in (root.parent, root, *root.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    probe = [sys.executable, "-c", "import steno, stenod"]
    try:
        subprocess.run(probe, user=STRANGER, group=STRANGER, extra_groups=[], check=True)
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("another user may not run this Python")
    return lambda *arguments: plain(*arguments, root=root, user=STRANGER)


def on_a_read_only_mount(root: Path) -> Run:
    """The owner, on a mount that cannot be written."""
    unshare = shutil.which("unshare")
    here = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    words = (unshare or "unshare", "--mount", "sh", "-c", here, str(root))
    if unshare is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("this user may not mount")
    return lambda *arguments: plain(*arguments, root=root, words=words)


WORLDS = [
    as_root_elsewhere,
    pytest.param(as_stranger, marks=pytest.mark.slow),
    pytest.param(on_a_read_only_mount, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("world", WORLDS)
def test_every_read_works_without_a_daemon_and_writes_nothing(
    written: Path, world: Callable[[Path], Run]
) -> None:
    run = world(written)
    known = facts_of(written)

    shown = run("show", "demo")
    assert (shown.code, "four" in shown.out) == (0, True)
    assert "without its daemon" in shown.err
    assert '"three"' in run("read", "demo", "--generation", "0").out
    assert "hello" in run("grep", "hell").out
    # Half a line is damage.
    assert run("verify", "demo").code == 7
    with tempfile.TemporaryDirectory() as folder:
        if world is not as_stranger:
            assert run("export", "demo", "--format", "kimi", "-o", f"{folder}/copy").code == 0
            assert Path(folder, "copy", paths.generation_file(1)).exists()

    assert facts_of(written) == known


@pytest.mark.parametrize("world", WORLDS)
def test_nothing_is_changed_there(written: Path, world: Callable[[Path], Run]) -> None:
    run = world(written)
    known = facts_of(written / paths.SESSIONS)
    for words in (
        ("append", "demo", "x"),
        ("gc", "demo", "--trash"),
        ("repair", "demo", "--apply"),
    ):
        assert run(*words).code not in {0, 2}
    assert facts_of(written / paths.SESSIONS) == known


@pytest.mark.slow
def test_each_command_that_reads_a_session_reads_another_users(written: Path) -> None:
    as_root_elsewhere(written)
    known, steno = facts_of(written), Steno(written)
    for words in READS:
        ran = steno.forked(words[0], "demo", *words[1:])
        assert (words, ran.code) == (words, 7 if words == ("verify",) else 0)
        assert "without its daemon" in ran.err
    assert {
        each["session"] for each in steno.forked("sessions", "--json").document["sessions"]
    } == {
        "demo",
        "other",
    }
    assert facts_of(written) == known


def test_followers_and_the_viewer_read_another_users_root(written: Path) -> None:
    as_root_elsewhere(written)
    known = facts_of(written)
    steno = Steno(written)
    for words in FOLLOWS[:2]:
        with steno.begin(words[0], "demo", *words[1:]) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline()
            follower.terminate()
    with steno.begin("view", "demo", "--no-browser") as viewer:
        assert viewer.stdout is not None
        assert viewer.stdout.readline().startswith("http://127.0.0.1:")
        viewer.terminate()
    assert facts_of(written) == known


def test_a_root_that_this_user_may_not_read_is_an_error(written: Path) -> None:
    run = as_stranger(written)
    written.chmod(0o700)
    ran = run("show", "demo")
    assert ran.code == 5
    assert "cannot be read" in ran.err


def test_a_reader_ends_with_its_command(written: Path) -> None:
    as_root_elsewhere(written)
    with Steno(written).begin("tail", "-f", "demo") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline()
        (reader,) = children_of(follower.pid)
        follower.kill()
        follower.wait()
        handle = os.pidfd_open(reader)
        # Readable when the process has ended.
        assert select.select([handle], [], [], 60)[0]
        os.close(handle)


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

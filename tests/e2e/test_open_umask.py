"""Folders and files that commands make while the umask protects nothing."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno import connect_sync
from steno._connect.folders import own_private
from steno_protocol.errors import Unauthorized
from stenod.net import socket_path
from stenod.store.lock import make_root
from support.command import Steno


@pytest.fixture
def _open_umask() -> Iterator[None]:
    """Nothing is taken from the modes of what this process makes."""
    before = os.umask(0)
    yield
    os.umask(before)


def _open_to_others(folder: Path) -> list[str]:
    found = [
        Path(at, name) for at, folders, files in os.walk(folder) for name in (*folders, *files)
    ]
    return [
        f"{path} {mode:o}"
        for path in found
        if (mode := stat.S_IMODE(path.lstat().st_mode)) & 0o022 and not path.is_socket()
    ]


@pytest.mark.forked(False)
@pytest.mark.usefixtures("_open_umask")
def test_no_folder_that_steno_makes_is_open_to_others(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    steno = Steno(
        root, HOME=str(home), XDG_CACHE_HOME=str(home / "a" / "cache"),
        XDG_CONFIG_HOME=str(home / "b" / "config"), XDG_STATE_HOME=str(home / "c" / "state"),
        XDG_DATA_HOME=str(home / "d" / "data"),
    )  # fmt: skip
    assert steno("append", "demo", "one two", "--create").code == 0
    assert steno("grep", "--index", "two").code == 0
    made = [
        steno("service", "install"),
        steno("keys", "new", "laptop"),
        steno("export", "demo", "--format", "kimi", "-o", str(home / "copy")),
        steno("cluster", "config", "--folder", str(home / "f" / "cluster")),
    ]
    assert [each.err for each in made if each.code] == []
    assert (home / "a" / "cache").is_dir()
    assert _open_to_others(home) == []
    assert _open_to_others(root) == []


@pytest.mark.parametrize("make", ["root", "socket"])
@pytest.mark.usefixtures("_open_umask")
def test_parents_of_the_root_and_of_the_socket_are_private(tmp_path: Path, make: str) -> None:
    if make == "root":
        make_root(tmp_path / "one" / "two" / "root")
    else:
        socket_path.prepare(tmp_path / "one" / "two" / "daemon.sock")
    assert _open_to_others(tmp_path) == []


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, root: Path) -> None:
    folder = tmp_path / "steno"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Unauthorized, match="every user may write to"):
        own_private(folder)
    with connect_sync(root) as client:
        client.open("demo").append_message({"role": "user", "content": "one two"})
    ran = Steno(root, XDG_CACHE_HOME=str(tmp_path))("grep", "--index", "two")
    assert ran.code != 0
    assert "chmod o-w" in ran.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "steno"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(Unauthorized, match="belongs to user 12345"):
        own_private(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_nothing_is_made_in_a_folder_of_another_user(tmp_path: Path) -> None:
    root = tmp_path / "theirs"
    root.mkdir(mode=0o700)
    os.chown(root, 12345, 12345)
    steno = Steno(root)
    for words in (("keys", "new", "laptop"), ("start",)):
        ran = steno(*words)
        assert (ran.code, "belongs to user 12345" in ran.err) == (1, True), (words, ran.err)
    assert list(root.iterdir()) == []

"""Private files: what the one function that opens them refuses."""

import os
from pathlib import Path

import pytest

from steno_protocol.errors import Unauthorized
from steno_protocol.private_files import check_file, check_listener, check_root
from steno_system.private_files import open_private


def test_a_link_a_fifo_and_a_folder_are_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x")
    (tmp_path / "link").symlink_to("target")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name, flags in (
        ("link", os.O_RDONLY),
        ("link", os.O_RDWR | os.O_CREAT),
        ("fifo", os.O_RDONLY),
        ("fifo", os.O_WRONLY),
        ("folder", os.O_RDONLY),
        ("folder", os.O_RDWR),
    ):
        with pytest.raises(Unauthorized, match="has to be a regular file"):
            open_private(tmp_path / name, flags)
    os.close(open_private(tmp_path / "link", may_be_link=True))


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    for mode in (0o604, 0o640, 0o660):
        secret.chmod(mode)
        with pytest.raises(Unauthorized, match="chmod 600"):
            open_private(secret, is_secret=True)
    secret.chmod(0o600)
    os.close(open_private(secret, is_secret=True))
    secret.chmod(0o646)
    with pytest.raises(Unauthorized, match="chmod o-w"):
        open_private(secret)


def test_nothing_is_made_in_a_folder_that_every_user_may_write_to(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Unauthorized, match="every user may write"):
        open_private(folder / "lock", os.O_RDWR | os.O_CREAT)
    assert list(folder.iterdir()) == []


def test_files_roots_and_listeners_of_other_users_are_refused() -> None:
    with pytest.raises(Unauthorized, match="belongs to user 7"):
        check_file("f", mode=0o100600, owner=7, own=8, is_secret=False)
    with pytest.raises(Unauthorized, match="belongs to user 0"):
        check_file("f", mode=0o100600, owner=0, own=8, is_secret=True)
    check_file("f", mode=0o100644, owner=0, own=8, is_secret=False)
    with pytest.raises(Unauthorized, match="belongs to user 0"):
        check_root("r", mode=0o40700, owner=0, own=8)
    with pytest.raises(Unauthorized, match="a process of user 7 listens at e"):
        check_listener("e", owner=7, own=8)
    # The service manager of the machine listens for a user's daemon.
    check_listener("e", owner=0, own=8)
    check_listener("e", owner=8, own=8)

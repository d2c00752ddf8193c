"""The key that a client has for an owner in a cluster."""

from pathlib import Path

import pytest

from steno._connect.target import make_target
from support import remote_access

NEAR, FAR, OWNER = "ipc:///home.sock", "tcp://10.0.0.5:7117", "tcp://10.0.0.6:7117"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A client's key file; the folder is a root with the key of its daemon."""
    return remote_access.allow(tmp_path, "laptop")


@pytest.mark.parametrize("home", [None, NEAR])
def test_a_local_client_has_the_key_of_its_home_daemon(
    home: str | None, key_file: Path, tmp_path: Path
) -> None:
    owner = make_target(None, home, "me", spawn=False).owner_at(OWNER, str(tmp_path))
    key = owner.key_for(OWNER)
    assert key is not None
    assert key.own.public == key.server
    assert owner.key_for("ipc:///owner.sock") is None


def test_a_client_of_another_machine_reads_no_key_of_a_root(key_file: Path, tmp_path: Path) -> None:
    target = make_target(None, FAR, "me", spawn=False)
    assert target.owner_at(OWNER, str(tmp_path)).key_for(OWNER) is None


def test_a_key_that_was_given_comes_before_that_of_the_home_daemon(
    key_file: Path, tmp_path: Path
) -> None:
    target = make_target(tmp_path, None, "me", spawn=False, key_file=key_file)
    assert target.owner_at(OWNER, str(tmp_path)).key_for(OWNER) == target.key


def test_a_root_without_a_key_lends_none(tmp_path: Path) -> None:
    target = make_target(tmp_path, None, "me", spawn=False)
    assert target.owner_at(OWNER, str(tmp_path)).key_for(OWNER) is None

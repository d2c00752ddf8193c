"""The token of a server in a file."""

import os
import stat
from pathlib import Path

import pytest

from steno_protocol.errors import BadRequest
from steno_web.token_file import token_in


def test_a_missing_file_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = token_in(file)
    assert len(token) > 40
    assert token_in(file) == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"short", b"x" * 600, b"a token with spaces in it", b"\xff" * 40, b"a\n" * 40]
)
def test_a_file_without_a_token_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(BadRequest, match="has no token"):
        token_in(file)
    assert file.read_bytes() == content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_other_users_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text("x" * 40)
    file.chmod(mode)
    with pytest.raises(BadRequest, match="chmod 600"):
        token_in(file)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "none" / "token"):
        with pytest.raises(BadRequest, match="cannot be used"):
            token_in(path)

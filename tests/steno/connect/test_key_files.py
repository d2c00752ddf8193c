"""Key files, which only their owner can read."""

from pathlib import Path

import pytest

import steno
from steno._connect.connection import new_key_pair
from steno._connect.key_files import client_key
from steno_protocol import credentials
from steno_protocol.credentials import ClientKey, KeyPair


def save(path: Path, key: ClientKey) -> Path:
    path.write_text(credentials.encode_client_key(key, "test"))
    path.chmod(0o600)
    return path


def test_readable_or_linked_key_file_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "laptop.key", ClientKey(KeyPair(*new_key_pair()), new_key_pair()[0]))
    (tmp_path / "link.key").symlink_to(tmp_path / "laptop.key")
    with pytest.raises(steno.Unauthorized, match="is a symbolic link"):
        client_key(tmp_path / "link.key")
    (tmp_path / "laptop.key").chmod(0o604)
    with pytest.raises(steno.Unauthorized, match="chmod 600"):
        client_key(tmp_path / "laptop.key")
    with pytest.raises(steno.NotFound, match="steno keys new"):
        client_key(tmp_path / "none.key")


def test_no_repr_and_no_error_contains_a_secret(tmp_path: Path) -> None:
    pair = KeyPair(*new_key_pair())
    path = save(tmp_path / "k.key", ClientKey(pair, new_key_pair()[0]))
    assert pair.secret not in repr(client_key(path))
    path.write_text(f'public = "{pair.secret[:-1]}"\n')
    with pytest.raises(steno.BadRequest) as refused:
        client_key(path)
    assert pair.secret[:-1] not in str(refused.value)
    path.write_text(f'secret = "{pair.secret}')
    with pytest.raises(steno.BadRequest) as refused:
        client_key(path)
    assert pair.secret not in str(refused.value)
    path.write_text(f"secret = {'[' * 10_000}")
    with pytest.raises(steno.BadRequest, match="steno keys new"):
        client_key(path)

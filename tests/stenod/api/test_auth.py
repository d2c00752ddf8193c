"""Admission of remote clients while their list cannot be read."""

import errno
import os
from pathlib import Path

import pytest

from steno._connect.connection import new_key_pair
from steno_protocol import credentials
from steno_protocol.credentials import Allowed, KeyPair
from steno_protocol.rights import RIGHTS
from stenod.api.auth import Admission


def _admit(folder: Path) -> str:
    public = new_key_pair()[0]
    path = folder / credentials.CLIENTS_FILE
    path.touch(mode=0o600)
    path.write_text(credentials.encode_clients([Allowed("laptop", public, RIGHTS["write"])]))
    return public


@pytest.mark.parametrize(
    ("method", "error"),
    [("open", errno.EMFILE), ("open", errno.ENOMEM), ("fstat", errno.EIO), ("fdopen", errno.EIO)],
)
def test_temporarily_unreadable_list_is_read_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: int
) -> None:
    logged: list[str] = []
    admission = Admission(tmp_path, lambda event, error: logged.append(f"{event}: {error}"))
    public = _admit(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, method, fail)
        for _ in range(3):
            assert admission.client(public) is None

    assert [each.partition(": ")[0] for each in logged] == ["keys_refused"]
    assert os.strerror(error) in logged[0]
    found = admission.client(public)
    assert found is not None
    assert found.name == "laptop"


def test_an_invalid_client_list_is_logged_once_for_each_version(tmp_path: Path) -> None:
    logged: list[str] = []
    admission = Admission(tmp_path, lambda event, error: logged.append(f"{event}: {error}"))
    public = _admit(tmp_path)
    assert admission.client(public)

    path = tmp_path / credentials.CLIENTS_FILE
    for count, text in enumerate(("no toml", "[also"), start=1):
        path.write_text(text)
        os.utime(path, ns=(count, count))
        for _ in range(3):
            assert admission.client(public) is None
        assert len(logged) == count
    path.chmod(0o644)
    assert admission.client(public) is None
    assert "chmod 600" in logged[-1]


def _own_key(folder: Path) -> KeyPair:
    own = KeyPair(*new_key_pair())
    path = folder / credentials.SERVER_FILE
    path.touch(mode=0o600)
    path.write_text(credentials.encode_pair(own))
    return own


def test_a_daemon_of_a_cluster_admits_its_own_key_beside_the_clients(tmp_path: Path) -> None:
    admission = Admission(tmp_path, lambda *_, **__: None, is_clustered=True)
    own, listed = _own_key(tmp_path), _admit(tmp_path)
    assert admission.own_key() == own
    found = admission.client(own.public)
    assert found is not None
    assert found.right == RIGHTS["admin"]
    assert (admission.is_own(own.public), admission.is_own(listed)) == (True, False)
    assert admission.client(listed) is not None
    assert admission.client(new_key_pair()[0]) is None


def test_a_daemon_without_a_cluster_does_not_admit_its_own_key(tmp_path: Path) -> None:
    admission = Admission(tmp_path, lambda *_, **__: None)
    own = _own_key(tmp_path)
    assert admission.own_key() == own
    assert admission.client(own.public) is None

"""What the sender of a command learns when the journal refuses it, or says nothing."""

import sys
from pathlib import Path

import pytest

from steno_protocol.errors import BadRequest, Held, Outcome, OutcomeUnknown, StorageFailed
from stenod.runtime.error_mapping import ErrorMapping
from stenod_cluster.journal import Fenced, InDoubt, JournalLost, Kind, Message, Owner
from support.daemon_in_thread import DaemonInThread
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host

NEWER = Message(9, Owner("two", "2", "tcp://10.0.0.6:7117"), Kind.OWN, b"", 0.0)


def mapping() -> ErrorMapping:
    return ErrorMapping("talk", lambda *_, **__: None)


def test_a_fenced_command_goes_to_the_owner() -> None:
    error = mapping().of(Fenced("talk", NEWER))
    assert isinstance(error, Held)
    assert error.endpoint == "tcp://10.0.0.6:7117"
    assert error.outcome is Outcome.NOT_APPLIED


def test_a_command_in_doubt_has_an_unknown_outcome() -> None:
    error = mapping().of(InDoubt(None, "no answer"))
    assert isinstance(error, OutcomeUnknown)
    assert "no answer" in error.message


def test_a_command_whose_bytes_were_taken_back_was_not_applied() -> None:
    error = mapping().storage_failed(InDoubt(None, "no answer"), "context.jsonl")
    assert isinstance(error, StorageFailed)
    assert "nothing of the command was kept" in error.message


def test_a_command_that_no_server_got_was_not_applied() -> None:
    error = mapping().of(JournalLost(None, "no server is reached"))
    assert isinstance(error, StorageFailed)
    assert error.outcome is Outcome.NOT_APPLIED


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.DROPPED, Fault.LATE])
def test_an_opening_in_doubt_leaves_no_command_in_doubt(tmp_path: Path, fault: Fault) -> None:
    stream = MemoryStream()
    host = Host(stream, "one", f"{tmp_path}/sessions")
    host.open("s")
    host.start()
    stream.force("one", fault)
    with pytest.raises(JournalLost):
        host.ownership.acquire("s")
    assert host.ownership.acquire("s") is not None


def test_a_folder_that_was_never_published_is_nobodys(tmp_path: Path) -> None:
    stream = MemoryStream()
    one, two = (Host(stream, name, f"{tmp_path}/{name}/sessions") for name in ("one", "two"))
    one.ownership.acquire("s", create=True)
    two.open("s")
    two.hosts.tell_alive()
    one.ownership.forget_unpublished("s")
    with pytest.raises(Held):
        one.ownership.acquire("s")


def test_a_daemon_without_the_extra_names_the_command_that_installs_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "config.toml").write_text(
        '[replication]\ncluster = "team"\nservers = ["nats://127.0.0.1:1"]\n'
    )
    monkeypatch.setitem(sys.modules, "stenod_cluster.joining", None)
    with pytest.raises(BadRequest, match=r"install it with `.* install 'stenod\[nats\]'`"):
        DaemonInThread(root).start()

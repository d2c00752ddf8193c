"""The note of a root's lock, read while its daemon writes it."""

from pathlib import Path

import pytest

from steno import local
from steno._connect.target import make_target
from steno_protocol import limits, paths
from steno_system import private_files
from steno_system.private_files import read_lock_note

NOTE = b'{"pid":1,"version":"0","root":"/r","endpoint":"ipc:///r/other"}'
TORN = (NOTE[:20], NOTE + b'"}', NOTE[:30].ljust(limits.LOCK_NOTE_BYTES))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the reads of the note return, the last one for ever."""
    answers: list[bytes] = []

    def read(_: object) -> bytes:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(private_files, "read_private", read)
    return answers


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_note_is_read_again_by_every_reader(
    root: Path, reads: list[bytes], torn: bytes
) -> None:
    note = paths.decode_lock_note(NOTE)
    assert note is not None
    for read in (read_lock_note, local.note_of):
        reads[:] = [torn, torn, NOTE]
        assert read(root) == note
    reads[:] = [torn, NOTE]
    assert make_target(root, None, None, spawn=False).resolved().address() == note.endpoint


def test_an_empty_note_is_none_at_once_and_a_damaged_one_after_some_reads(
    root: Path, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NOTE_READ_S", 0.0)
    for empty in (b"", b" " * limits.LOCK_NOTE_BYTES):
        reads[:] = [empty, NOTE]
        assert read_lock_note(root) is None
    reads[:] = [TORN[0]] * limits.NOTE_READS_MAX + [NOTE]
    assert read_lock_note(root) is None

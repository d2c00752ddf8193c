"""An opening that has to cut half a line reports it once to the client that opened the session."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno import connect, connect_sync
from steno_protocol import paths
from steno_protocol.replies import RepairedFile
from support.command import Ran, Steno
from support.daemons import end_daemon_of
from support.viewer import viewing

HALF = b'{"role":"user","content":"on'
NOTE = "the daemon repaired the end of"
HELLO = {"role": "user", "content": "hello"}


@pytest.fixture
def steno(root: Path) -> Iterator[Steno]:
    """The command, beside a session whose daemon was killed in the middle of a line."""
    steno = Steno(root)
    assert steno("append", "demo", "one").code == 0
    kill_in_the_middle(steno)
    yield steno
    end_daemon_of(root)


def kill_in_the_middle(steno: Steno, file: str = paths.CONTEXT) -> int:
    """Kill the daemon, and leave half a line; returns the size of the whole lines."""
    os.kill(steno("status", "--json").document["pid"], signal.SIGKILL)
    path = steno.root / paths.SESSIONS / "demo" / file
    size = path.stat().st_size
    with path.open("ab") as torn:
        torn.write(HALF)
    return size


def check_note(ran: Ran, file: str, size: int) -> None:
    """The command printed one note, and the cut bytes are where it says."""
    assert ran.code == 0, ran.err
    [note] = [line for line in ran.err.splitlines() if NOTE in line]
    assert f"{NOTE} {file} (" in note
    assert f"{len(HALF)} bytes after byte {size} were cut off and are kept in /" in note
    assert Path(note.rpartition(" kept in ")[2]).read_bytes() == HALF


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=words[0], marks=[] if words[0] == "append" else [pytest.mark.slow])
        for words in (
            ("append", "demo", "two"),
            ("checkpoint", "demo"),
            ("label", "demo", "kept"),
            ("fork", "demo", "other"),
            ("undo", "demo"),
        )
    ],
)
def test_a_command_that_opens_the_session_prints_one_note(
    steno: Steno, words: tuple[str, ...]
) -> None:
    size = (steno.root / paths.SESSIONS / "demo" / paths.CONTEXT).stat().st_size - len(HALF)
    check_note(steno(*words), paths.CONTEXT, size)
    again = steno("append", "demo", "three")
    assert (again.code, NOTE in again.err) == (0, False)


def test_a_follower_prints_the_note(steno: Steno) -> None:
    with steno.begin("tail", "-f", "demo", stderr=-1) as follower:
        assert follower.stderr is not None
        assert NOTE in follower.stderr.readline()
        follower.terminate()


def test_a_command_that_reads_leaves_the_half_line_and_prints_no_note(steno: Steno) -> None:
    context = steno.root / paths.SESSIONS / "demo" / paths.CONTEXT
    for words in (("show",), ("read",), ("tail",), ("stat",), ("export",)):
        ran = steno(words[0], "demo", *words[1:])
        assert (words, ran.code, NOTE in ran.err) == (words, 0, False)
    assert context.read_bytes().endswith(HALF)


def test_the_note_is_a_document_with_json(steno: Steno) -> None:
    ran = steno("append", "demo", "two", "--json")
    assert ran.code == 0
    [note] = [json.loads(line) for line in ran.err.splitlines()]
    assert NOTE in str(note)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (paths.WIRE, ("emit", "demo", "Noted", "{}")),
        ("stream-notes.jsonl", ("stream", "demo", "notes", "--append", '{"a":1}')),
    ],
    ids=["wire", "stream"],
)
def test_the_note_names_the_other_files_of_a_session(
    steno: Steno, file: str, words: tuple[str, ...]
) -> None:
    assert steno(*words).code == 0
    size = kill_in_the_middle(steno, file)
    check_note(steno(*words), file, size)


def test_a_line_that_only_lacks_its_newline_is_reported(root: Path, steno: Steno) -> None:
    steno("append", "demo", "two")
    steno("stop")
    with (root / paths.SESSIONS / "demo" / paths.CONTEXT).open("ab") as file:
        file.write(b'{"role":"user","content":"of another program"}')
    ran = steno("append", "demo", "three")
    assert (ran.code, "its last line got its newline" in ran.err) == (0, True)


# --- the library ---------------------------------------------------------------------------------


def check_repaired(root: Path, repaired: tuple[RepairedFile, ...]) -> None:
    [each] = repaired
    folder = root.resolve() / paths.SESSIONS / "demo"
    size = (folder / paths.CONTEXT).read_bytes().index(b"\n") + 1
    assert (each.session, each.file, each.offset) == ("demo", paths.CONTEXT, size)
    assert each.bytes == len(HALF)
    assert Path(each.kept_in).read_bytes() == HALF
    assert Path(each.kept_in).parent == folder / paths.QUARANTINE
    assert each.why


@pytest.mark.anyio
async def test_an_opened_session_has_the_repairs(root: Path, steno: Steno) -> None:
    async with connect(root) as client:
        session = await client.open("demo", follow=False)
        check_repaired(root, session.repaired)
        await session.append_message(HELLO)
        check_repaired(root, session.repaired)
        assert (await client.open("other")).repaired == ()
    async with connect(root) as client:
        assert (await client.open("demo")).repaired == ()


@pytest.mark.anyio
async def test_a_session_that_is_changed_or_followed_first_has_them_too(
    root: Path, steno: Steno
) -> None:
    async with connect(root) as client:
        session = client.session("demo")
        assert session.repaired == ()
        await session.append_message(HELLO)
        check_repaired(root, session.repaired)
    kill_in_the_middle(steno)
    async with connect(root) as client:
        session = client.session("demo")
        await session.restore()
        assert [each.bytes for each in session.repaired] == [len(HALF)]


def test_a_session_of_the_blocking_client_has_the_repairs(root: Path, steno: Steno) -> None:
    with connect_sync(root) as client:
        check_repaired(root, client.open("demo").repaired)


def test_the_viewer_shows_the_note_on_the_session_s_page(steno: Steno) -> None:
    with viewing(steno) as viewer:
        viewer.visit.login()
        assert NOTE in viewer.visit.get("session", session="demo")["repairs"][0]

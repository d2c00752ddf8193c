"""`steno verify` and `steno repair`: any transcript in place, sessions by their daemon."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from steno_cli.command_limits import CHECK_HANDLES_MAX
from steno_cli.exits import Exit
from steno_cli.repair.transcripts import LocalFolder
from support.command import Steno
from support.daemons import end_daemon_of
from support.lines import foreign, line

A, B, C = foreign("a"), foreign("b"), foreign("c")
HALF = b'{"role":"assistant","content":[{"type":"te'
DAMAGED = A + HALF + B + b"garbage\n" + C[:-1] + A + b'{"role":"us'
MENDED = A + B + C + A


@pytest.fixture
def steno(root: Path) -> Iterator[Steno]:
    yield Steno(root)
    end_daemon_of(root)


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A damaged transcript that was not written for a while."""
    file = tmp_path / "talk.jsonl"
    file.write_bytes(DAMAGED)
    os.utime(file, (1e9, 1e9))
    return file


def damage_context(root: Path, session: str, data: bytes) -> None:
    """Write into a session as a program would that knows of no daemon."""
    with (root / "sessions" / session / "context.jsonl").open("ab") as file:
        file.write(data)


@contextmanager
def being_written(file: Path) -> Iterator[None]:
    """The file changes again and again until the block ends, however long a command takes."""
    is_over = threading.Event()

    def write() -> None:
        while not is_over.wait(0.02):
            os.utime(file)

    os.utime(file)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# --- a file --------------------------------------------------------------------------------------


def test_a_transcript_is_verified_without_a_daemon(steno: Steno, talk: Path) -> None:
    ran = steno("verify", str(talk))
    assert ran.code == Exit.DAMAGED
    lines = ran.out.splitlines()
    assert [text.split(": ")[0] for text in lines] == [f"{talk}:{n}" for n in (2, 3, 4, 5)]
    assert f"(byte {len(A)}, {len(HALF + B)} bytes)" in lines[0]
    assert f"`steno repair {talk}`" in lines[0]
    assert "4 damaged places" in ran.err
    assert talk.read_bytes() == DAMAGED
    assert not steno.root.exists() or not list(steno.root.iterdir())


def test_a_check_of_a_file_is_json_of_a_documented_shape(steno: Steno, talk: Path) -> None:
    printed = steno("verify", str(talk), "--json").document
    assert printed.keys() == {
        "session", "path", "program", "generation", "files", "findings", "damage", "notes",
    }  # fmt: skip
    assert (printed["session"], printed["path"], printed["damage"]) == (None, str(talk), 4)
    assert [(each["kind"], each["remedy"]) for each in printed["findings"]] == [
        ("welded", "split"), ("not_json", "cut"), ("welded", "split"), ("torn", "cut"),
    ]  # fmt: skip
    assert printed["findings"][0].keys() == {
        "file", "kind", "what", "damage", "offset", "bytes", "line", "records", "remedy",
    }  # fmt: skip
    assert printed["files"][0].keys() == {"file", "bytes", "lines", "records", "crc"}


def test_a_repair_is_shown_first_and_carried_out_with_apply(steno: Steno, talk: Path) -> None:
    dry = steno("repair", str(talk))
    assert (dry.code, len(dry.out.splitlines())) == (Exit.DONE, 4)
    assert "nothing was changed" in dry.err
    assert [file.name for file in talk.parent.iterdir() if file.is_file()] == ["talk.jsonl"]

    done = steno("repair", str(talk), "--apply")
    assert done.code == Exit.DONE, done.err
    kept = talk.with_name("talk.jsonl.before-repair-1")
    assert done.out.splitlines()[-1] == str(kept)
    assert (talk.read_bytes(), kept.read_bytes()) == (MENDED, DAMAGED)
    assert steno("verify", str(talk)).code == Exit.DONE

    again = steno("repair", str(talk), "--apply")
    assert "nothing to repair" in again.err
    assert len(list(talk.parent.glob("talk*"))) == 2


def test_a_second_repair_keeps_both_originals(steno: Steno, talk: Path) -> None:
    steno("repair", str(talk), "--apply")
    talk.write_bytes(MENDED + b"oops\n")
    os.utime(talk, (1e9, 1e9))
    printed = steno("repair", str(talk), "--apply", "--json").document
    assert printed["applied"]
    assert printed["kept_in"] == str(talk.with_name("talk.jsonl.before-repair-2"))
    assert talk.with_name("talk.jsonl.before-repair-1").read_bytes() == DAMAGED
    assert talk.read_bytes() == MENDED


def test_mode_of_a_repaired_file_stays(steno: Steno, talk: Path) -> None:
    talk.chmod(0o640)
    steno("repair", str(talk), "--apply")
    assert talk.stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_being_written_is_not_repaired(steno: Steno, talk: Path) -> None:
    with being_written(talk):
        ran = steno("repair", str(talk), "--apply", "--json")
    assert (ran.code, ran.error["code"]) == (Exit.FAILED, "busy")
    assert talk.read_bytes() == DAMAGED


def test_a_folder_is_checked_and_repaired_file_by_file(steno: Steno, talk: Path) -> None:
    nest = talk.parent / "below" / "quarantine"
    nest.mkdir(parents=True)
    (nest / "cut.jsonl").write_bytes(b"garbage\n")
    (nest.parent / "other.jsonl").write_bytes(b'{"a":1}\n[2]\n')
    printed = steno("verify", str(talk.parent), "--json").documents
    found = {Path(each["path"]).name: (each["damage"], each["notes"]) for each in printed}
    assert found == {"talk.jsonl": (4, 0), "other.jsonl": (0, 1)}
    assert steno("repair", str(talk.parent), "--apply").code == Exit.DONE
    assert talk.read_bytes() == MENDED
    assert (nest / "cut.jsonl").read_bytes() == b"garbage\n"


def test_a_folder_of_many_files_is_checked_with_few_handles(tmp_path: Path) -> None:
    names = [f"context_{number}.jsonl" for number in range(1, 2 * CHECK_HANDLES_MAX)]
    for name in names:
        (tmp_path / name).write_bytes(A)
    with closing(LocalFolder(tmp_path)) as folder:
        assert {b"".join(folder.blocks(name)) for name in [*names, names[0]]} == {A}
        opened = [each.resolve() for each in Path("/proc/self/fd").iterdir()]
        ours = [each for each in opened if each.parent == tmp_path.resolve()]
        assert 0 < len(ours) <= CHECK_HANDLES_MAX


def test_a_tree_of_another_program_is_checked_as_sessions(steno: Steno, tmp_path: Path) -> None:
    folder = tmp_path / "tree" / "one"
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_bytes(
        line({"role": "_checkpoint", "id": 1}) + line({"role": "_checkpoint", "id": 0}) + A
    )
    (folder / "context_2.jsonl").write_bytes(A)
    printed = steno("verify", str(folder.parent), "--json")
    assert printed.code == Exit.DAMAGED
    assert [(each["kind"], each["file"]) for each in printed.document["findings"]] == [
        ("checkpoint_order", "context.jsonl"),
        ("generation_gap", "context_1.jsonl"),
    ]


def test_a_target_that_is_no_file_is_an_error(steno: Steno, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    ran = steno("verify", str(tmp_path / "pipe.jsonl"))
    assert (ran.code, "neither a file nor a folder" in ran.err) == (Exit.FAILED, True)
    assert steno("verify", str(tmp_path / "none.jsonl")).code == Exit.NOT_FOUND


def test_links_below_the_target_are_not_followed(steno: Steno, talk: Path) -> None:
    folder = talk.parent / "links"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(talk)
    ran = steno("verify", str(folder))
    assert (ran.code, ran.out) == (Exit.DONE, "")
    assert steno("verify", str(folder / "link.jsonl")).code == Exit.DAMAGED


# --- a session -----------------------------------------------------------------------------------


def test_a_session_is_verified_and_repaired_by_its_daemon(steno: Steno) -> None:
    steno("append", "demo", "first")
    damage_context(steno.root, "demo", HALF + B + b"garbage\n" + C)
    before = (steno.root / "sessions/demo/context.jsonl").read_bytes()

    checked = steno("verify", "demo", "--json")
    assert checked.code == Exit.DAMAGED
    assert [each["kind"] for each in checked.document["findings"]] == ["welded", "not_json"]
    assert (steno.root / "sessions/demo/context.jsonl").read_bytes() == before

    assert "nothing was changed" in steno("repair", "demo").err
    done = steno("repair", "demo", "--apply", "--why", "a crash of something else", "--json")
    assert done.code == Exit.DONE, done.err
    assert (done.document["applied"], done.document["head"]) == (True, "1:3")
    assert Path(done.document["kept_in"]).read_bytes() == before
    texts = [json.loads(text)["content"] for text in steno("read", "demo").out.splitlines()]
    assert texts == ["first", "b", "c"]

    after = steno("verify", "demo")
    assert (after.code, "no damage" in after.err) == (Exit.DONE, True)
    assert "a crash of something else" in steno("timeline", "demo").out
    steno("append", "demo", "later")
    assert "nothing to repair" in steno("repair", "demo", "--apply").err


def test_all_sessions_are_verified(steno: Steno) -> None:
    for session in ("one", "two"):
        steno("append", session, "hi")
    damage_context(steno.root, "two", b"garbage\n" + A)
    printed = steno("verify", "--all", "--json")
    assert printed.code == Exit.DAMAGED
    assert [(each["session"], each["damage"]) for each in printed.documents] == [
        ("one", 0),
        ("two", 1),
    ]


def test_a_session_open_in_a_daemon_is_not_repaired_in_place(steno: Steno) -> None:
    steno("append", "demo", "hi")
    folder = steno.root / "sessions" / "demo"
    ran = steno("repair", str(folder / "context.jsonl"), "--apply", "--json")
    assert (ran.code, ran.error["code"]) == (Exit.FAILED, "held")
    pid = steno("status", "--json").document["pid"]
    assert f"process {pid}" in ran.error["message"]


def test_a_session_of_steno_is_repaired_by_steno_only(steno: Steno) -> None:
    steno("append", "demo", "hi")
    steno("stop")
    damage_context(steno.root, "demo", b"garbage\n" + A)
    context = steno.root / "sessions" / "demo" / "context.jsonl"
    before = context.read_bytes()
    assert steno("verify", str(context.parent)).code == Exit.DAMAGED
    ran = steno("repair", str(context), "--apply")
    assert ran.code == Exit.FAILED
    assert f"`steno repair --root {steno.root} demo` repairs it" in ran.err
    assert context.read_bytes() == before


@pytest.mark.parametrize("name", ["state.json", "context.mark", "timeline.jsonl"])
def test_a_folder_in_place_of_a_file_is_a_finding(steno: Steno, name: str) -> None:
    steno("append", "demo", "hi")
    steno("stop")
    folder = steno.root / "sessions" / "demo"
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    ran = steno("verify", "--json", str(folder))
    assert ran.code == Exit.DAMAGED
    findings = [(each["file"], each["kind"]) for each in ran.documents[0]["findings"]]
    assert findings == [(name, "unreadable")]


def test_an_ambiguous_target_is_reported(steno: Steno) -> None:
    ran = steno("verify", "tests")
    assert ran.code == Exit.NOT_FOUND
    assert "./tests" in ran.err
    assert not (steno.root / "sessions" / "tests").exists()


def test_a_session_without_a_regular_context_is_checked(
    root: Path,
) -> None:
    tree = root / "copies"
    for name in ("gone", "fifo", "well"):
        (tree / name).mkdir(parents=True)
        (tree / name / "context_1.jsonl").write_text('{"role":"user","content":"hi"}\n')
    os.mkfifo(tree / "fifo" / "context.jsonl")
    (tree / "well" / "context.jsonl").write_text("")
    ran = Steno(root)("verify", str(tree))
    assert ran.code == 7
    fifo, gone = ran.out.splitlines()
    assert fifo.startswith(f"{tree}/fifo/context.jsonl: it cannot be read: it is a FIFO")
    assert gone.startswith(f"{tree}/gone/context.jsonl: it does not exist")
    assert "move the newest generation, context_1.jsonl, here" in gone


def test_verify_finds_a_session_without_a_present_generation(
    steno: Steno,
) -> None:
    for name in ("lost", "well"):
        steno("append", name, "one")
        steno("clear", name)
    steno("stop")
    (steno.root / "sessions" / "lost" / "context.jsonl").unlink()
    everything = steno("verify", "--all", "--json")
    assert everything.code == 7
    assert [(each["session"], each["damage"]) for each in everything.documents] == [
        ("lost", 1), ("well", 0),
    ]  # fmt: skip
    named = steno("verify", "lost")
    assert named.code == 7
    assert "move the newest context_N.jsonl here to continue from it" in named.out
    assert steno("verify", "nothing").code == 4

"""Titles, labels, the archive and the trash on the command line."""

import os
import re
import time
from pathlib import Path

import pytest

from steno import connect_sync
from steno_cli.render.tables import columns_of
from support.command import Steno

pytestmark = pytest.mark.served

DESCRIPTION = {"session", "title", "labels", "archived"}


@pytest.fixture
def steno(root: Path) -> Steno:
    with connect_sync(root) as client:
        for session in ("demo", "team/a", "team/b"):
            client.open(session, follow=False).append_message({"role": "user", "content": "hi"})
    return Steno(root)


def plain(shown: str) -> str:
    """What a terminal showed, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


def ids(steno: Steno, *arguments: str) -> list[str]:
    listed = steno("sessions", "--json", "--sort", "id", *arguments).document
    return [entry["session"] for entry in listed["sessions"]]


def test_a_title_is_set_shown_and_removed(steno: Steno) -> None:
    assert steno("title", "demo").out == ""
    printed = steno("title", "demo", "What is here?", "--json").document
    assert printed == {"session": "demo", "title": "What is here?", "labels": [], "archived": False}
    assert steno("title", "demo").out == "What is here?\n"
    assert "What is here?" in steno("sessions").out
    assert steno("title", "demo", "").code == 0
    assert steno("title", "demo").out == ""


def test_a_title_of_another_program_is_one_printable_line_in_a_list(
    root: Path, steno: Steno
) -> None:
    title = r"a\nb\tc\u2028d\u001b[31m"
    (root / "sessions" / "demo" / "state.json").write_text(f'{{"custom_title":"{title}"}}')
    (line,) = steno("sessions", "demo").out.split("\n")[:-1]
    assert line.endswith(r"a b c\u2028d\x1b[31m")


def test_labels_are_added_removed_and_replaced(steno: Steno) -> None:
    assert steno("label", "demo", "+red", "+green").out == "red\ngreen\n"
    assert steno("label", "demo", "-red", "+blue").out == "green\nblue\n"
    assert steno("label", "demo", "+red", "-hot", "-green").out == "blue\nred\n"
    assert steno("label", "demo").out == "blue\nred\n"
    printed = steno("label", "demo", "one", "two", "one", "--json").document
    assert (set(printed), printed["labels"]) == (DESCRIPTION, ["one", "two"])
    assert steno("label", "demo", "--none").out == ""
    assert steno("label", "demo").err == "steno: the session demo has no labels\n"


def test_sessions_are_found_by_label_and_title(steno: Steno) -> None:
    steno("label", "team/a", "red", "urgent")
    steno("label", "team/b", "red")
    steno("title", "team/b", "The Second One")
    assert ids(steno, "--label", "red") == ["team/a", "team/b"]
    assert ids(steno, "--label", "red", "--label", "urgent") == ["team/a"]
    assert ids(steno, "--title", "second") == ["team/b"]
    assert ids(steno, "demo", "--label", "red") == []
    line = steno("sessions", "team/b").out.strip()
    assert line.endswith("The Second One #red")


def test_an_archived_session_is_listed_only_on_request(steno: Steno) -> None:
    printed = steno("archive", "demo", "--json").document
    assert (set(printed), printed["archived"]) == (DESCRIPTION, True)
    assert ids(steno) == ["team/a", "team/b"]
    assert ids(steno, "--archived") == ["demo"]
    assert ids(steno, "--all") == ["demo", "team/a", "team/b"]
    assert "(archived)" in steno("sessions", "--all", "demo").out
    assert "hi" in steno("show", "demo").out
    assert steno("unarchive", "demo").err == "steno: demo is listed again\n"
    assert ids(steno, "--archived") == []


def test_a_list_fits_the_terminal(steno: Steno) -> None:
    steno("title", "demo", "word " * 30)
    for columns in (60, 120):
        lines = plain(steno.on_terminal(columns, "sessions")).splitlines()
        assert lines[0].split()[0] == "SESSION"
        assert max(map(columns_of, lines)) <= columns
        assert any(line.endswith("…") for line in lines)


def test_a_deleted_session_is_in_the_trash_with_its_subsessions(steno: Steno, root: Path) -> None:
    printed = steno("delete", "team/a", "--json").document
    assert set(printed) == {"session", "trash", "expires_at"}
    assert printed["expires_at"] > time.time()
    assert (Path(printed["trash"]) / "context.jsonl").exists()
    assert ids(steno) == ["demo", "team/b"]
    ran = steno("delete", "demo")
    assert Path(ran.out.strip(), "context.jsonl").exists()
    assert ran.err.startswith("steno: demo is in the trash and expires 2")
    assert "`steno undelete demo` restores it" in ran.err
    assert steno("delete", "demo").code == 4


def test_a_repeated_delete_spares_a_newer_session(steno: Steno) -> None:
    first = steno("delete", "demo", "--key", "d1")
    steno("append", "demo", "new")
    assert steno("delete", "demo", "--key", "d1").out == first.out
    assert "new" in steno("show", "demo").out


def test_delete_takes_a_unique_prefix_and_names_the_id(steno: Steno) -> None:
    assert "several ids begin with it: team/a, team/b" in steno("delete", "team").err
    ran = steno("delete", "dem")
    assert (ran.code, ran.err.count("\n")) == (0, 2)
    assert ran.err.startswith("steno: there is no session dem; only demo begins with it\n")
    assert ids(steno) == ["team/a", "team/b"]


def test_a_delete_with_a_key_needs_the_full_id(steno: Steno) -> None:
    assert steno("delete", "dem", "--key", "k").code == 4
    assert "demo" in ids(steno)


def test_delete_asks_for_confirmation_on_a_terminal(steno: Steno) -> None:
    steno("append", "demo/below", "hi")
    steno("title", "demo", "A title")
    shown = steno.on_terminal(120, "delete", "demo", typed="n\n")
    assert "move demo (A title) and 1 session below it to the trash? [y/N]" in shown
    assert "steno: demo stays" in shown
    assert "demo" in ids(steno)
    assert "to the trash?" not in steno.on_terminal(120, "delete", "team/a", "--yes", typed="")
    assert "is in the trash" in steno.on_terminal(120, "delete", "demo", typed="y\n")
    assert ids(steno) == ["team/b"]


def test_errors_about_a_damaged_state_name_the_repair(root: Path, steno: Steno) -> None:
    state = root / "sessions" / "demo" / "state.json"
    state.write_bytes(b'{"custom_title": "half')
    for refused in (("title", "demo", "x"), ("archive", "demo"), ("label", "demo", "+red")):
        ran = steno(*refused)
        assert (ran.code, ran.out) == (1, "")
        assert "`steno repair demo --apply`" in ran.err
    assert "`steno repair demo --apply` renames it" in steno("verify", "demo").out
    planned = steno("repair", "demo")
    assert "demo/state.json: it is not a JSON object" in planned.out
    assert "nothing was changed, --apply does it" in planned.err
    assert state.read_bytes() == b'{"custom_title": "half'

    ran = steno("repair", "demo", "--apply")
    assert ran.code == 0
    assert "the damaged one is state.json.damaged-1 beside it" in ran.err
    assert (state.parent / "state.json.damaged-1").read_bytes() == b'{"custom_title": "half'
    assert steno("title", "demo", "x").code == 0
    assert steno("archive", "demo").code == 0
    assert steno("verify", "demo").code == 0
    assert "there is nothing to repair" in steno("repair", "demo").err


# --- the list ------------------------------------------------------------------------------------

WORK_DIR = "0123456789abcdef0123456789abcdef"
GENERATED = (
    f"{WORK_DIR}/7c9e6679-7425-40de-944b-e07fc1f90ae7",
    f"{WORK_DIR}/7c9f0000-7425-40de-944b-e07fc1f90ae7",
)


def plant(root: Path, session: str, changed: float, lines: int = 1) -> None:
    """A session that another program wrote."""
    folder = root / "sessions" / session
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_bytes(b'{"role":"user","content":"hi"}\n' * lines)
    os.utime(folder / "context.jsonl", (changed, changed))


def test_list_begins_with_the_session_that_changed_last(steno: Steno, root: Path) -> None:
    plant(root, "old", time.time() - 5000, lines=300)
    plant(root, "new", time.time() + 5)

    def listed(*arguments: str) -> list[str]:
        return [line.split()[0] for line in steno("sessions", *arguments).out.splitlines()]

    everything = listed()
    assert (everything[0], everything[-1], len(everything)) == ("new", "old", 5)
    assert listed("-n", "1") == ["new"]
    assert listed("--sort", "id") == ["demo", "new", "old", "team/a", "team/b"]
    assert listed("--sort", "size")[0] == "old"
    assert listed("--sort", "records", "-n", "1") == ["old"]
    steno("title", "team/a", "Alpha")
    assert listed("--sort", "title")[0] == "team/a"


def test_list_in_a_pipe_has_full_ids_and_no_colours(steno: Steno, root: Path) -> None:
    for number, session in enumerate(GENERATED):
        plant(root, session, 1764000000.0 - number)
    rows = steno("sessions", WORK_DIR).out.splitlines()
    assert [line.split()[0] for line in rows] == list(GENERATED)
    assert "\x1b" not in "".join(rows)
    assert rows[0].split()[1:4] == ["31", "B", "0"]


def test_terminal_shows_the_shortest_prefix_which_every_command_takes(
    steno: Steno, root: Path
) -> None:
    for session in GENERATED:
        plant(root, session, time.time() - 86_400 * 2)
    shown = plain(steno.on_terminal(80, "sessions"))
    forms = re.findall(r"0123/\S+", shown)
    assert sorted(forms) == ["0123/7c9e", "0123/7c9f"]
    for form, session in zip(sorted(forms), GENERATED, strict=True):
        ran = steno("stat", form, "--json")
        assert ran.document["session"] == session
    ran = steno("stat", "0123/7c9")
    assert (ran.code, GENERATED[0] in ran.err, GENERATED[1] in ran.err) == (4, True, True)
    assert steno("stat", "0124/7c9e").code == 4


def test_terminal_shows_records_age_and_a_dot_for_live_sessions(steno: Steno, root: Path) -> None:
    plant(root, "quiet", time.time() - 7200, lines=12)
    with connect_sync(root) as client:
        # Followed: a session that was only changed is not live for long.
        client.open("demo")
        shown = plain(steno.on_terminal(80, "sessions"))
    rows = {line.removeprefix("●").split()[0]: line for line in shown.splitlines()}
    assert rows["quiet"].split()[1:] == ["372", "B", "12", "2", "h", "ago"]
    assert "●" not in rows["quiet"]
    assert rows["demo"].startswith("●")
    assert "GENERATIONS" not in rows["SESSION"]
    assert "GENERATIONS" in plain(steno.on_terminal(160, "sessions"))


def test_colours_are_left_out_with_no_color(steno: Steno, root: Path) -> None:
    assert "\x1b[36m" in steno.on_terminal(80, "sessions")
    assert "\x1b" not in Steno(root, NO_COLOR="1").on_terminal(80, "sessions")


def test_wide_characters_take_two_columns(steno: Steno) -> None:
    steno("title", "demo", "速記" * 40)
    lines = plain(steno.on_terminal(80, "sessions")).splitlines()
    assert {line[: line.index("demo")].count(" ") for line in lines if "demo" in line} <= {1, 2, 3}
    assert max(map(columns_of, lines)) <= 80


# --- renames and the trash -----------------------------------------------------------------------


def test_renamed_session_is_printed_with_its_new_id(steno: Steno) -> None:
    ran = steno("rename", "dem", "team/c", "--json")
    assert set(ran.document) == {"session", "folder"}
    assert ran.document["session"] == "team/c"
    ran = steno("rename", "team/c", "team/d")
    assert (ran.out, ran.err) == ("team/d\n", "steno: team/c is now team/d\n")
    assert ids(steno) == ["team/a", "team/b", "team/d"]
    assert "renamed from team/c to team/d" in steno("timeline", "team/d").out
    ran = steno("rename", "team/a", "team/b")
    assert (ran.code, ran.out) == (1, "")
    assert "exists already" in ran.err


def test_repeated_rename_spares_a_newer_session(steno: Steno) -> None:
    steno("rename", "demo", "other", "--key", "r1")
    steno("append", "demo", "new")
    steno("append", "demo2", "new")
    assert steno("rename", "demo", "other", "--key", "r1").out == "other\n"
    steno("delete", "demo", "--yes")
    # With a key, a prefix means no other session.
    assert steno("rename", "demo", "third", "--key", "r2").code == 4
    assert "demo2" in ids(steno)


def test_trash_is_listed_and_restored_from(steno: Steno) -> None:
    steno("title", "demo", "A title")
    trash = steno("delete", "demo").out.strip()
    printed = steno("sessions", "--trash", "--json").document
    (entry,) = printed["trash"]
    assert set(entry) == {"session", "trash", "bytes", "deleted_at", "expires_at", "title"}
    assert (entry["session"], entry["trash"], entry["title"]) == ("demo", trash, "A title")
    ran = steno("sessions", "--trash")
    assert ran.out.startswith("demo ")
    assert ran.out.rstrip().endswith("A title")
    lines = plain(steno.on_terminal(80, "sessions", "--trash")).splitlines()
    assert lines[0].split("  ")[0] == "SESSION"
    assert "GC REMOVES IT" in lines[0]
    ran = steno("undelete", "demo")
    assert (ran.code, ran.out) == (0, "demo\n")
    assert "demo" in ids(steno)
    assert steno("title", "demo").out == "A title\n"
    assert "the trash has no session in" in steno("sessions", "--trash").err
    assert steno("undelete", "demo").code == 4


def test_short_ids_of_the_trash_fit_a_terminal_and_are_restored(steno: Steno, root: Path) -> None:
    for session in GENERATED:
        plant(root, session, 1764000000.0)
        steno("delete", session, "--yes")
    lines = plain(steno.on_terminal(80, "sessions", "--trash")).splitlines()[1:3]
    assert sorted(line.split()[0] for line in lines) == ["0123/7c9e", "0123/7c9f"]
    assert all(re.search(r"\d{4}-\d\d-\d\d$", line.rstrip()) for line in lines)
    ran = steno("undelete", "0123/7c9")
    assert (ran.code, GENERATED[0] in ran.err, GENERATED[1] in ran.err) == (4, True, True)
    assert steno("undelete", "0123/7c9e").out == f"{GENERATED[0]}\n"
    # With a key, a short id means no session.
    assert steno("undelete", "0123/7c9f", "--key", "k").code == 4


def test_an_earlier_deletion_is_restored_by_its_folder(steno: Steno) -> None:
    first = steno("delete", "demo").out.strip()
    steno("append", "demo", "second life")
    steno("delete", "demo", "--yes")
    ran = steno("undelete", "demo", "--trash", first, "--json")
    assert ran.document["session"] == "demo"
    assert "second life" not in steno("show", "demo").out

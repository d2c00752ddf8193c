"""Titles, labels, the archive and the trash on the command line."""

import time
from pathlib import Path

import pytest

from steno import connect_sync
from support.command import Steno

DESCRIPTION = {"session", "title", "labels", "archived"}


@pytest.fixture
def steno(root: Path) -> Steno:
    with connect_sync(root) as client:
        for session in ("demo", "team/a", "team/b"):
            client.open(session, follow=False).append_message({"role": "user", "content": "hi"})
    return Steno(root)


def ids(steno: Steno, *arguments: str) -> list[str]:
    listed = steno("sessions", "--json", *arguments).document
    return [entry["session"] for entry in listed["sessions"]]


def test_a_title_is_set_shown_and_removed(steno: Steno) -> None:
    assert steno("title", "demo").out == ""
    printed = steno("title", "demo", "What is here?", "--json").document
    assert printed == {"session": "demo", "title": "What is here?", "labels": [], "archived": False}
    assert steno("title", "demo").out == "What is here?\n"
    assert "What is here?" in steno("sessions").out
    assert steno("title", "demo", "").code == 0
    assert steno("title", "demo").out == ""


def test_labels_are_added_removed_and_replaced(steno: Steno) -> None:
    assert steno("label", "demo", "+red", "+green").out == "red\ngreen\n"
    assert steno("label", "demo", "-red", "+blue").out == "green\nblue\n"
    assert steno("label", "demo", "+red", "-hot", "-green").out == "blue\nred\n"
    assert steno("label", "demo").out == "blue\nred\n"
    printed = steno("label", "demo", "one", "two", "one", "--json").document
    assert (set(printed), printed["labels"]) == (DESCRIPTION, ["one", "two"])
    assert steno("label", "demo", "--none").out == ""
    assert steno("label", "demo").err == "steno: the session demo has no labels\n"


def test_contradictory_labels_are_refused(steno: Steno) -> None:
    for words in (("red", "+green"), ("--none", "red"), ("red", "--unknown")):
        ran = steno("label", "demo", *words)
        assert (ran.code, ran.out) == (2, "")
    assert steno("label", "demo", "a,b").code == 2


def test_a_command_line_without_a_session_names_the_missing_argument(steno: Steno) -> None:
    ran = steno("label")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("steno: the following arguments are required: SESSION;")


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
    assert steno("sessions", "--all", "--archived").code == 2
    assert "hi" in steno("show", "demo").out
    assert steno("unarchive", "demo").err == "steno: demo is listed again\n"
    assert ids(steno, "--archived") == []


def test_a_list_fits_the_terminal(steno: Steno) -> None:
    steno("title", "demo", "word " * 30)
    for columns in (60, 120):
        lines = steno.on_terminal(columns, "sessions").splitlines()
        assert lines[0].startswith("SESSION")
        assert max(map(len, lines)) <= columns
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

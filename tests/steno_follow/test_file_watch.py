"""Which files below some folders are new, changed or gone."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePath

import pytest

from steno_agents.places import places_of
from steno_follow import file_watch
from steno_follow.file_watch import FileWatch
from steno_follow.inotify import Inotify

NOW_NS = 1_800_000_000_000_000_000
LONG_AGO_NS = NOW_NS - 10**15


class Watched:
    """A folder that a test changes, with the names that each look finds."""

    def __init__(self, watch: FileWatch, folder: Path) -> None:
        self.watch = watch
        self.folder = folder
        self.now = 0.0

    def write(self, name: str, content: str = "{}\n", at_ns: int = LONG_AGO_NS) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, ns=(at_ns, at_ns))
        return path

    def look(self, after: float = 2.0) -> set[tuple[str, bool]]:
        """The names of what changed, and whether it is there."""
        self.now += after
        found = self.watch.look(self.now, NOW_NS + int(self.now * 1e9))
        return {
            (str(Path(each.path).relative_to(self.folder)), each.shape is not None)
            for each in found
        }


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    folder = tmp_path / "projects"
    with closing(FileWatch([folder])) as watch:
        yield Watched(watch, folder)


def test_a_folder_that_comes_later_is_found_with_all_that_is_in_it(watched: Watched) -> None:
    assert watched.look() == set()
    watched.write("a.jsonl")
    watched.write("one/two/three/b.jsonl")
    watched.write("one/.hidden/c.jsonl")
    watched.write("one/d.txt")
    assert watched.look() == {("a.jsonl", True), ("one/two/three/b.jsonl", True)}
    assert watched.look() == set()


def test_new_changed_and_deleted_files_are_found_once(watched: Watched) -> None:
    watched.write("a.jsonl")
    watched.look()
    watched.write("b.jsonl")
    assert watched.look() == {("b.jsonl", True)}
    watched.write("a.jsonl", "{}\n{}\n")
    assert watched.look() == {("a.jsonl", True)}
    (watched.folder / "a.jsonl").unlink()
    assert watched.look() == {("a.jsonl", False)}
    assert watched.look() == set()
    watched.write("a.jsonl")
    assert watched.look() == {("a.jsonl", True)}


def test_a_file_that_was_replaced_by_one_of_the_same_size_is_found(watched: Watched) -> None:
    watched.write("a.jsonl")
    watched.look()
    watched.write("new").replace(watched.folder / "a.jsonl")
    assert watched.look() == {("a.jsonl", True)}


def test_a_link_in_the_place_of_a_file_is_no_file(watched: Watched) -> None:
    path = watched.write("a.jsonl")
    watched.look()
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert watched.look() == {("a.jsonl", False)}


def test_a_folder_that_was_replaced_is_searched_anew(watched: Watched) -> None:
    watched.write("a.jsonl")
    watched.look()
    watched.folder.rename(watched.folder.with_name("old"))
    assert watched.look() == {("a.jsonl", False)}
    watched.write("b.jsonl")
    assert watched.look() == {("b.jsonl", True)}


def test_one_file_is_watched_even_while_it_is_away(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    with closing(FileWatch([file])) as watch:
        assert watch.look(1, NOW_NS) == []
        for number in (2, 4):
            file.write_text("{}\n")
            assert [each.path for each in watch.look(number, NOW_NS)] == [str(file)]
            file.unlink()
            assert [each.shape for each in watch.look(number + 1, NOW_NS)] == [None]


def test_a_folder_that_cannot_be_searched_is_named_once(watched: Watched) -> None:
    watched.folder.symlink_to(watched.folder)
    watched.look()
    assert [path for path, _ in watched.watch.left_out] == [watched.folder]
    watched.look()
    assert watched.watch.left_out == []


def test_of_many_old_files_some_are_looked_at_each_time(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "WATCH_STATS_MAX", 3)
    monkeypatch.setattr(file_watch, "_TURNS_MIN", 1)
    for number in range(10):
        watched.write(f"{number}.jsonl")
    watched.look()
    looked_at: list[str] = []
    lstat = os.lstat

    def counted(path: str) -> os.stat_result:
        looked_at.append(path)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", counted)
    for _ in range(4):
        watched.look()
    files = [path for path in looked_at if str(path).endswith(".jsonl")]
    assert len(files) == 12
    assert len(set(files)) == 10
    # A file that has changed is among those of each time.
    watched.write("7.jsonl", "changed\n")
    found: set[tuple[str, bool]] = set()
    while not found:
        found = watched.look()
    looked_at.clear()
    watched.look()
    assert str(watched.folder / "7.jsonl") in looked_at


def test_of_too_many_new_files_some_take_turns(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "WATCH_STATS_MAX", 6)
    monkeypatch.setattr(file_watch, "_TURNS_MIN", 1)
    for number in range(9):
        watched.write(f"{number}.jsonl", at_ns=NOW_NS)
    assert len(watched.look()) == 9
    (watched.folder / "0.jsonl").write_text("changed\n")
    (watched.folder / "8.jsonl").write_text("changed\n")
    found = watched.look()
    assert ("8.jsonl", True) in found
    while ("0.jsonl", True) not in found:
        found |= watched.look()


def test_some_paths_are_looked_at_alone(watched: Watched) -> None:
    for name in ("a", "b"):
        watched.write(f"{name}.jsonl")
    watched.look()
    for name in ("a", "b", "c", "below/d"):
        watched.write(f"{name}.jsonl", "changed\n")
    names = ["a.jsonl", "c.jsonl", "below", "unknown.txt"]
    found = watched.watch.look_at([watched.folder / each for each in names], 9, NOW_NS)
    assert {Path(each.path).name for each in found} == {"a.jsonl", "c.jsonl", "d.jsonl"}
    assert watched.watch.new_folders == [str(watched.folder / "below")]
    assert watched.look() == {("b.jsonl", True)}


def test_the_kernel_says_what_changed_in_a_folder(tmp_path: Path) -> None:
    with closing(Inotify()) as notes:
        if not notes.is_there:
            pytest.skip("this kernel sends no notes")
        notes.add(tmp_path)
        notes.add(tmp_path / "missing")
        assert notes.wait(0) == set()
        file = tmp_path / "a.jsonl"
        file.write_text("one")
        (tmp_path / "below").mkdir()
        assert notes.wait(9) == {file, tmp_path / "below"}
        file.unlink()
        assert notes.wait(9) == {file}


def test_a_watch_without_notes_waits_for_its_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    with closing(Inotify()) as notes:
        notes.add(Path("/"))
        assert notes.wait(2) == set()
    assert waited == [2]


def test_a_file_that_comes_in_the_same_tick_of_the_clock_is_found(watched: Watched) -> None:
    watched.write("a.jsonl")
    clock = NOW_NS + int((watched.now + 2) * 1e9)
    os.utime(watched.folder, ns=(clock, clock))
    watched.look()
    watched.write("b.jsonl")
    os.utime(watched.folder, ns=(clock, clock))
    assert watched.look() == {("b.jsonl", True)}


def test_a_clock_that_began_in_1970_hides_nothing(watched: Watched) -> None:
    watched.write("a.jsonl", at_ns=5)
    assert watched.watch.look(1, 10)
    watched.write("a.jsonl", "{}\n{}\n", at_ns=6)
    assert watched.watch.look(2, 11)


def test_the_folders_of_the_programs_can_be_moved_by_their_variables() -> None:
    home = PurePath("/srv/me")
    assert PurePath("/srv/me/.pi/agent/sessions") in places_of(home, {})
    moved = places_of(home, {"CLAUDE_CONFIG_DIR": "/srv/claude", "CODEX_HOME": "/srv/codex"})
    assert PurePath("/srv/claude/projects") in moved
    assert PurePath("/srv/codex/archived_sessions") in moved
    assert not any(each.is_relative_to("/srv/me/.codex") for each in moved)

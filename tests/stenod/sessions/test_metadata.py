"""Metadata of sessions over the simulated disk: changed atomically, other fields kept."""

import contextlib
import json
from pathlib import Path

import pytest

from steno_protocol import limits
from steno_protocol.commands import List
from steno_protocol.errors import BadRequest, Corrupt, NotFound
from stenod.sessions.metadata import NOTHING, Description
from support.simulated_disk import Death, Effect, SimulatedDisk
from support.stored_session import NOW_S
from support.whole_sessions import PATH, TREE, World, deaths, failures

STATE = f"{PATH}/state.json"
KIMI = (
    b'{"version":1,"custom_title":null,"archived":false,"todos":[{"n":1.50}],"big":1'
    + b"0" * 30
    + b"}"
)


def world_with(state: bytes | None) -> World:
    world = World(SimulatedDisk())
    world.disk.plant(f"{PATH}/context.jsonl", b"")
    if state is not None:
        world.disk.plant(STATE, state)
    return world


def test_set_fields_are_read_again_and_the_others_stay() -> None:
    world = world_with(None)
    world.describe(title="a title", labels=("b", "a", "b"))
    world.describe(archived=True)
    assert world.described() == Description("a title", ("b", "a"), archived=True)
    world.describe(title="", labels=())
    assert world.described() == Description(archived=True)


def test_fields_of_other_programs_are_kept_to_the_byte() -> None:
    world = world_with(KIMI)
    world.describe(title="ä title")
    data = world.disk.content(STATE)
    assert b'"todos":[{"n":1.50}]' in data
    assert b'"big":1' + b"0" * 30 in data
    assert json.loads(data)["custom_title"] == "ä title"


def test_archiving_says_when_and_says_it_once() -> None:
    world = world_with(None)
    world.describe(archived=True, now=NOW_S)
    first = world.disk.content(STATE)
    world.describe(archived=True, now=NOW_S + 5)
    assert world.disk.content(STATE) == first
    assert json.loads(first)["archived_at"] == NOW_S
    world.describe(archived=False)
    state = json.loads(world.disk.content(STATE))
    assert "archived_at" not in state
    assert (state["archived"], state["auto_archive_exempt"]) == (False, True)


DAMAGED = [b"", b"{", b"[]", b"null", b"\xff", b'{"a":' + b"[" * 100_000, b'{"archived":true,}']


@pytest.mark.parametrize("state", DAMAGED[1:], ids=lambda state: repr(state[:12]))
def test_a_damaged_file_says_nothing_and_is_not_written_over(state: bytes) -> None:
    world = world_with(state)
    assert world.described() == NOTHING
    assert world.ids() == ["demo"]
    with pytest.raises(Corrupt, match="`steno repair demo --apply`"):
        world.describe(title="t")
    assert world.disk.content(STATE) == state


@pytest.mark.parametrize("state", DAMAGED, ids=lambda state: repr(state[:12]))
def test_a_damaged_file_is_kept_aside_and_a_new_one_begins(state: bytes) -> None:
    world = world_with(state)
    world.describe(replace_damaged=True)
    assert json.loads(world.disk.content(STATE)) == {"version": 1}
    if state:
        assert world.disk.content(f"{STATE}.damaged-1") == state
    assert world.describe(title="t") == Description("t")


def test_a_second_damaged_file_takes_the_next_name() -> None:
    world = world_with(b"{")
    world.describe(title="t", replace_damaged=True)
    world.disk.plant(STATE, b"[")
    world.describe(replace_damaged=True)
    assert world.disk.content(f"{STATE}.damaged-1") == b"{"
    assert world.disk.content(f"{STATE}.damaged-2") == b"["


def test_replacing_undamaged_metadata_changes_nothing_else() -> None:
    world = world_with(KIMI)
    world.describe(replace_damaged=True)
    assert world.disk.content(STATE) == KIMI


def test_a_file_that_is_too_large_is_damaged() -> None:
    world = world_with(b'{"a":"' + b"x" * limits.STATE_BYTES_MAX + b'"}')
    assert world.described() == NOTHING
    with pytest.raises(Corrupt):
        world.describe(title="t")


def test_values_of_another_shape_say_nothing() -> None:
    state = {"custom_title": 1, "labels": [1, "a", None], "archived": "yes", "forked_from": []}
    world = world_with(json.dumps(state).encode())
    assert world.described() == Description(labels=("a",))


# --- deaths and errors -------------------------------------------------------------------------


def test_a_description_that_dies_at_any_call_is_as_before_or_as_after() -> None:
    world = world_with(KIMI)
    outcomes = set[str]()
    for dying in deaths(world, lambda each: each.describe(title="t", labels=("a",))):
        with contextlib.suppress(Death):
            dying.world.describe(title="t", labels=("a",))
        dying.restart()
        found = dying.world.described()
        assert found in (NOTHING, Description("t", ("a",)))
        outcomes.add(found.title)
        assert dying.world.describe(title="t", labels=("a",)) == Description("t", ("a",))
        dying.world.disk.crash()
        assert dying.world.described() == Description("t", ("a",))
    assert outcomes == {"", "t"}


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_a_description_that_fails_at_any_call_is_as_before_or_as_after(effect: Effect) -> None:
    world = world_with(KIMI)
    for copy, _, raised in failures(world, lambda each: each.describe(title="t"), effect):
        assert raised is not None
        happened = (NOTHING,) if isinstance(raised, OSError) else (NOTHING, Description("t"))
        assert copy.described() in happened
        assert copy.describe(title="t") == Description("t")


# --- lists -------------------------------------------------------------------------------------


def test_list_contains_as_many_sessions_as_fit() -> None:
    world = World(SimulatedDisk())
    states = {
        "a": {"custom_title": "Straße am Meer", "labels": ["x", "y"]},
        "b": {"archived": True, "labels": ["x"]},
        "c/d": {"custom_title": "mehr"},
        "e": None,
    }
    for session, state in states.items():
        world.disk.plant(f"{TREE}/{session}/context.jsonl", b"")
        if state is not None:
            world.disk.plant(f"{TREE}/{session}/state.json", json.dumps(state).encode())

    def ids(**fields: object) -> list[str]:
        return [entry.session for entry in world.listed(**fields)]

    assert ids() == ["a", "b", "c/d", "e"]
    assert ids(archived="no") == ["a", "c/d", "e"]
    assert ids(archived="only") == ["b"]
    assert ids(labels=("x",)) == ["a", "b"]
    assert ids(labels=("y", "x")) == ["a"]
    assert ids(title="STRASSE") == ["a"]
    assert ids(title="me", prefix="c") == ["c/d"]
    assert ids(archived="no", after="a", limit=1) == ["c/d"]
    assert world.trees.sessions(List(archived="no", limit=2)).more
    first = world.listed()[0]
    assert (first.title, first.labels, first.archived) == ("Straße am Meer", ("x", "y"), False)


FLAT = "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"


def test_a_session_in_the_old_format_is_listed_apart() -> None:
    world = World(SimulatedDisk())
    moved = FLAT.replace("a11", "a12")
    for file in (
        f"project/{FLAT}.jsonl",
        f"project/{FLAT}/wire.jsonl",
        f"project/{moved}.jsonl",
        f"project/{moved}/context.jsonl",
        f"project/{moved}/uploads/{FLAT}.jsonl",
        "project/notes.jsonl",
    ):
        world.disk.plant(f"{TREE}/{file}", b"{}\n")
    listed = world.trees.sessions(List())
    assert [entry.session for entry in listed.sessions] == [f"project/{moved}"]
    assert [(entry.session, entry.bytes) for entry in listed.flat] == [(f"project/{FLAT}", 3)]
    assert world.trees.sessions(List(prefix="other")).flat == ()
    assert world.trees.sessions(List(archived="only")).flat == ()
    assert world.trees.sessions(List(labels=("a",))).flat == ()


WORK = "/srv/project"
FOLDER = "c3d64ed42b61ccc6c958f9e32279b127"


@pytest.mark.parametrize("where", ["beside the tree", "in the tree", "in a folder"])
def test_a_list_says_the_work_directory_and_its_last_session(where: str) -> None:
    world = World(SimulatedDisk())
    above = f"{TREE}/kimi/{FOLDER}" if where == "in a folder" else f"{TREE}/{FOLDER}"
    for name in ("a", "b", "b/subagents/c"):
        world.disk.plant(f"{above}/{name}/context.jsonl", b"")
    world.disk.plant(f"{above}/{FLAT}.jsonl", b"{}\n")
    file = {
        "beside the tree": str(Path(TREE).parent),
        "in the tree": TREE,
        "in a folder": f"{TREE}/kimi",
    }[where]
    known = {"work_dirs": [{"path": WORK, "kaos": "local", "last_session_id": "b"}, {"x": 1}]}
    world.disk.plant(f"{file}/kimi.json", json.dumps(known).encode())
    listed = world.trees.sessions(List())
    work_dirs = [
        (each.work_dir, each.last_in_work_dir) for each in (*listed.sessions, *listed.flat)
    ]
    assert work_dirs == [(WORK, False), (WORK, True), ("", False), (WORK, False)]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"work_dirs":1}', b'{"work_dirs":[[]]}'])
def test_a_damaged_file_of_work_directories_says_nothing(data: bytes) -> None:
    world = world_with(None)
    world.disk.plant(f"{TREE}/kimi.json", data)
    (entry,) = world.listed()
    assert (entry.work_dir, entry.last_in_work_dir) == ("", False)


def test_no_session_is_made_in_the_place_of_one_in_the_old_format() -> None:
    world = World(SimulatedDisk())
    world.disk.plant(f"{TREE}/project/{FLAT}.jsonl", b"{}\n")
    place = world.trees.place(f"project/{FLAT}")
    with pytest.raises(NotFound, match=f"steno import .*/project/{FLAT}.jsonl project/{FLAT}`"):
        world.trees.description(place)
    with pytest.raises(BadRequest, match="old format"):
        world.trees.identity(place, create=True)
    assert world.disk.content(f"{TREE}/project/{FLAT}.jsonl") == b"{}\n"


def test_sessions_without_a_present_generation_are_listed_apart_by_pages() -> None:
    world = World(SimulatedDisk())
    for name in ("a", "c", "e"):
        world.disk.plant(f"{TREE}/{name}/context.jsonl", b"")
    for name in ("b", "d/below", "f"):
        world.disk.plant(f"{TREE}/{name}/context_2.jsonl", b"")
    world.disk.plant(f"{TREE}/no/context_two.jsonl", b"")
    listed = world.trees.sessions(List())
    assert [entry.session for entry in listed.sessions] == ["a", "c", "e"]
    assert listed.without_context == ("b", "d/below", "f")
    first = world.trees.sessions(List(limit=2))
    assert (first.more, first.without_context) == (True, ("b",))
    rest = world.trees.sessions(List(limit=2, after="c"))
    assert (rest.more, rest.without_context) == (False, ("d/below", "f"))
    assert world.trees.sessions(List(prefix="d")).without_context == ("d/below",)

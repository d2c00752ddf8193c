"""Deletions of streams over the simulated disk, interrupted at every call."""

import contextlib
import errno

import pytest

from steno_protocol import paths
from steno_protocol.commands import DeleteStream
from steno_protocol.errors import OutcomeUnknown
from steno_protocol.replies import Deleted
from stenod.sessions import streams
from stenod.store.failed_syncs import FailedSyncs
from support.lines import SESSION
from support.simulated_disk import Death, Effect, SimulatedDisk
from support.stored_session import NOW_S
from support.whole_sessions import PATH, World, deaths

NAME = paths.stream_file("notes")
LINES = b'{"n":0,"_id":"k0"}\n{"n":1,"_id":"k1"}\n'
DELETED = f"stream-notes~1~{int(NOW_S)}~d.jsonl"


def prepared() -> World:
    world = World(SimulatedDisk())
    world.disk.foreign.make_folder(PATH)
    world.stored().open().log.close()
    world.disk.plant(f"{PATH}/{NAME}", LINES)
    world.disk.sync_all()
    return world


def delete(world: World) -> Deleted:
    """Delete the stream as the daemon does: with an earlier answer, if there is one."""
    command = DeleteStream(session=SESSION, stream="notes", key="d", expect="0:2")
    place = world.trees.place(SESSION)
    with world.trees.opened(place) as folder:
        found = streams.find_deleted(world.disk, folder, place, command, 10)
        if found is not None:
            return found
        return streams.discard(world.disk, folder, place, command, NOW_S, 10, FailedSyncs())


def check(world: World) -> None:
    """The stream is whole under one of its names, and the repeat deletes it once."""
    files = world.files(PATH)
    assert (files.get(f"/{NAME}"), files.get(f"/{DELETED}")) in ((LINES, None), (None, LINES))
    assert delete(world) == delete(world)
    files = world.files(PATH)
    assert files[f"/{DELETED}"] == LINES
    assert f"/{NAME}" not in files


def test_a_deletion_that_dies_at_any_call_is_applied_once() -> None:
    outcomes = set[bool]()
    for dying in deaths(prepared(), delete):
        with contextlib.suppress(Death):
            delete(dying.world)
        dying.restart()
        outcomes.add(f"/{DELETED}" in dying.world.files(PATH))
        check(dying.world)
    assert outcomes == {True, False}


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_a_deletion_that_fails_at_any_call_is_applied_once(effect: Effect) -> None:
    world = prepared()
    rehearsal = world.clone()
    first = len(rehearsal.disk.calls)
    delete(rehearsal)
    for call in range(first, len(rehearsal.disk.calls)):
        copy = world.clone()
        copy.disk.fail_at(call, errno.EIO, effect)
        try:
            delete(copy)
        except OutcomeUnknown:
            pass
        except OSError:
            copy.disk.heal()
            assert f"/{NAME}" in copy.files(PATH), "it was refused, and happened"
        copy.disk.heal()
        check(copy)


def test_a_deletion_that_was_answered_survives_a_power_cut() -> None:
    for seed in range(20):
        world = prepared()
        delete(world)
        world.disk.reseed(seed)
        world.disk.crash()
        assert f"/{DELETED}" in world.files(PATH)
        check(world)

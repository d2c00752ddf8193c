"""Streams that are compressed and expanded, with a death and an error at each call of the disk."""

import contextlib
import errno
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest

from steno_protocol import compression, paths
from steno_protocol.context import ContextCounters
from stenod.core import timeline
from stenod.core.recovery_point import decode_recovery_point, encode_recovery_point
from stenod.recovery import cold_streams
from stenod.recovery.cold_streams import compress_stream, compressible_streams, expand_stream
from stenod.sessions import streams
from stenod.store import compressing
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing, open_file, write_all
from stenod.store.names import read_file, stat_file
from support.simulated_disk import MOMENTS, Death, Effect, SimulatedDisk, Survival
from support.whole_sessions import PATH, World

NAME = paths.stream_file("notes")
PACKED = paths.compressed_file(NAME)
MARK = paths.recovery_point_file(NAME)
LINES = 100
CONTENT = b"".join(b'{"n":%d,"_id":"k%d"}\n' % (number, number) for number in range(LINES))
LATE = 1e12

OUTCOMES = [
    *((0, each) for each in (*Survival, None)),
    *((each, Survival.TORN) for each in range(1, 9)),
]
"""A torn folder keeps some names and not others, by the seed."""

Step = Callable[[SimulatedDisk], None]


@pytest.fixture(autouse=True)
def every_size() -> Iterator[None]:
    """Compress however small files."""
    with (
        patch.object(compressing, "BLOCK_BYTES", 1),
        patch.object(cold_streams, "BLOCK_BYTES", 1),
    ):
        yield


def prepared() -> SimulatedDisk:
    """A disk with a session, its stream and the recovery point of that."""
    disk = SimulatedDisk(page_bytes=256, names_in_order=False)
    disk.plant(f"{PATH}/{paths.CONTEXT}", b"")
    disk.plant(f"{PATH}/{NAME}", CONTENT)
    with closing(disk, disk.open_root(PATH)) as folder:
        named = disk.stat_name(folder, NAME)
    assert named is not None
    disk.plant(f"{PATH}/{MARK}", point(named.inode))
    disk.sync_all()
    return disk


def point(inode: int) -> bytes:
    return encode_recovery_point(
        generation=0,
        inode=inode,
        size=len(CONTENT),
        crc=timeline.fingerprint(len(CONTENT), CONTENT)[1],
        lines=LINES,
        counters=ContextCounters(),
    )


def compress(disk: SimulatedDisk) -> None:
    with closing(disk, disk.open_root(PATH)) as folder:
        for name, _ in compressible_streams(disk, folder, LATE, FailedSyncs()):
            assert compress_stream(disk, folder, name) > 0


def expand(disk: SimulatedDisk) -> None:
    with closing(disk, disk.open_root(PATH)) as folder:
        expand_stream(disk, folder, NAME)


def compressed() -> SimulatedDisk:
    disk = prepared()
    compress(disk)
    disk.sync_all()
    return disk


def check(disk: SimulatedDisk) -> None:
    """Everything that reads the stream reads it, whatever form it has."""
    with closing(disk, disk.open_root(PATH)) as folder:
        stat = stat_file(disk, folder, NAME)
        assert stat is not None
        assert stat.size == len(CONTENT)
        with closing(disk, open_file(disk, folder, NAME)) as handle:
            assert disk.read(handle, len(CONTENT) + 1, 0) == CONTENT
        (part,) = streams.closed_parts(disk, folder, None, FailedSyncs(), set())
    assert (str(part.head), part.bytes, part.stream) == (f"0:{LINES}", len(CONTENT), "notes")
    trees = World(disk).trees
    found = trees.readable_stream(trees.place("demo"), NAME, with_head=True)
    found.view.release()
    assert str(found.head) == f"0:{LINES}"


def is_of_its_file(disk: SimulatedDisk) -> bool:
    """Whether the recovery point belongs to the form that the stream has."""
    with closing(disk, disk.open_root(PATH)) as folder:
        found = decode_recovery_point(read_file(disk, folder, MARK))
        stat = stat_file(disk, folder, NAME)
        return found is not None and stat is not None and found.inode == stat.inode


def test_the_recovery_point_and_the_time_go_with_the_stream() -> None:
    disk = prepared()
    disk.now_s += 1000
    with closing(disk, disk.open_root(PATH)) as folder:
        before = disk.stat_name(folder, NAME)
        compress(disk)
        packed = disk.stat_name(folder, PACKED)
        assert is_of_its_file(disk)
        expand(disk)
        after = disk.stat_name(folder, NAME)
    assert before is not None
    assert packed is not None
    assert after is not None
    assert before.modified_s == packed.modified_s == after.modified_s
    assert before.inode != after.inode
    assert is_of_its_file(disk)
    point = decode_recovery_point(disk.content(f"{PATH}/{MARK}"))
    assert point is not None
    assert (point.bytes, point.lines) == (len(CONTENT), LINES)


@pytest.mark.parametrize(
    ("begin", "step"), [(prepared, compress), (compressed, expand)], ids=["compress", "expand"]
)
def test_a_death_at_any_call_leaves_the_whole_stream(
    begin: Callable[[], SimulatedDisk], step: Step
) -> None:
    before = begin()
    whole = before.clone()
    step(whole)
    forms = set[bool]()
    for call in range(len(before.calls), len(whole.calls)):
        for moment in MOMENTS:
            for seed, survival in OUTCOMES:
                dying = before.clone()
                dying.reseed(seed)
                if survival is None:
                    dying.kill_at(call, moment)
                else:
                    dying.crash_at(call, moment)
                with contextlib.suppress(Death):
                    step(dying)
                if dying.died:
                    dying.restart(survival)
                else:
                    # A death within a call that has no middle does not come.
                    dying.heal()
                    dying.crash()
                forms.add(dying.has_file(f"{PATH}/{NAME}"))
                check(dying)
                # The next opening, and the next collection behind it.
                expand(dying)
                check(dying)
                names = {path.rpartition("/")[2] for path in dying.tree()}
                assert PACKED not in names
                compress(dying)
                dying.crash(Survival.LOST)
                check(dying)
    assert forms == {True, False}


@pytest.mark.parametrize(
    ("begin", "step"), [(prepared, compress), (compressed, expand)], ids=["compress", "expand"]
)
@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_an_error_at_any_call_leaves_the_whole_stream(
    begin: Callable[[], SimulatedDisk], step: Step, effect: Effect
) -> None:
    before = begin()
    whole = before.clone()
    step(whole)
    for call in range(len(before.calls), len(whole.calls)):
        failing = before.clone()
        failing.fail_at(call, errno.EIO, effect)
        # That of the recovery point, which may be lost, is no error.
        with contextlib.suppress(OSError):
            step(failing)
        failing.heal()
        check(failing)
        failing.crash(Survival.LOST)
        check(failing)


def test_a_full_disk_leaves_the_compressed_stream_and_gets_its_room_back() -> None:
    disk = compressed()
    disk.free_bytes = 300
    with pytest.raises(OSError, match="space"):
        expand(disk)
    assert disk.free_bytes == 300
    check(disk)


@pytest.mark.parametrize("more", [b"", b'{"n":100,"_id":"k100"}\n'], ids=["same", "longer"])
def test_a_compressed_form_that_a_crash_left_goes_if_the_plain_one_has_its_bytes(
    more: bytes,
) -> None:
    disk = compressed()
    disk.plant(f"{PATH}/{NAME}", CONTENT + more)
    expand(disk)
    assert not disk.has_file(f"{PATH}/{PACKED}")
    assert disk.content(f"{PATH}/{NAME}") == CONTENT + more


@pytest.mark.parametrize(
    "left", [b"", CONTENT[:-1], bytes(len(CONTENT))], ids=["nothing", "shorter", "no content"]
)
def test_a_plain_form_of_which_a_power_cut_took_bytes_is_expanded_again(left: bytes) -> None:
    """As after a failed sync, whose bytes were in memory when it was compressed."""
    disk = compressed()
    disk.plant(f"{PATH}/{NAME}", left)
    expand(disk)
    assert not disk.has_file(f"{PATH}/{PACKED}")
    assert disk.content(f"{PATH}/{NAME}") == CONTENT


@pytest.mark.parametrize("act", [expand, compress])
@pytest.mark.parametrize(
    "other", [b'{"n":0}\n', CONTENT.replace(b"7", b"8")], ids=["short", "long"]
)
def test_a_stream_that_an_older_version_began_again_is_refused_and_both_are_kept(
    other: bytes, act: Callable[[SimulatedDisk], object]
) -> None:
    disk = compressed()
    packed = disk.content(f"{PATH}/{PACKED}")
    disk.now_s += 1
    disk.plant(f"{PATH}/{NAME}", other)
    with pytest.raises(OSError, match=f"older version.*{PACKED}.*remove one of them"):
        act(disk)
    assert disk.content(f"{PATH}/{PACKED}") == packed
    assert disk.content(f"{PATH}/{NAME}") == other


@pytest.mark.parametrize("survival", Survival)
def test_a_stream_is_on_the_disk_before_it_is_compressed(survival: Survival) -> None:
    disk = prepared()
    with closing(disk, disk.open_root(PATH)) as folder:
        # As the bytes that a killed daemon wrote and did not sync.
        with closing(disk, disk.open_append(folder, NAME)) as handle:
            write_all(disk, handle, CONTENT)
        assert compressible_streams(disk, folder, LATE, FailedSyncs())
    disk.crash(survival)
    assert disk.content(f"{PATH}/{NAME}") == CONTENT * 2


def test_a_plain_form_that_is_not_on_the_disk_yet_is_synced_before_the_compressed_one_goes() -> (
    None
):
    for seed, survival in OUTCOMES:
        if survival is None:
            continue
        disk = compressed()
        disk.reseed(seed)
        # `zstd -d` leaves both, and syncs neither.
        disk.foreign.replace(f"{PATH}/{NAME}", CONTENT)
        expand(disk)
        disk.crash(survival)
        assert disk.content(f"{PATH}/{NAME}") == CONTENT


def test_a_damaged_compressed_stream_stays_and_no_plain_one_begins() -> None:
    disk = compressed()
    packed = bytearray(disk.content(f"{PATH}/{PACKED}"))
    packed[-1] ^= 0x55
    disk.plant(f"{PATH}/{PACKED}", bytes(packed))
    with pytest.raises(compression.Damaged, match=f"damaged.*{PACKED}"):
        expand(disk)
    assert set(disk.tree()) == {f"{PATH}/{name}" for name in (paths.CONTEXT, PACKED, MARK)}


def test_what_may_not_be_compressed_stays_plain() -> None:
    disk = prepared()
    disk.plant(f"{PATH}/{paths.stream_file('torn')}", CONTENT + b'{"n":')
    disk.plant(f"{PATH}/{paths.stream_file('shared')}", CONTENT)
    disk.plant(f"{PATH}/{paths.WIRE}", CONTENT)
    disk.plant(f"{PATH}/stream-gone~1~1700000000~k.jsonl", CONTENT)
    failed = FailedSyncs()
    with closing(disk, disk.open_root(PATH)) as folder:
        disk.link(folder, paths.stream_file("shared"), "other.jsonl")
        disk.plant(f"{PATH}/{paths.stream_file('doubtful')}", CONTENT)
        doubtful = disk.stat_name(folder, paths.stream_file("doubtful"))
        assert doubtful is not None
        failed.add(doubtful)
        found = compressible_streams(disk, folder, LATE, failed)
        assert [name for name, _ in found] == [NAME]
        assert compressible_streams(disk, folder, doubtful.modified_s, failed) == []


def test_a_small_stream_stays_plain() -> None:
    disk = prepared()
    with (
        patch.object(cold_streams, "BLOCK_BYTES", len(CONTENT)),
        closing(disk, disk.open_root(PATH)) as folder,
    ):
        assert compressible_streams(disk, folder, LATE, FailedSyncs()) == []

"""Compression of past generations, with a death and an error at each call of the disk."""

import errno
import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from steno_protocol import compression, paths
from steno_protocol.errors import BadRequest
from stenod.store.compressing import compress_generation
from stenod.store.handles import closing, open_file
from stenod.store.names import past_generations, remove_generation, stat_generation, stat_stored
from stenod.store.posix import PosixDisk
from stenod.store.read_only import ReadOnlyDisk
from support.simulated_disk import MOMENTS, Death, Effect, SimulatedDisk, Survival

FOLDER = "/disk/demo"
NAME = paths.generation_file(1)
PACKED = paths.compressed_file(NAME)
CONTENT = b"".join(b'{"role":"user","content":"%d"}\n' % number for number in range(150))


OUTCOMES = [
    *((0, each) for each in (*Survival, None)),
    *((each, Survival.TORN) for each in range(1, 9)),
]
"""A torn folder keeps some names and not others, by the seed."""


def disk() -> SimulatedDisk:
    """A disk with a past generation, and the present one."""
    made = SimulatedDisk(page_bytes=256)
    made.plant(f"{FOLDER}/{NAME}", CONTENT)
    made.plant(f"{FOLDER}/{paths.CONTEXT}", b"")
    return made


def compress(on: SimulatedDisk) -> int:
    with closing(on, on.open_root(FOLDER)) as folder:
        return compress_generation(on, folder, 0)


def read(on: SimulatedDisk) -> bytes:
    with closing(on, on.open_root(FOLDER)) as folder:
        assert past_generations(on, folder) == [0]
        assert stat_generation(on, folder, 0).size == len(CONTENT)
        with closing(on, open_file(on, folder, NAME)) as handle:
            return on.read(handle, on.stat(handle).size, 0)


def deaths(*, names_in_order: bool = True) -> Iterator[tuple[SimulatedDisk, Survival | None]]:
    """A disk for each call of a compression, each moment of it and each outcome."""
    before = disk()
    whole = before.clone()
    compress(whole)
    for call in range(len(before.calls), len(whole.calls)):
        for moment in MOMENTS:
            for seed, survival in OUTCOMES:
                dying = before.clone()
                dying._names_in_order = names_in_order
                dying.reseed(seed)
                if survival is None:
                    dying.kill_at(call, moment)
                else:
                    dying.crash_at(call, moment)
                yield dying, survival


def test_a_compressed_generation_takes_less_and_reads_the_same() -> None:
    tried = disk()
    freed = compress(tried)
    assert freed > 0
    tried.crash(Survival.LOST)
    assert not tried.has_file(f"{FOLDER}/{NAME}")
    assert read(tried) == CONTENT
    with closing(tried, tried.open_root(FOLDER)) as folder:
        assert stat_stored(tried, folder, 0).size < len(CONTENT) / 3


def test_a_disk_that_is_only_read_expands_it(tmp_path: Path) -> None:
    made = PosixDisk()
    (tmp_path / NAME).write_bytes(CONTENT)
    with closing(made, made.open_root(str(tmp_path))) as folder:
        assert compress_generation(made, folder, 0) > 0
    only_read = ReadOnlyDisk()
    with (
        closing(only_read, only_read.open_root(str(tmp_path))) as folder,
        closing(only_read, open_file(only_read, folder, NAME)) as handle,
    ):
        assert only_read.read(handle, len(CONTENT) + 1, 0) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == [PACKED]


def test_other_programs_for_zstd_read_it() -> None:
    tried = disk()
    compress(tried)
    packed = io.BytesIO(tried.content(f"{FOLDER}/{PACKED}"))
    reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    assert reader.read() == CONTENT


@pytest.mark.parametrize("names_in_order", [True, False], ids=["in order", "in any order"])
def test_a_death_at_any_call_leaves_a_whole_generation(names_in_order: bool) -> None:
    found = set[bool]()
    for dying, survival in deaths(names_in_order=names_in_order):
        try:
            compress(dying)
        except Death:
            dying.restart(survival)
        else:
            # A death within a call that has no middle does not come.
            dying.heal()
            dying.crash()
        assert read(dying) == CONTENT
        found.add(dying.has_file(f"{FOLDER}/{NAME}"))
        # The next collection goes on, if the plain file is still there.
        if dying.has_file(f"{FOLDER}/{NAME}"):
            compress(dying)
        dying.crash(Survival.LOST)
        assert read(dying) == CONTENT
        # A power cut may bring back the name that a killed process removed.
        names = {path.rpartition("/")[2] for path in dying.tree()} - {NAME}
        assert names == {PACKED, paths.CONTEXT}
    assert found == {True, False}


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_an_error_at_any_call_leaves_a_whole_generation(effect: Effect) -> None:
    whole = disk()
    before = len(whole.calls)
    compress(whole)
    for call in range(before, len(whole.calls)):
        failing = disk()
        failing.fail_at(call, errno.EIO, effect)
        with pytest.raises(OSError, match="error"):
            compress(failing)
        failing.heal()
        assert read(failing) == CONTENT
        failing.crash(Survival.LOST)
        assert read(failing) == CONTENT


def test_a_full_disk_keeps_the_plain_file_and_gets_its_room_back() -> None:
    full = disk()
    full.free_bytes = 50
    with pytest.raises(OSError, match="space"):
        compress(full)
    assert full.free_bytes == 50
    assert read(full) == CONTENT


def test_a_compressor_that_errs_is_noticed_before_the_plain_file_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Erring:
        def __init__(self) -> None:
            self._inner = zstandard.ZstdCompressor().compressobj()

        def compress(self, data: bytes) -> bytes:
            return self._inner.compress(data.replace(b"7", b"8"))

        def flush(self) -> bytes:
            return self._inner.flush()

    monkeypatch.setattr(compression, "_compressor", Erring)
    tried = disk()
    with pytest.raises(OSError, match="damaged"):
        compress(tried)
    assert tried.content(f"{FOLDER}/{NAME}") == CONTENT
    assert not tried.has_file(f"{FOLDER}/{PACKED}")


@pytest.mark.parametrize("how", ["append", "replace"])
def test_a_generation_that_another_program_changes_meanwhile_stays_plain(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    tried = disk()
    compressed = compression.compressed

    def changing(blocks: Iterator[bytes], size: int, crc: int) -> Iterator[bytes]:
        yield from compressed(blocks, size, crc)
        getattr(tried.foreign, how)(f"{FOLDER}/{NAME}", CONTENT)

    monkeypatch.setattr(compression, "compressed", changing)
    with pytest.raises(OSError, match="another program"):
        compress(tried)
    assert set(tried.tree()) == {f"{FOLDER}/{NAME}", f"{FOLDER}/{paths.CONTEXT}"}
    assert tried.content(f"{FOLDER}/{NAME}") == CONTENT * (2 if how == "append" else 1)


def test_a_generation_that_does_not_shrink_stays_plain() -> None:
    tried = SimulatedDisk()
    content = random.Random(1).randbytes(9000)
    tried.plant(f"{FOLDER}/{NAME}", content)
    assert compress(tried) == 0
    assert tried.tree() == {f"{FOLDER}/{NAME}": content}


def test_a_damaged_or_cut_compressed_generation_is_an_error_of_its_file() -> None:
    tried = disk()
    compress(tried)
    packed = tried.content(f"{FOLDER}/{PACKED}")
    flipped = [packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :] for at in (0, 3, 20, 60)]
    last = packed[:-1] + bytes([packed[-1] ^ 0x55])
    cut = [packed[:size] for size in (0, 10, 30, len(packed) - 1)]
    for damaged in (*flipped, last, *cut):
        tried.plant(f"{FOLDER}/{PACKED}", damaged)
        with (
            closing(tried, tried.open_root(FOLDER)) as folder,
            pytest.raises(OSError, match=f"damaged.*{PACKED}"),
        ):
            open_file(tried, folder, NAME)


@pytest.mark.parametrize("size", [0, 100, 10**15])
def test_a_compressed_generation_that_expands_to_more_than_its_head_says_fills_nothing(
    size: int,
) -> None:
    blocks = (bytes(1 << 20) for _ in range(64))
    packed = b"".join(compression.compressed(blocks, size, 0))
    lengths = list[int]()
    found = compression.expanded(lambda count, at: packed[at : at + count], PACKED)
    with pytest.raises(OSError, match="damaged"):
        lengths.extend(map(len, found))
    assert max(lengths, default=0) <= 64 * 1024
    assert sum(lengths) <= size


def test_a_removal_takes_both_names_of_a_file_that_was_being_compressed() -> None:
    tried = disk()
    tried.plant(f"{FOLDER}/{PACKED}", b"".join(compression.compressed([CONTENT], len(CONTENT), 0)))
    assert read(tried) == CONTENT
    with closing(tried, tried.open_root(FOLDER)) as folder:
        remove_generation(tried, folder, 0)
        assert past_generations(tried, folder) == []


def test_without_zstd_both_ways_name_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed, plain = disk(), disk()
    compress(packed)

    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(compression.importlib, "import_module", missing)
    with pytest.raises(BadRequest, match=r"compressing.* install .*stenod\[zstd\]"):
        compress(plain)
    assert read(plain) == CONTENT
    with pytest.raises(OSError, match=rf"reading {PACKED} .* install .*stenod\[zstd\]"):
        read(packed)

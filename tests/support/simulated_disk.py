"""A disk in memory that loses unsynced data in a power cut.

It is the `Disk` of `stenod.store.disk` taken literally, and it can be made to fail and to die at
every single call:

    disk = SimulatedDisk(seed)
    root = disk.open_root("/disk", create=True)
    ...                            # run a procedure once: disk.calls has its N mutating calls
    disk.crash_at(k)               # run it again for each k < N: it raises PowerCut at call k,
    ...                            # and every later call does so too
    disk.restart()                 # the machine is on again; old handles answer EBADF

The same seed and the same calls give the same outcome.

What it does not model: other file systems than one, rename of files across folders, sparse
allocation, threads.
"""

import copy
import errno
import os
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from stenod.store.disk import FileStat
from support.foreign_program import ForeignProgram
from support.simulated_faults import (
    MOMENTS,
    Call,
    Death,
    Effect,
    Fault,
    FaultPlan,
    Moment,
    Occasion,
    PlannedDeath,
    PowerCut,
    ProcessKilled,
    ShortWrite,
    Storm,
)  # fmt: skip
from support.simulated_inodes import (
    Cut,
    File,
    FileKind,
    Folder,
    Handle,
    Named,
    Node,
    Renamed,
    Survival,
    Unnamed,
    Written,
)  # fmt: skip
from support.simulated_names import (
    as_file,
    as_folder,
    at,
    check_free,
    check_name,
    file_stat,
    os_error,
    parts,
    walk,
    walk_durable,
)  # fmt: skip

__all__ = [
    "MOMENTS",
    "Call",
    "Death",
    "Effect",
    "Moment",
    "PowerCut",
    "ProcessKilled",
    "SimulatedDisk",
    "Survival",
]

Result = TypeVar("Result")


class SimulatedDisk:
    """A `Disk` with seeds, faults and deaths.

    Args:
        seed: decides everything that a power cut leaves open.
        page_bytes: unit in which unsynced data survives; small ones make small files interesting.
        names_in_order: what survives of a folder's unsynced names is a prefix of what was done to
            it; False: each change survives or not by itself.
        ignore_fdatasync: break the disk on purpose: a sync of a file does nothing.
        ignore_folder_fsync: break the disk on purpose: a sync of a folder does nothing.

    Attributes:
        calls: every call that could change the disk, also the failed ones, oldest first.
        foreign: another program that works on the same files.
        now_s: the time that changes are stamped with; only a test moves it.
        free_bytes: room that is left, or None for no limit.
    """

    syncs_share_fate = True
    has_rivals = False
    is_read_only = False

    def __init__(
        self,
        seed: int = 0,
        *,
        page_bytes: int = 16,
        names_in_order: bool = True,
        ignore_fdatasync: bool = False,
        ignore_folder_fsync: bool = False,
    ) -> None:
        self.calls: list[Call] = []
        self.now_s = 1_700_000_000.0
        self.ignore_fdatasync = ignore_fdatasync
        self.ignore_folder_fsync = ignore_folder_fsync
        self.foreign = ForeignProgram(self)
        self._chance = random.Random(seed)
        self._page_bytes = page_bytes
        self._names_in_order = names_in_order
        self._inode_next = 2
        self._handle_next = 100
        self._top = self._new_folder()
        self._handles: dict[int, Handle] = {}
        self._locks: dict[int, Handle] = {}
        self._space_bytes: int | None = None
        self._plan = FaultPlan()
        self._death: type[Death] | None = None

    # --- the Disk: opening -----------------------------------------------------------------------

    def open_root(self, path: str, *, create: bool = False) -> int:
        """See `Disk`."""
        call = Call("open_root", path)
        if not create:
            return self._look(call, lambda: self._open_path(path))

        def effect() -> int:
            self._make_path(path, sync=True)
            return self._open_path(path)

        return self._change(call, effect, part=lambda: self._make_path(path, sync=False))

    def open_folder(self, parent: int, name: str, *, create: bool = False) -> int:
        """See `Disk`."""
        folder = self._folder(parent)
        check_name(name)
        call = Call("open_folder", name)
        if not create:
            return self._look(call, lambda: self._handle(as_folder(folder, name), name))

        def effect() -> int:
            self._make_folder(folder, name)
            self._sync_folder(folder)
            return self._handle(as_folder(folder, name), name)

        return self._change(call, effect, part=lambda: self._make_folder(folder, name))

    def open_read(self, folder: int, name: str) -> int:
        """See `Disk`."""
        names = self._folder(folder)
        check_name(name)
        return self._look(Call("open_read", name), lambda: self._handle(as_file(names, name), name))

    def open_append(self, folder: int, name: str, *, create: bool = False) -> int:
        """See `Disk`."""
        names = self._folder(folder)
        check_name(name)

        def effect() -> int:
            if create and name not in names.cached:
                names.change(Named(name, self.new_file()))
            return self._handle(as_file(names, name), name, writable=True)

        call = Call("open_append", name)
        return self._change(call, effect) if create else self._look(call, effect)

    def open_new(self, folder: int, name: str) -> int:
        """See `Disk`."""
        names = self._folder(folder)
        check_name(name)

        def effect() -> int:
            check_free(names, name)
            names.change(Named(name, self.new_file()))
            return self._handle(names.cached[name], name, writable=True)

        return self._change(Call("open_new", name), effect)

    def open_scratch(self, blocks: Iterable[bytes]) -> int:
        """See `Disk`."""
        data = b"".join(blocks)

        def effect() -> int:
            file = self.new_file()
            file.change(Written(0, data), self.now_s)
            return self._handle(file, "scratch")

        return self._look(Call("open_scratch", "scratch"), effect)

    def close(self, handle: int) -> None:
        """See `Disk`."""
        closed = self._opened(handle)
        del self._handles[handle]
        if self._locks.get(closed.node.inode) is closed:
            del self._locks[closed.node.inode]

    # --- the Disk: looking -----------------------------------------------------------------------

    def stat(self, handle: int) -> FileStat:
        """See `Disk`."""
        opened = self._opened(handle)
        return self._look(Call("stat", opened.name), lambda: file_stat(opened.node))

    def stat_name(self, folder: int, name: str) -> FileStat | None:
        """See `Disk`."""
        names = self._folder(folder)
        check_name(name)

        def effect() -> FileStat | None:
            node = names.cached.get(name)
            return None if node is None else file_stat(node)

        return self._look(Call("stat_name", name), effect)

    def has(self, folder: int, name: str, inode: int, size: int) -> bool:
        """See `Disk`."""
        found = self.stat_name(folder, name)
        return found is not None and (found.inode, found.size) == (inode, size)

    def names(self, folder: int) -> list[str]:
        """See `Disk`; in an order that changes from call to call."""
        names = sorted(self._folder(folder).cached)
        self._chance.shuffle(names)
        return self._look(Call("names", self._opened(folder).name), lambda: names)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """See `Disk`."""
        file = self._file(handle)
        return self._look(
            Call("read", self._opened(handle).name),
            lambda: bytes(file.cached[offset : offset + size]),
        )

    # --- the Disk: changing ----------------------------------------------------------------------

    def write(self, handle: int, data: bytes) -> int:
        """See `Disk`; bytes(data) is taken at once."""
        file = self._file(handle, writable=True)
        return self._append(Call("write", self._opened(handle).name), file, bytes(data))

    def truncate(self, handle: int, size: int) -> None:
        """See `Disk`."""
        file = self._file(handle, writable=True, error=errno.EINVAL)
        self._change(
            Call("truncate", self._opened(handle).name, f"to {size}"),
            lambda: file.change(Cut(size), self.now_s),
        )

    def mark_size_dirty(self, handle: int) -> None:
        """See `Disk`."""
        file, call = (
            self._file(handle, writable=True),
            Call("mark_size_dirty", self._opened(handle).name),
        )
        self._change(call, lambda: file.change(Cut(len(file.cached)), file.modified_s))

    def overwrite(self, handle: int, offset: int, data: bytes) -> None:
        """See `Disk`; it finds no full disk, as the bytes are there already."""
        file = self._file(handle, writable=True)

        def put(size: int) -> None:
            if size:
                file.change(Written(offset, bytes(data[:size])), file.modified_s)

        self._change(
            Call("overwrite", self._opened(handle).name, f"{len(data)} bytes at {offset}"),
            lambda: put(len(data)),
            part=lambda: put(self._chance.randint(0, len(data))),
        )

    @contextmanager
    def unmodified(self, handle: int) -> Generator[None]:
        """See `Disk`; a changed name changes no time of a simulated folder."""
        self._opened(handle)
        yield

    def copy_time(self, source: int, target: int) -> None:
        """See `Disk`; a power cut keeps the time."""
        self._file(target, writable=True).modified_s = self._file(source).modified_s

    def fdatasync(self, handle: int) -> None:
        """See `Disk`; when it fails, the dirty pages are dropped and count as clean.

        Every other handle that is open then fails once, too, at its next sync; a handle that is
        opened since believes what it sees.
        """
        self._sync("fdatasync", handle)

    def confirm(self, handle: int) -> None:
        """See `Disk`; there is no other machine."""

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """See `Disk`; once one has failed, any that follows may lose its bytes and report success.

        That is what ext4 and XFS do over a disk that fails a flush.
        """
        outcomes: list[OSError | None] = []
        for handle in handles:
            if any(outcomes) and self._chance.random() < 0.5:
                self._file(handle).drop_dirty()
            try:
                self.fdatasync(handle)
            except OSError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes

    async def sync_on_loop(self, handles: Sequence[int]) -> None:
        """See `Disk`; this one has to block."""
        del handles

    def fsync(self, handle: int) -> None:
        """See `Disk`; when it fails for a file, as `fdatasync`; for a folder, nothing was done."""
        self._sync("fsync", handle)

    def copy(self, source: int, target: int, offset: int, size: int) -> int:
        """See `Disk`."""
        data = bytes(self._file(source).cached[offset : offset + size])
        file = self._file(target, writable=True)
        return self._append(Call("copy", self._opened(target).name), file, data)

    def link(self, folder: int, name: str, new_name: str, *, into: int | None = None) -> None:
        """See `Disk`."""
        names = self._folder(folder)
        target = names if into is None else self._folder(into)
        check_name(name, new_name)

        def effect() -> None:
            node = at(names, name)
            check_free(target, new_name)
            if isinstance(node, Folder):
                raise os_error(errno.EPERM, name)
            target.change(Named(new_name, node))

        self._change(Call("link", name, f"as {new_name}"), effect)

    def rename(self, folder: int, name: str, new_name: str) -> None:
        """See `Disk`."""
        names = self._folder(folder)
        check_name(name, new_name)

        def effect() -> None:
            node = at(names, name)
            replaced = names.cached.get(new_name)
            if replaced is node:
                return  # POSIX: two names of one file stay two names
            if isinstance(replaced, Folder):
                number = errno.EISDIR if isinstance(node, File) else errno.ENOTEMPTY
                raise os_error(number, new_name)
            names.change(Renamed(name, new_name, node))

        self._change(Call("rename", name, f"to {new_name}"), effect)

    def move(self, folder: int, name: str, target: int, new_name: str, key: str = "") -> None:
        """See `Disk`; it survives a power cut in both folders or in neither."""
        del key
        names, others = self._folder(folder), self._folder(target)
        check_name(name, new_name)

        def effect() -> None:
            as_folder(names, name)
            if new_name in others.cached and as_folder(others, new_name).cached:
                raise os_error(errno.ENOTEMPTY, new_name)
            names.move(name, others, new_name)

        self._change(Call("move", name, f"to {new_name}"), effect)

    def remove_folder(self, folder: int, name: str) -> None:
        """See `Disk`."""
        names = self._folder(folder)
        check_name(name)

        def effect() -> None:
            if as_folder(names, name).cached:
                raise os_error(errno.ENOTEMPTY, name)
            names.change(Unnamed(name))

        self._change(Call("remove_folder", name), effect)

    def unlink(self, folder: int, name: str) -> None:
        """See `Disk`."""
        names = self._folder(folder)
        check_name(name)

        def effect() -> None:
            if isinstance(at(names, name), Folder):
                raise os_error(errno.EISDIR, name)
            names.change(Unnamed(name))

        self._change(Call("unlink", name), effect)

    def lock(self, handle: int) -> bool:
        """See `Disk`."""
        opened = self._opened(handle)
        return self._look(
            Call("lock", opened.name),
            lambda: self._locks.setdefault(opened.node.inode, opened) is opened,
        )

    # --- deaths ----------------------------------------------------------------------------------

    def crash(self, survival: Survival | None = None) -> None:
        """Cut the power and start again; every handle and lock is gone.

        Args:
            survival: what happens to everything unsynced; None lets the seed choose for each file
                and folder.
        """
        for node in self._nodes():
            self._lose_power(node, survival or self._chance.choice(list(Survival)))
        for node in self._nodes():
            if isinstance(node, Folder):
                node.read_again()
        self._recount_links()
        self.kill()

    def kill(self) -> None:
        """Kill the process and start a new one: every handle and lock is gone, no byte is."""
        self._handles.clear()
        self._locks.clear()
        self._death = None

    def crash_at(self, call: int, moment: Moment = "before") -> None:
        """Cut the power at call number `call`, counted over the whole life of the disk."""
        self._plan.death = PlannedDeath(call, PowerCut, moment)

    def kill_at(self, call: int, moment: Moment = "before") -> None:
        """Kill the process at call number `call`, counted over the whole life of the disk."""
        self._plan.death = PlannedDeath(call, ProcessKilled, moment)

    def restart(self, survival: Survival | None = None) -> None:
        """Start again after a planned death, and decide what a power cut leaves.

        Without a death that happened this is an error, as a plan was not reached.
        """
        assert self._death is not None, f"no process died in {len(self.calls)} calls"
        if self._death is PowerCut:
            self.crash(survival)
        else:
            self.kill()

    @property
    def died(self) -> bool:
        """True between a planned death and `restart`."""
        return self._death is not None

    def clone(self) -> "SimulatedDisk":
        """The same disk once more, to let it die in another way."""
        return copy.deepcopy(self)

    def reseed(self, seed: int) -> None:
        """Let another seed decide from here on."""
        self._chance = random.Random(seed)

    # --- faults ----------------------------------------------------------------------------------

    def fail_at(self, call: int, error: int, effect: Effect = Effect.NONE) -> None:
        """Let call number `call` fail with an errno, at any method."""
        self._plan.faults.append(Fault(Occasion(call=call), error, effect))

    def fail_next(
        self,
        method: str,
        error: int,
        *,
        name: str | None = None,
        skip: int = 0,
        times: int = 1,
        effect: Effect = Effect.NONE,
    ) -> None:
        """Let the next calls of a method fail, also of one that changes nothing.

        Args:
            method: a method of `Disk`.
            error: the errno.
            name: only calls about this name.
            skip: calls that succeed first.
            times: calls that fail.
            effect: what they do all the same.
        """
        occasion = Occasion(method=method, name=name, skip=skip, times=times)
        self._plan.faults.append(Fault(occasion, error, effect))

    def shorten_next(
        self, method: Literal["write", "copy"], bytes_max: int, *, skip: int = 0, times: int = 1
    ) -> None:
        """Let the next writes or copies take no more than some bytes each, without an error."""
        occasion = Occasion(method=method, skip=skip, times=times)
        self._plan.short_writes.append(ShortWrite(occasion, bytes_max))

    def storm(self, chance: random.Random, share: float, calls: int) -> None:
        """Let a share of the next calls fail, with any effect.

        Args:
            chance: decides which and how, by itself.
            share: of the calls that fail.
            calls: after so many it is over.
        """
        self._plan.storm = Storm(chance, share, calls)

    def heal(self) -> None:
        """Forget every fault and death that is still planned."""
        self._plan = FaultPlan()

    @property
    def free_bytes(self) -> int | None:
        """Room that is left, or None for no limit."""
        if self._space_bytes is None:
            return None
        return max(0, self._space_bytes - self._used_bytes())

    @free_bytes.setter
    def free_bytes(self, free: int | None) -> None:
        self._space_bytes = None if free is None else self._used_bytes() + free

    def evict(self, path: str) -> None:
        """Forget the clean pages of a file, also those that a failed sync dropped."""
        self.file_at(path).evict()

    # --- looking from outside --------------------------------------------------------------------

    def content(self, path: str) -> bytes:
        """The present contents for any process."""
        return bytes(self.file_at(path).cached)

    def has_file(self, path: str) -> bool:
        """True when anything has this name; its folder exists."""
        parent, _, name = path.rpartition("/")
        return name in self.folder_at(parent).cached

    def durable(self, path: str) -> bytes | None:
        """The contents after a power cut that loses all it can; None if the name is lost."""
        node: Node | None = self._top
        for name in parts(path):
            node = node.durable.get(name) if isinstance(node, Folder) else None
        return bytes(node.durable) if isinstance(node, File) else None

    def tree(self) -> dict[str, bytes]:
        """Every file by its path, with its present contents for any process."""
        return dict(walk(self._top, ""))

    def durable_tree(self) -> dict[str, bytes]:
        """Every file as `durable` has it."""
        return dict(walk_durable(self._top, ""))

    def sync_all(self) -> None:
        """Make everything durable, as a machine that runs on for a while does."""
        for node in self._nodes():
            node.sync()

    def plant(self, path: str, data: bytes = b"") -> None:
        """Put a file there, its folders too, all of it durable: where a test begins."""
        self.foreign.replace(path, data)
        self.sync_all()

    # --- for the foreign program -----------------------------------------------------------------

    def folder_at(self, path: str, *, create: bool = False) -> Folder:
        """The folder of a path."""
        folder = self._top
        for name in parts(path):
            if create and name not in folder.cached:
                folder.change(Named(name, self._new_folder()))
            folder = as_folder(folder, name)
        return folder

    def file_at(self, path: str) -> File:
        """The file of a path, of any kind."""
        parent, _, name = path.rpartition("/")
        node = at(self.folder_at(parent), name)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, name)
        return node

    def new_file(self, kind: FileKind = "file") -> File:
        """A file without a name."""
        return File(self._next_inode(), self.now_s, kind=kind)

    # --- how a call goes -------------------------------------------------------------------------

    def _look(self, call: Call, effect: Callable[[], Result]) -> Result:
        self._check_alive()
        fault = self._plan.fault(None, call)
        if fault is not None:
            raise fault.exception(call)
        return effect()

    def _change(
        self,
        call: Call,
        effect: Callable[[], Result],
        *,
        part: Callable[[], object] = lambda: None,
        failed: Callable[[], object] = lambda: None,
        failed_in_part: Callable[[], object] | None = None,
    ) -> Result:
        """Make a call that is counted.

        Args:
            call: how the trace names it.
            effect: all that it does.
            part: some of that, for a call during which the process dies.
            failed: what happens when it fails without effect.
            failed_in_part: what happens when it fails with some effect; None is `part`.
        """
        number = self._begin(call)
        fault = self._plan.fault(number, call)
        if fault is not None:
            in_part = failed_in_part or part
            {Effect.NONE: failed, Effect.PART: in_part, Effect.WHOLE: effect}[fault.effect]()
            raise fault.exception(call)
        if self._plan.dies(number, "within"):
            part()
            self._die("within")
        result = effect()
        self._die_if_planned(number, "after")
        return result

    def _begin(self, call: Call) -> int:
        self._check_alive()
        number = len(self.calls)
        self.calls.append(call)
        self._die_if_planned(number, "before")
        return number

    def _check_alive(self) -> None:
        if self._death is not None:
            raise self._death("the process is dead: restart() the disk first")

    def _append(self, call: Call, file: File, data: bytes) -> int:
        """Append as much as fits; a death or failure inside appends any part of that."""
        number = len(self.calls)
        call = call._replace(detail=f"{len(data)} bytes")

        def put(size: int) -> int:
            if size:
                file.change(Written(len(file.cached), data[:size]), self.now_s)
            return size

        def effect() -> int:
            room = self._room(len(data))
            if data and not room:
                raise os_error(errno.ENOSPC, call.name)
            planned = self._plan.bytes_max(number, call)
            return put(room if planned is None else min(room, planned))

        return self._change(
            call, effect, part=lambda: put(self._chance.randint(0, self._room(len(data))))
        )

    def _room(self, size: int) -> int:
        free = self.free_bytes
        return size if free is None else min(size, free)

    def _sync(self, method: str, handle: int) -> None:
        opened = self._opened(handle)
        node, call = opened.node, Call(method, opened.name)
        if isinstance(node, Folder):
            self._change(call, lambda: self._sync_folder(node))
            return
        try:
            self._change(
                call,
                lambda: self._sync_file(node),
                failed=node.drop_dirty,
                failed_in_part=lambda: node.sync_part(self._chance),
            )
        except OSError:
            node.failures += 1
            opened.learn()
            raise
        if opened.learn():
            raise os_error(errno.EIO, opened.name)

    def _sync_file(self, file: File) -> None:
        if not self.ignore_fdatasync:
            file.sync()

    def _sync_folder(self, folder: Folder) -> None:
        if not self.ignore_folder_fsync:
            folder.sync()

    # --- inodes and handles ----------------------------------------------------------------------

    def _opened(self, handle: int) -> Handle:
        self._check_alive()
        if handle not in self._handles:
            raise OSError(errno.EBADF, f"{os.strerror(errno.EBADF)}: {handle}")
        return self._handles[handle]

    def _folder(self, handle: int) -> Folder:
        opened = self._opened(handle)
        if isinstance(opened.node, File):
            raise os_error(errno.ENOTDIR, opened.name)
        return opened.node

    def _file(self, handle: int, *, writable: bool = False, error: int = errno.EBADF) -> File:
        opened = self._opened(handle)
        if writable and not opened.writable:
            raise os_error(error, opened.name)
        if isinstance(opened.node, Folder):
            raise os_error(errno.EISDIR, opened.name)
        return opened.node

    def _handle(self, node: Node, name: str, *, writable: bool = False) -> int:
        self._handle_next += 1
        self._handles[self._handle_next] = Handle(node, name, writable)
        return self._handle_next

    def _open_path(self, path: str) -> int:
        return self._handle(self.folder_at(path), path)

    def _make_path(self, path: str, *, sync: bool) -> None:
        folder = self._top
        for name in parts(path):
            self._make_folder(folder, name)
            if sync:
                self._sync_folder(folder)
            folder = as_folder(folder, name)

    def _make_folder(self, parent: Folder, name: str) -> None:
        if name not in parent.cached:
            parent.change(Named(name, self._new_folder()))

    def _new_folder(self) -> Folder:
        return Folder(self._next_inode(), self.now_s)

    def _next_inode(self) -> int:
        self._inode_next += 1
        return self._inode_next

    def _nodes(self) -> list[Node]:
        """Everything that has, had or may have again a name, or is open."""
        found: dict[int, Node] = {}
        waiting: list[Node] = [self._top, *(handle.node for handle in self._handles.values())]
        while waiting:
            node = waiting.pop()
            if node.inode not in found:
                found[node.inode] = node
                waiting.extend(node.nodes() if isinstance(node, Folder) else ())
        return list(found.values())

    def _living(self) -> list[File]:
        """The files that take room: those that have a name, once for each, and those open."""
        folders = [node for node in self._nodes() if isinstance(node, Folder)]
        named = [node for folder in folders for node in folder.cached.values()]
        opened = [handle.node for handle in self._handles.values()]
        return [node for node in (*named, *opened) if isinstance(node, File)]

    def _used_bytes(self) -> int:
        return sum(len(file.cached) for file in set(self._living()))

    def _lose_power(self, node: Node, survival: Survival) -> None:
        if isinstance(node, Folder):
            node.lose_power(survival, self._chance, in_order=self._names_in_order)
        else:
            node.lose_power(survival, self._chance, self._page_bytes)

    def _recount_links(self) -> None:
        self._handles.clear()
        files = self._living()
        for file in files:
            file.links = 0
        for file in files:
            file.links += 1

    def _die_if_planned(self, number: int, moment: Moment) -> None:
        if self._plan.dies(number, moment):
            self._die(moment)

    def _die(self, moment: Moment) -> None:
        planned = self._plan.death
        assert planned is not None
        self._plan.death = None
        self._death = planned.death
        number = len(self.calls) - 1
        raise planned.death(f"{moment} call {number}: {self.calls[number]}")

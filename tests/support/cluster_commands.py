"""The commands that name sessions, as the daemon of one host serves them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from steno_protocol import paths
from steno_protocol.commands import Delete, Fork, Rename, TakeIn, Undelete
from steno_protocol.errors import Exists, NotFound
from stenod.core import timeline
from stenod.core.machine import Machine
from stenod.recovery.opened import Opened
from stenod.runtime.config import Config
from stenod.sessions import fork, moves, rename, taking_in, trash
from stenod.sessions.fork_point import Snapshot
from stenod.sessions.session_folders import Place, SessionFolders
from support.replicated import Host

EXPIRY_S = 10**6
"""The time for which deleted sessions are kept."""


class ClusterCommands:
    """The commands of one host; they do what `stenod.operations` does in the same order.

    Args:
        host: the host.
        trees: its session folders; without them its tree is the folder `sessions` of its root.
    """

    def __init__(self, host: Host, trees: SessionFolders | None = None) -> None:
        self.host = host
        root = Path(host.tree).parent
        self._trees = trees or SessionFolders(Config(root, root / "socket"), host.disk)

    def decided(self, session: str, key: str, act: Callable[[], None]) -> None:
        """Serve a command again if an earlier copy took place while this one was refused."""
        try:
            act()
        except (Exists, NotFound):
            if self._moved(session, key) is None:
                raise
            act()

    def rename(self, session: str, new_session: str, key: str, now: float) -> None:
        """Rename a session."""
        command = Rename(session=session, new_session=new_session, key=key)
        wanted = rename.Wanted(command, self._place(session), self._place(new_session))
        if self._moved(session, key) == new_session:
            return
        if rename.find(self._trees, wanted) is not None:
            return
        if self._is_there(new_session):
            raise Exists("taken", session=new_session)
        self._acquire(session)
        rename.rename(self.host.disk, self._trees, wanted, now)

    def delete(self, session: str, key: str, now: float) -> None:
        """Delete a session."""
        command, place = Delete(session=session, key=key), self._place(session)
        if self._moved(session, key) is not None:
            return
        if trash.find(self._trees, place, command, EXPIRY_S) is not None:
            return
        self._acquire(session)
        trash.discard(self.host.disk, self._trees, place, command, now, EXPIRY_S)

    def undelete(self, session: str, key: str, now: float) -> None:
        """Restore the last session that was deleted under an id."""
        command, place = Undelete(session=session, key=key), self._place(session)
        for _ in range(2):
            if self._moved(session, key) == session:
                return
            if trash.restored(self._trees, place, command) is not None:
                return
            self.host.ownership.acquire(session)
        self.host.disk.name_changes.fetch_deleted(session)
        trash.restore(self.host.disk, self._trees, place, command, now, EXPIRY_S)

    def take_in(self, session: str, files: dict[str, bytes], key: str, now: float) -> None:
        """Take in a prepared session with those below it, given by the rest of their ids."""
        wanted = taking_in.Wanted(TakeIn(session=session, key=key), self._place(session))
        if self._moved(session, key) == session:
            return
        is_taken = self._is_there(session)
        if taking_in.find(self._trees, wanted):
            return
        if is_taken:
            raise Exists("taken", session=session)
        for below, content in files.items():
            folder = Path(f"{wanted.prepared}{below}")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / paths.CONTEXT).write_bytes(content)
            (folder / paths.CONTEXT).chmod(0o600)
        for folder in (Path(wanted.prepared).parent, Path(wanted.prepared).parent.parent):
            folder.chmod(0o700)
        taking_in.take_in(self.host.disk, self._trees, wanted, now)

    def fork(
        self,
        source: str,
        session: str,
        at: str,
        key: str,
        now: float,
        *,
        opened: Opened | None = None,
    ) -> None:
        """Fork a session, whose files a writer may have open."""
        command = Fork(session=source, new_session=session, key=key, at=at)
        wanted = fork.Wanted(
            command, self._place(source), self._place(session), key, stamp=True, now=now
        )
        is_taken = self._is_there(session)
        if fork.find(self.host.disk, self._trees, wanted) is not None:
            return
        if is_taken:
            raise Exists("taken", session=session)
        if self._moved(session, key) is not None:
            raise fork.gone(wanted)
        self._acquire(source)
        files = opened or self.host.open(source, create=False)
        with self._captured(files, source) as captured:
            fork.make(self.host.disk, self._trees, captured, wanted)

    def expire(self, path: str) -> None:
        """Remove what was deleted for good, given by its path in the session tree."""
        _, _, name = path.partition("/")
        session = name.split(".", 2)[2].replace("~", "/")
        self.host.disk.name_changes.fetch_deleted(session)
        tree = self.host.disk.open_root(self.host.tree)
        try:
            trash.remove(self.host.disk, tree, name)
        finally:
            self.host.disk.close(tree)

    @contextmanager
    def _captured(self, opened: Opened, session: str) -> Generator[Snapshot]:
        place, log = self._place(session), opened.log
        context = log.view(log.generation)
        wire = self._trees.readable_stream(place, paths.WIRE).view
        machine = opened.machine
        assert isinstance(machine, Machine)
        try:
            yield Snapshot(
                session=session,
                generation=log.generation,
                context=context,
                wire=wire,
                next_id=machine.next_checkpoint_id,
                past=lambda generation: self._trees.past(place, generation),
                timeline=timeline.decode(log.timeline()),
                incarnation=opened.incarnation,
            )
        finally:
            context.release()
            wire.release()

    def _place(self, session: str) -> Place:
        return self._trees.place(session)

    def _moved(self, session: str, key: str) -> str | None:
        found = self.host.disk.name_changes.moved(session, key)
        if found is None:
            moves.forget_begun(self._trees, self._place(session), key)
        else:
            self.host.ownership.tidy(session)
        return found

    def _is_there(self, session: str) -> bool:
        folder = self.host.ownership.acquire(session)
        return folder is not None and bool(folder.manifest.names)

    def _acquire(self, session: str) -> None:
        if not self._is_there(session):
            raise NotFound("no such session", session=session)

"""The daily removal of what nobody needs any longer."""

from collections.abc import Callable

from steno_protocol import limits, paths
from stenod.operations.operation import Operation, Parts
from stenod.sessions import fork, moves, trash
from stenod.store.handles import closing


class Sweep(Operation):
    """Removes leftovers of unfinished forks and imports, records of moves, and expired trash.

    Args:
        parts: what it works with.
        is_under_way: whether a command with a key is being served; called in a thread.
    """

    def __init__(self, parts: Parts, is_under_way: Callable[[str], bool]) -> None:
        super().__init__(parts)
        self._is_under_way = is_under_way
        self._swept_at: float | None = None

    async def when_due(self) -> None:
        """Sweep once a day.

        If more has expired than one sweep removes, the next call sweeps again.
        """
        now = self._services.monotonic()
        if self._swept_at is not None and now - self._swept_at < limits.TRASH_SWEEP_S:
            return
        self._swept_at = now
        are_done = [await self._sweep(str(tree.folder)) for tree in self._trees.trees]
        if not all(are_done):
            self._swept_at = None

    async def _sweep(self, folder: str) -> bool:
        left, untaken, expired, moved = await self._services.read(lambda: self._removed(folder))
        if left or untaken or expired or moved:
            self._services.log(
                "swept", folder=folder, forks=left, imports=untaken, trash=expired, moves=moved
            )
        return expired < limits.TRASH_SWEEP_ENTRIES_MAX

    def _removed(self, folder: str) -> tuple[int, int, int, int]:
        try:
            tree = self._disk.open_root(folder)
        except OSError:
            # A tree that does not exist has nothing to remove.
            return 0, 0, 0, 0
        with closing(self._disk, tree):
            wall = self._services.wall()
            return (
                fork.remove_abandoned(self._disk, tree, paths.FORKS, self._is_under_way),
                fork.remove_abandoned(self._disk, tree, paths.IMPORTS, self._is_under_way),
                trash.sweep(self._disk, tree, wall, self._expiry_s),
                moves.sweep(self._disk, tree, wall, self._expiry_s),
            )

"""The moves of a cluster that ended before their folders moved."""

from stenod.operations.operation import Operation
from stenod.sessions import moves
from stenod.sessions.cluster_member import ClusterMember


class UnsettledMoves(Operation):
    """Renames and restorations that were published, but not carried out."""

    async def settle(self, key: str | None = None) -> None:
        """Settle them, in a cluster.

        What they published would otherwise come back as a second session.

        Args:
            key: of the command to settle; None for all, whose errors are logged.

        Raises:
            OSError: the journal or the disk failed.
        """
        member = self._sessions.member
        if member is None:
            return
        try:
            await self._services.read(lambda: self._settle(member, key))
        except OSError as error:
            if key is not None:
                raise
            self._services.log("moves_unsettled", error=str(error))

    def _settle(self, member: ClusterMember, key: str | None) -> None:
        root = next(folder for prefix, folder in self._trees.prefixes() if not prefix)
        try:
            tree = self._disk.open_root(str(root))
        except FileNotFoundError:
            return
        try:
            for each in moves.unmoved(self._disk, tree, key):
                try:
                    is_moved = member.settle_move(each.source, each.target, each.record.key)
                except OSError as error:
                    if key is not None:
                        raise
                    # The others are settled nevertheless, and a repeat of this one tries again.
                    self._services.log("move_unsettled", source=each.source, error=str(error))
                    continue
                if not is_moved:
                    moves.forget(self._disk, tree, each.record)
                self._services.log(
                    "move_settled", source=each.source, to=each.target, moved=is_moved
                )
        finally:
            self._disk.close(tree)

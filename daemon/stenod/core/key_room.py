"""Room for the keys that the open files of a daemon remember, shared among them."""

from collections import OrderedDict
from typing import Protocol

from steno_protocol import limits


class Tenant(Protocol):
    """Who remembers keys, and has room for a number of them."""

    def give_back(self, count: int) -> None:
        """Have room for so many fewer: forget the oldest of those that have none then."""
        ...


class KeyRoom:
    """Gives room for keys out in pieces, one to each file at once and more to those that grow.

    When none is left, the file gives one back that asked for its last one longest ago: those that
    are not written to are asked first, and those that are ask for theirs again. The first piece
    stays with a file while it is open.

    Args:
        keys_max: how many keys there is room for, if that is a piece for each file.
        piece: for how many keys a piece is.
    """

    def __init__(
        self, keys_max: int = limits.KEYS_OPEN_MAX, piece: int = limits.KEYS_PIECE_MAX
    ) -> None:
        self._left = keys_max // piece
        self._more: OrderedDict[Tenant, int] = OrderedDict()
        self.piece = piece

    def enter(self, tenant: Tenant) -> None:
        """Somebody has a first piece from now on."""
        if self._left < 1:
            self._take_back(tenant)
        self._left -= 1

    def leave(self, tenant: Tenant) -> None:
        """All that somebody has is free again."""
        self._left += 1 + self._more.pop(tenant, 0)

    def ask(self, tenant: Tenant) -> bool:
        """Give somebody one more piece, if there is one, or if another can spare one."""
        if self._left < 1 and not self._take_back(tenant):
            return False
        self._left -= 1
        self._more[tenant] = self._more.pop(tenant, 0) + 1
        return True

    def _take_back(self, asker: Tenant) -> bool:
        tenant = next((each for each in self._more if each is not asker), None)
        if tenant is None:
            return False
        self._more[tenant] -= 1
        if not self._more[tenant]:
            del self._more[tenant]
        tenant.give_back(self.piece)
        self._left += 1
        return self._left > 0

"""Room for what the open files of a daemon know of keys, shared among them."""

from collections import OrderedDict
from typing import Protocol

from steno_protocol import limits


class Tenant(Protocol):
    """A holder of remembered keys: it has room for some, and may have a filter for the others."""

    def give_back(self, count: int) -> None:
        """Have room for so many fewer: forget the oldest of those that have none then."""
        ...

    def drop_filter(self) -> None:
        """Do without a filter, until another one is needed."""
        ...


class KeyRoom:
    """Gives room for keys out in pieces, one to each file at once and more to those that grow.

    When none is left, the file gives one back that asked for its last one longest ago: those that
    are not written to are asked first, and those that are ask for theirs again. The first piece
    stays with a file while it is open. Of too many filters that one goes which was made longest
    ago.

    Args:
        keys_max: how many keys there is room for, if that is a piece for each file.
        piece: for how many keys a piece is.
        filters_bytes: how much all filters together may take, if that is more than one takes.
    """

    def __init__(
        self,
        keys_max: int = limits.KEYS_OPEN_MAX,
        piece: int = limits.KEYS_PIECE_MAX,
        filters_bytes: int = limits.KEY_FILTERS_BYTES_MAX,
    ) -> None:
        self._left = keys_max // piece
        self._more: OrderedDict[Tenant, int] = OrderedDict()
        self._filters: OrderedDict[Tenant, int] = OrderedDict()
        self._filters_bytes = filters_bytes
        self.piece = piece

    def enter(self, tenant: Tenant) -> None:
        """Give a new holder its first piece."""
        if self._left < 1:
            self._take_back(tenant)
        self._left -= 1

    def leave(self, tenant: Tenant) -> None:
        """Free all pieces of a holder."""
        self._left += 1 + self._more.pop(tenant, 0)
        self._filters.pop(tenant, None)

    def ask(self, tenant: Tenant) -> bool:
        """Give a holder one more piece, if one is free or another holder can spare one."""
        if self._left < 1 and not self._take_back(tenant):
            return False
        self._left -= 1
        self._more[tenant] = self._more.pop(tenant, 0) + 1
        return True

    def filtered(self, tenant: Tenant, size: int) -> None:
        """Count a holder's new filter of so many bytes."""
        self._filters.pop(tenant, None)
        self._filters[tenant] = size
        while len(self._filters) > 1 and sum(self._filters.values()) > self._filters_bytes:
            oldest, _ = self._filters.popitem(last=False)
            oldest.drop_filter()

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

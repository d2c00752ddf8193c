"""Where the sessions in sight come from, read once in a while."""

import time
from collections import OrderedDict

from steno import Client
from steno_agents.origin import Origin, fetch_origin
from steno_redact.redactor import Redactor
from steno_view.limits import ORIGIN_AGE_S, ORIGINS_KEPT_MAX


class Origins:
    """The origins of sessions, masked."""

    def __init__(self, client: Client, redactor: Redactor) -> None:
        self._client = client
        self._redactor = redactor
        self._kept: OrderedDict[str, tuple[float, Origin | None]] = OrderedDict()

    def known(self, session: str) -> Origin | None:
        """The origin of a session as it was read last; None also for one that was not."""
        found = self._kept.get(session)
        return None if found is None else found[1]

    def is_known(self, session: str) -> bool:
        """Whether the origin was read."""
        return session in self._kept

    async def get(self, session: str) -> Origin | None:
        """The origin of a session, not older than `ORIGIN_AGE_S`; None if it is steno's own.

        Raises:
            NotFound: there is no such session.
        """
        found = self._kept.get(session)
        if found is not None and time.monotonic() - found[0] < ORIGIN_AGE_S:
            return found[1]
        origin = await fetch_origin(self._client.session(session))
        shown = None if origin is None else origin.masked(self._redactor.text)
        self._kept[session] = time.monotonic(), shown
        self._kept.move_to_end(session)
        if len(self._kept) > ORIGINS_KEPT_MAX:
            self._kept.popitem(last=False)
        return shown

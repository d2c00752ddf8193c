"""Tokens and cost for pages: read in a thread, a little at each request, and never again."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from steno import BlockingClient
from steno_agents.ledger import Ledger
from steno_agents.prices import Prices
from steno_agents.usage_table import By, tokens_of_day, usage_table
from steno_protocol.errors import StenoError
from steno_protocol.replies import SessionEntry
from steno_view.limits import SPENDING_DAY_S, SPENDING_TABLE_S

Connect = Callable[[], tuple[BlockingClient, Ledger]]
"""Connects a client for the thread, and makes what reads the tokens of its sessions."""


@dataclass(frozen=True, slots=True)
class DaySum:
    """The tokens of a day.

    Attributes:
        tokens: those of each session that was read.
        total: those of all of them.
        cost: what they cost; None without a price.
        currency: of the cost.
        is_complete: every session was read.
    """

    tokens: dict[str, int]
    total: int = 0
    cost: float | None = None
    currency: str = ""
    is_complete: bool = True


class SpendingService:
    """The tokens of one viewer's sessions.

    Args:
        connect: called once, in a thread.
        prices: reads the prices, which people edit while the viewer runs.
    """

    def __init__(self, connect: Connect, prices: Callable[[], Prices]) -> None:
        self._connect = connect
        self._prices = prices
        self._parts: tuple[BlockingClient, Ledger] | None = None
        # The ledger belongs to one thread at a time.
        self._lock = anyio.Lock()

    async def day(self, entries: Sequence[SessionEntry], day: str) -> DaySum:
        """The tokens of a day in some sessions; a later call reads what this one did not.

        Raises:
            BadRequest: the prices cannot be read.
            StenoError: the daemon does not answer.
        """
        async with self._lock:
            return await anyio.to_thread.run_sync(self._day, entries, day)

    async def table(
        self, entries: Sequence[SessionEntry], by: Sequence[By], since: str | None
    ) -> dict[str, Any]:
        """The sums of all sessions, and whether every one of them was read.

        Raises:
            BadRequest: the prices cannot be read.
            StenoError: the daemon does not answer.
        """
        async with self._lock:
            return await anyio.to_thread.run_sync(self._table, entries, by, since)

    def close(self) -> None:
        """Close the client."""
        if self._parts is not None:
            with suppress(StenoError):
                self._parts[0].close()

    # --- in threads -------------------------------------------------------------------------------

    def _day(self, entries: Sequence[SessionEntry], day: str) -> DaySum:
        prices, ledger = self._prices(), self._ledger()
        is_complete = ledger.update(entries, _after(SPENDING_DAY_S))
        accounts = {
            each.session: account
            for each in entries
            if (account := ledger.account(each.session)) is not None
        }
        tokens = {
            session: sum(spent.tokens.total for _, spent in account.on(day))
            for session, account in accounts.items()
        }
        total, cost = tokens_of_day(accounts.values(), day, prices)
        return DaySum(tokens, total, cost, prices.currency, is_complete)

    def _table(
        self, entries: Sequence[SessionEntry], by: Sequence[By], since: str | None
    ) -> dict[str, Any]:
        prices, ledger = self._prices(), self._ledger()
        # The session that was changed first is the one that others were copied from.
        oldest_first = sorted(entries, key=lambda each: each.modified_at)
        is_complete = ledger.update(oldest_first, _after(SPENDING_TABLE_S))
        ledger.keep(each.session for each in entries)
        table = usage_table(ledger.accounts, by, prices, since)
        found = {"is_complete": is_complete, "read": len(ledger.accounts), "sessions": len(entries)}
        return {**msgspec.to_builtins(table), **found}

    def _ledger(self) -> Ledger:
        if self._parts is None:
            self._parts = self._connect()
        return self._parts[1]


def _after(seconds: float) -> Callable[[], bool]:
    """What tells whether some seconds are over."""
    return partial(_is_over, time.monotonic() + seconds)


def _is_over(end: float) -> bool:
    return time.monotonic() > end

"""Tokens and cost of many sessions, added up by session, program, model and day; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from steno_agents.prices import Cost, Prices
from steno_agents.spending import Account, Cell, Sum

By = Literal["session", "program", "model", "day"]

BYS: Final[tuple[By, ...]] = ("session", "program", "model", "day")
"""What sums are made by, in the order of the columns."""

_Key = tuple[str | None, str | None, str | None, str | None]
"""The values of these in a sum."""

_OF_ALL: Final[_Key] = (None, None, None, None)


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sum.

    Attributes:
        session: the id of the session; this and the next three are None if the sum is of all, or
            if no record names it.
        program: the short name of the program, `steno` for sessions of its own.
        model: the model.
        day: the day in the zone of this machine, `2026-11-21`.
        requests: the number of requests.
        input: tokens that were read, without those of a cache.
        cache_read: tokens that were read from a cache.
        cache_write: tokens that were written to a cache.
        output: tokens that were written.
        unsplit: tokens of requests of which only the sum is known.
        tokens: all of them.
        cost: the cost of the tokens with a price; None if none has one.
        unpriced: the number of tokens without a price.
    """

    session: str | None = None
    program: str | None = None
    model: str | None = None
    day: str | None = None
    requests: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    unsplit: int = 0
    tokens: int = 0
    cost: float | None = None
    unpriced: int = 0


class UsageTable(msgspec.Struct, frozen=True, kw_only=True):
    """Sums and their total.

    Attributes:
        by: what the sums are made by.
        currency: of the costs; empty if there are no prices.
        rows: the sums, the latest day and the most tokens first.
        total: the sum of all.
    """

    by: Sequence[By]
    currency: str
    rows: list[UsageRow]
    total: UsageRow


def usage_table(
    accounts: Mapping[str, Account],
    by: Sequence[By],
    prices: Prices,
    since: str | None = None,
) -> UsageTable:
    """Return the sums of some sessions.

    Args:
        accounts: the tokens by session.
        by: what to make sums by.
        prices: the prices.
        since: the first day that counts; requests without a day count only without it.
    """
    found: dict[_Key, tuple[Sum, Cost]] = {}
    total = Sum(), Cost()
    for session, account in accounts.items():
        for cell, spent in account.sums.items():
            if since is not None and (cell.day is None or cell.day < since):
                continue
            more = spent, prices.cost(cell.model, spent.tokens)
            key = _key(session, account, cell, by)
            found[key] = _plus(found.get(key, (Sum(), Cost())), more)
            total = _plus(total, more)
    rows = [_row(key, *each) for key, each in found.items()]
    rows.sort(key=_order)
    return UsageTable(by=by, currency=prices.currency, rows=rows, total=_row(_OF_ALL, *total))


def tokens_of_day(
    accounts: Iterable[Account], day: str, prices: Prices
) -> tuple[int, float | None]:
    """Return the tokens of a day, and what those with a price cost."""
    tokens, cost = 0, Cost()
    for account in accounts:
        for model, spent in account.on(day):
            tokens += spent.tokens.total
            cost = cost.plus(prices.cost(model, spent.tokens))
    return tokens, cost.amount


def _key(session: str, account: Account, cell: Cell, by: Sequence[By]) -> _Key:
    return (
        session if "session" in by else None,
        # The program of a session is known with it.
        account.counted.stream if "session" in by or "program" in by else None,
        cell.model if "model" in by else None,
        cell.day if "day" in by else None,
    )


def _plus(one: tuple[Sum, Cost], more: tuple[Sum, Cost]) -> tuple[Sum, Cost]:
    (spent, cost), (added, price) = one, more
    return spent.plus(added.requests, added.tokens), cost.plus(price)


def _row(key: _Key, spent: Sum, cost: Cost) -> UsageRow:
    session, program, model, day = key
    return UsageRow(
        session=session,
        program=program,
        model=model,
        day=day,
        requests=spent.requests,
        **spent.tokens._asdict(),
        tokens=spent.tokens.total,
        cost=cost.amount,
        unpriced=cost.unpriced,
    )


def _order(row: UsageRow) -> tuple[str, int, str]:
    # The later a day, the earlier its row; digits are turned around for that.
    day = "".join(str(9 - int(each)) if each.isdigit() else each for each in row.day or "")
    return day, -row.tokens, f"{row.session} {row.program} {row.model}"

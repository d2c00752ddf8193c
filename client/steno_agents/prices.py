"""Prices of models, from a file that people write; none is guessed.

currency = "USD"

[models."claude-sonnet-*"]        # a name, or its beginning and a star
input = 3.00                      # for a million tokens
cache_read = 0.30
cache_write = 3.75
output = 15.00
"""

import math
import tomllib
from collections.abc import Mapping
from typing import Final, NamedTuple

from steno_agents.traces import Tokens
from steno_protocol._json import is_number, is_object
from steno_protocol.errors import BadRequest

_KINDS: Final = ("input", "cache_read", "cache_write", "output")
_MILLION: Final = 1_000_000


class Cost(NamedTuple):
    """What tokens cost.

    Attributes:
        amount: the cost of those with a price; None if none has one.
        unpriced: the number of tokens without a price.
    """

    amount: float | None = None
    unpriced: int = 0

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum."""
        known = [each for each in (self.amount, other.amount) if each is not None]
        return Cost(sum(known) if known else None, self.unpriced + other.unpriced)


class Prices:
    """The prices of some models.

    Attributes:
        currency: of all of them; empty if the file names none.
    """

    def __init__(self, models: Mapping[str, Mapping[str, float]], currency: str = "") -> None:
        self.currency: str = currency
        self._models = dict(models)
        starred = [each.removesuffix("*") for each in models if each.endswith("*")]
        self._beginnings = sorted(starred, key=len, reverse=True)

    def cost(self, model: str | None, tokens: Tokens) -> Cost:
        """Return what the tokens of a model cost."""
        prices = self._prices_of(model)
        amount: float | None = None
        unpriced = tokens.unsplit
        for kind, count in zip(_KINDS, tokens, strict=False):
            price = prices.get(kind)
            if price is None:
                unpriced += count
            elif count:
                amount = (amount or 0.0) + price * count / _MILLION
        return Cost(amount, unpriced)

    def _prices_of(self, model: str | None) -> Mapping[str, float]:
        if model is None:
            return {}
        if model in self._models:
            return self._models[model]
        begins = (each for each in self._beginnings if model.startswith(each))
        return self._models.get(f"{next(begins, None)}*", {})


def prices_in(text: str, place: str) -> Prices:
    """Return the prices in a text of TOML.

    Raises:
        BadRequest: it is no list of prices; the message names the place.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadRequest(f"{place} is no TOML: {error}") from None
    currency, models = document.get("currency", ""), document.get("models", {})
    odd = document.keys() - {"currency", "models"}
    if odd or not isinstance(currency, str) or not is_object(models):
        what = f"{min(odd)!r}" if odd else "`currency` or `models`"
        raise BadRequest(f"{place}: {what} is not as in a list of prices: {_FORM}")
    return Prices({name: _checked(name, each, place) for name, each in models.items()}, currency)


_FORM: Final = (
    'write `currency = "USD"`, and for each model a table such as `[models."gpt-5*"]` with `input`,'
    " `cache_read`, `cache_write` and `output`, each the price of a million tokens"
)


def _checked(name: str, table: object, place: str) -> dict[str, float]:
    if not is_object(table):
        raise BadRequest(f"{place}: the model {name!r} has no table of prices: {_FORM}")
    for kind, price in table.items():
        is_price = is_number(price) and math.isfinite(price) and price >= 0
        if kind not in _KINDS or not is_price:
            raise BadRequest(f"{place}: {kind!r} of the model {name!r} is no price: {_FORM}")
    return {kind: float(price) for kind, price in table.items()}

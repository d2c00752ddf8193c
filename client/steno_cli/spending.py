"""The tokens of a root's sessions, and the prices that people wrote."""

from argparse import Namespace
from pathlib import Path
from typing import Final

from steno import BlockingClient
from steno_agents.ledger import Ledger
from steno_agents.prices import Prices, prices_in
from steno_cli.connection import root_here
from steno_cli.session_files import sessions_folder
from steno_protocol.errors import BadRequest
from steno_protocol.limits import MIB

PRICES: Final = "prices.toml"
"""The file with prices in a root."""

_PRICES_BYTES_MAX: Final = MIB
"""Bytes of the prices: a table of a model has a hundred."""


def ledger_for(client: BlockingClient) -> Ledger:
    """What reads the tokens of a daemon's sessions."""
    return Ledger(client, sessions_folder(client))


def place_of_prices(options: Namespace, given: str | None = None) -> Path | None:
    """The file with the prices; None for a root on another machine."""
    if given is not None:
        return Path(given)
    root = root_here(options)
    return None if root is None else root / PRICES


def prices_at(place: Path | None, *, is_given: bool = False) -> Prices:
    """The prices in a file; none without one.

    Args:
        place: the file.
        is_given: the user named it, so that it has to be there.

    Raises:
        BadRequest: it cannot be read, or is no list of prices.
    """
    if place is None:
        return Prices({})
    try:
        with place.open("rb") as file:
            content = file.read(_PRICES_BYTES_MAX + 1)
        if len(content) > _PRICES_BYTES_MAX:
            raise BadRequest(
                f"{place} has over {_PRICES_BYTES_MAX} bytes, and is no list of prices"
            )
        return prices_in(content.decode(), str(place))
    except FileNotFoundError:
        if not is_given:
            return Prices({})
        raise BadRequest(f"there is no file {place}: --prices names a file with prices") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"the prices in {place} cannot be read: {error}") from None

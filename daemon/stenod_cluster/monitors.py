"""The monitoring of NATS servers, asked over HTTP."""

import http.client
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import msgspec

from stenod_cluster import limits
from stenod_cluster.facts import ServerFacts, Syncing


def ask_monitors(addresses: Iterable[str]) -> tuple[ServerFacts, ...]:
    """Ask servers all at the same time; one that does not answer within the limit has a trouble.

    It blocks for `limits.MONITOR_S` at most.
    """
    asked = tuple(addresses)
    if not asked:
        return ()
    with ThreadPoolExecutor(len(asked), thread_name_prefix="stenod-monitors") as pool:
        return tuple(pool.map(_ask, asked))


def _ask(address: str) -> ServerFacts:
    try:
        found = _fetched(f"{address.rstrip('/')}/varz")
        syncing = _syncing(found.get("jetstream", {}).get("config"))
        return ServerFacts(
            name=str(found["server_name"]),
            syncing=syncing,
            trouble="" if syncing is not Syncing.UNKNOWN else f"{address} has no JetStream",
        )
    except (OSError, URLError, http.client.HTTPException) as error:
        said = getattr(error, "reason", None) or error
        return ServerFacts(trouble=f"{address} does not answer: {said}")
    except (ValueError, KeyError, AttributeError, TypeError):
        return ServerFacts(trouble=f"{address} is not the monitoring of a NATS server")


def _fetched(url: str) -> dict[str, Any]:
    # A proxy of the environment is for other hosts than those of a cluster.
    opener = build_opener(ProxyHandler({}))
    with opener.open(url, timeout=limits.MONITOR_S) as answer:
        body = answer.read(limits.MONITOR_BYTES_MAX)
    return msgspec.json.decode(body, type=dict[str, Any])


def _syncing(config: dict[str, Any] | None) -> Syncing:
    if not config:
        return Syncing.UNKNOWN
    return Syncing.ALWAYS if config.get("sync_always") else Syncing.LAZY

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

    It blocks for twice `limits.MONITOR_S` at most.
    """
    asked = tuple(addresses)
    if not asked:
        return ()
    with ThreadPoolExecutor(len(asked), thread_name_prefix="stenod-monitors") as pool:
        return tuple(pool.map(_ask, asked))


def _ask(address: str) -> ServerFacts:
    try:
        name = str(_fetched(address, "varz")["server_name"])
        syncing = _syncing(_fetched(address, "jsz"))
        return ServerFacts(
            name=name,
            syncing=syncing,
            trouble="" if syncing is not Syncing.UNKNOWN else f"{address} has no JetStream",
        )
    except (OSError, URLError, http.client.HTTPException) as error:
        said = getattr(error, "reason", None) or error
        return ServerFacts(trouble=f"{address} does not answer: {said}")
    except (ValueError, KeyError, AttributeError, TypeError):
        return ServerFacts(trouble=f"{address} is not the monitoring of a NATS server")


def _fetched(address: str, page: str) -> dict[str, Any]:
    # A proxy of the environment is for other hosts than those of a cluster.
    opener = build_opener(ProxyHandler({}))
    with opener.open(f"{address.rstrip('/')}/{page}", timeout=limits.MONITOR_S) as answer:
        body = answer.read(limits.MONITOR_BYTES_MAX)
    return msgspec.json.decode(body, type=dict[str, Any])


def _syncing(jetstream: dict[str, Any]) -> Syncing:
    """Returns what `/jsz` says.

    `/varz` has the same configuration, but for good without it where anyone asked it before
    JetStream began: NATS 2.15 fills it in at the first question only.
    """
    if jetstream.get("disabled") or "config" not in jetstream:
        return Syncing.UNKNOWN
    return Syncing.ALWAYS if jetstream["config"].get("sync_always") else Syncing.LAZY

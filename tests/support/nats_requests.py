"""Requests to NATS servers as an operator or another program sends them."""

import asyncio
import json
import time
from typing import Any, Protocol

REQUEST_S = 30
"""Time for the connection, and for the reply, of servers that are just going up."""


ATTEMPT_S = 5
"""Time for one answer to a question: one that is lost, as while a leader changes, never comes."""

INFO_S = 60.0
"""Time in which servers that are going up answer a question at all."""


class Reachable(Protocol):
    """Servers, such as a `NatsCluster`."""

    @property
    def servers(self) -> list[str]:
        """The addresses for clients."""
        ...


def ask(
    cluster: Reachable, subject: str, request: object, wait_s: float = REQUEST_S
) -> dict[str, Any]:
    """Send a request over a connection of its own; returns the reply."""
    import nats

    async def run() -> dict[str, Any]:
        client = await nats.connect(
            cluster.servers, allow_reconnect=False, connect_timeout=REQUEST_S
        )
        try:
            reply = await client.request(subject, json.dumps(request).encode(), timeout=wait_s)
            return json.loads(reply.data)
        finally:
            await client.close()

    return asyncio.run(run())


def stream_info(
    cluster: Reachable, stream: str, request: object | None = None, wait_s: float = INFO_S
) -> dict[str, Any]:
    """Ask what servers say of a stream until one answers; a question changes nothing."""
    from nats.errors import Error

    deadline = time.monotonic() + wait_s
    while True:
        try:
            return ask(cluster, f"$JS.API.STREAM.INFO.{stream}", request or {}, ATTEMPT_S)
        except (Error, OSError):
            if time.monotonic() > deadline:
                raise


def rebuild(cluster: Reachable, stream: str) -> dict[str, Any]:
    """Delete a stream, and make it again with its configuration, as an operator does."""
    config = stream_info(cluster, stream)["config"]
    assert ask(cluster, f"$JS.API.STREAM.DELETE.{stream}", {})["success"]
    assert "error" not in ask(cluster, f"$JS.API.STREAM.CREATE.{stream}", config)
    return config

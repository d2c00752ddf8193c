"""Requests to NATS servers as an operator or another program sends them."""

import asyncio
import json
from typing import Any, Protocol

REQUEST_S = 30
"""Time for the connection, and for the reply, of servers that are just going up."""


class Reachable(Protocol):
    """Servers, such as a `NatsCluster`."""

    @property
    def servers(self) -> list[str]:
        """The addresses for clients."""
        ...


def ask(cluster: Reachable, subject: str, request: object) -> dict[str, Any]:
    """Send a request over a connection of its own; returns the reply."""
    import nats

    async def run() -> dict[str, Any]:
        client = await nats.connect(
            cluster.servers, allow_reconnect=False, connect_timeout=REQUEST_S
        )
        try:
            reply = await client.request(subject, json.dumps(request).encode(), timeout=REQUEST_S)
            return json.loads(reply.data)
        finally:
            await client.close()

    return asyncio.run(run())


def rebuild(cluster: Reachable, stream: str) -> dict[str, Any]:
    """Delete a stream, and make it again with its configuration, as an operator does."""
    config = ask(cluster, f"$JS.API.STREAM.INFO.{stream}", {})["config"]
    assert ask(cluster, f"$JS.API.STREAM.DELETE.{stream}", {})["success"]
    assert "error" not in ask(cluster, f"$JS.API.STREAM.CREATE.{stream}", config)
    return config

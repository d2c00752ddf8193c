"""A server on stdin and stdout, for the host that has started it."""

from mcp.server.stdio import stdio_server

from steno import Client
from steno_mcp.server import serving
from steno_redact.redactor import Redactor


async def serve_stdio(client: Client, redactor: Redactor, *, read_only: bool) -> None:
    """Serve the peer at the other end of stdin and stdout until stdin is closed."""
    async with serving(client, redactor, read_only=read_only) as served:
        server = served.server
        # Output of other code goes to stderr meanwhile: stdout has messages of the protocol only.
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

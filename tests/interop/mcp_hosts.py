"""Hosts of `steno mcp`: the official client beside a server process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

import steno
from interop.frameworks import framework
from support.command import Steno

mcp = framework("mcp")
types = framework("mcp_types")
stdio = framework("mcp.client.stdio")
streamable = framework("mcp.client.streamable_http")
httpx2 = framework("httpx2")

WAIT_S = 30.0
"""Everything here takes a moment; a longer silence is a failure."""


def parameters(root: Path, *arguments: str) -> Any:
    """How a host starts the server: the configuration of the guide, with warnings as errors."""
    words = ["-W", "error", "-m", "steno_cli", "mcp", *arguments]
    return mcp.StdioServerParameters(
        command=sys.executable, args=words, env={"STENO_HOME": str(root)}
    )


@asynccontextmanager
async def hosting(
    root: Path, *arguments: str, mode: str = "auto", updates: "Updates | None" = None
) -> AsyncIterator[Any]:
    """A client of a server process of its own, over stdin and stdout."""
    handler = None if updates is None else updates.take
    transport = stdio.stdio_client(parameters(root, *arguments))
    async with mcp.Client(transport, mode=mode, message_handler=handler) as client:
        yield client


@dataclass
class Updates:
    """The resources whose updates a peer of the older protocol got."""

    uris: list[str] = field(default_factory=list)
    _news: anyio.Event = field(default_factory=anyio.Event)

    async def take(self, message: Any) -> None:
        """Take a message of the server."""
        if isinstance(message, types.ResourceUpdatedNotification):
            self.uris.append(message.params.uri)
            self._news.set()

    async def wait_for(self, uri: str) -> None:
        """Wait for an update of a resource, and forget the others."""
        with anyio.fail_after(WAIT_S):
            while uri not in self.uris:
                self._news = anyio.Event()
                await self._news.wait()
        self.uris.clear()


@dataclass
class Server:
    """A server over HTTP.

    Attributes:
        process: its process.
        address: its address.
        token: its token.
    """

    process: "subprocess.Popen[str]"
    address: str
    token: str | None

    @asynccontextmanager
    async def peer(
        self, mode: str = "auto", updates: Updates | None = None, token: str | None = None
    ) -> AsyncIterator[Any]:
        """A client of this server."""
        headers = {"authorization": f"Bearer {token or self.token}"}
        handler = None if updates is None else updates.take
        async with httpx2.AsyncClient(headers=headers, timeout=WAIT_S, trust_env=False) as http:
            transport = streamable.streamable_http_client(self.address, http_client=http)
            async with mcp.Client(transport, mode=mode, message_handler=handler) as client:
                yield client

    def end(self) -> int:
        """Press Ctrl-C, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S)


@contextmanager
def serving(root: Path, *arguments: str) -> Iterator[Server]:
    """A server over HTTP at a free port."""
    words = ("--json", "mcp", "--http", "127.0.0.1:0", *arguments)
    process = Steno(root).begin(*words, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        yield Server(process, **json.loads(line))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)


async def is_followed(session: steno.Session) -> bool:
    """Whether another program follows a session."""
    report = await session.clients()
    return any(each.pid != os.getpid() for each in report.clients if each.subscriptions)


async def wait_until_not(
    question: Callable[[steno.Session], Awaitable[bool]], session: steno.Session
) -> None:
    """Wait until a question about a session is answered with no."""
    with anyio.fail_after(WAIT_S):
        while await question(session):
            await anyio.lowlevel.checkpoint()


def failure(result: Any) -> dict[str, Any]:
    """The error of a tool that failed; its text is what a model reads."""
    assert result.is_error, result
    error: dict[str, Any] = result.structured_content["error"]
    assert error["message"] in result.content[0].text
    return error

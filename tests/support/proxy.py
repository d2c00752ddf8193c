"""A TCP proxy on loopback that can be cut, half open, slow or one-way.

with Proxy(4222) as proxy:
    connect(proxy.port)
    proxy.cut()
    proxy.heal()
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Self

_BYTES: int = 64 * 1024


class Proxy:
    """Forwards the connections to a port of loopback.

    Args:
        port: the port.

    Attributes:
        port: where it listens.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._is_cut = False
        self._is_mute_to = False
        self._is_mute_from = False
        self._delay_s = 0.0
        self._servers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Let a machine vanish for the other: its packets are dropped, and nothing is closed here.

        The server's ends are closed, so what it had not sent yet is lost.
        """
        self._call(self._cut)

    def mute(self, *, to: bool = False, back: bool = False) -> None:
        """Drop what is sent to the server, or what it sends back; the connections stay.

        They end for the server once this is healed, since bytes of them are missing.
        """

        def set_both() -> None:
            self._is_mute_to, self._is_mute_from = to, back

        self._call(set_both)

    def slow(self, delay_s: float) -> None:
        """Delay each piece by so many seconds."""

        def set_delay() -> None:
            self._delay_s = delay_s

        self._call(set_delay)

    def heal(self) -> None:
        """Forward new connections again; those from before stay silent."""

        def heal() -> None:
            if self._is_mute_to or self._is_mute_from:
                self._cut()
            self._is_cut = self._is_mute_to = self._is_mute_from = False
            self._delay_s = 0.0

        self._call(heal)

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._servers:
            writer.transport.abort()
        self._servers.clear()

    def _call(self, act: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            act()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            # As a machine that is gone: the connection stands, and nobody speaks.
            await self._forget(reader)
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._servers.add(to_server)
        back = asyncio.create_task(
            self._forward(from_server, writer, to_server, lambda: self._is_mute_from)
        )
        await self._forward(reader, to_server, to_server, lambda: self._is_mute_to)
        if to_server in self._servers:
            self._servers.discard(to_server)
            to_server.transport.abort()
        back.cancel()
        writer.transport.abort()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        is_muted: Callable[[], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_BYTES):
                if self._delay_s:
                    await wait_for_delay(self._delay_s)
                if server not in self._servers:
                    break
                if not is_muted():
                    writer.write(data)
                    await writer.drain()
            if server in self._servers:
                writer.transport.abort()
            elif writer is server:
                await self._forget(reader)

    async def _forget(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(_BYTES):
                pass


async def wait_for_delay(delay_s: float) -> None:
    """Wait as a slow network does."""
    await asyncio.sleep(delay_s)

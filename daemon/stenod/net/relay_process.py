"""The daemon's end of the relay: its TCP address, its process and its reports."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from steno_protocol import limits, paths
from steno_protocol.errors import StorageFailed
from steno_system.relay import RelaySocket

_LINE_BYTES_MAX: Final = 256


def listen(endpoints: Sequence[str]) -> socket.socket:
    """Listen at the first free address.

    Args:
        endpoints: the addresses `tcp://host:port` to try in order; the system chooses a port for
            `*`, and the host `*` is every IPv4 address of the machine.

    Raises:
        StorageFailed: none is free; the message names the last one.
    """
    *preferred, last = endpoints
    for endpoint in preferred:
        try:
            return _listen(endpoint)
        except OSError:
            continue
    try:
        return _listen(last)
    except OSError as error:
        # The name service has numbers of its own, and a text for each.
        raise StorageFailed(
            f"cannot listen at {last}: {error.strerror or error}; choose another network.listen"
        ) from None


def endpoint_of(listener: socket.socket) -> str:
    """Return the address at which a socket listens."""
    host, port, *_ = listener.getsockname()
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


class RelayProcess:
    """The process that passes the connections of other machines on, started again when it ends.

    Its end closes these connections; the clients connect again. The listening socket belongs to the
    daemon, so clients wait in its queue meanwhile.

    Args:
        listener: listens at the TCP address.
        target: the socket that the process connects to.
        connections_max: the most connections to that socket at a time.
        is_quiet: returns whether no connection of an earlier process is left there.
        turn_away: counts connections that were closed for want of room.
        log: logs an event with fields.
    """

    def __init__(
        self,
        listener: socket.socket,
        target: RelaySocket,
        connections_max: int,
        is_quiet: Callable[[], bool],
        turn_away: Callable[[int], None],
        log: Callable[..., None],
    ) -> None:
        self._listener = listener
        self._target = target
        self._connections_max = connections_max
        self._is_quiet = is_quiet
        self._turn_away = turn_away
        self._log = log

    async def serve(self) -> None:
        """Run the process, again and again, until it is cancelled."""
        pause_s = limits.RECONNECT_S
        while True:
            began_s = anyio.current_time()
            try:
                code = await self._run()
            except OSError as error:
                self._log("relay_failed", error=str(error), again_in_s=pause_s)
            else:
                self._log("relay_ended", code=code, again_in_s=pause_s)
            if anyio.current_time() - began_s > limits.RECONNECT_S_MAX:
                pause_s = limits.RECONNECT_S
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, limits.RECONNECT_S_MAX)
            while not self._is_quiet():
                await anyio.sleep(limits.RECONNECT_S)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    async def _run(self) -> int | None:
        process = await anyio.open_process(
            [
                # As clients start the daemon: no module of the working folder is imported.
                *(sys.executable, "-P", "-m", "stenod.net.relay"),
                str(self._listener.fileno()),
                self._target.path,
                str(self._connections_max),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            pass_fds=(self._listener.fileno(), *self._target.handles),
            # Ctrl-C in a terminal ends the daemon, and that ends its relay.
            start_new_session=True,
            cwd="/",
            env={**os.environ},
        )
        async with aclosing(process):
            await self._read_reports(process)
            return await process.wait()

    async def _read_reports(self, process: Process) -> None:
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        while True:
            try:
                line = await lines.receive_until(b"\n", _LINE_BYTES_MAX)
            except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.ClosedResourceError):
                return
            self._take_report(*line.decode(errors="replace").split(" ", 1))

    def _take_report(self, event: str, detail: str = "") -> None:
        match event:
            case "turned_away":
                self._turn_away(int(detail))
            case "admitted" | "refused":
                self._log(f"remote_{event}", address=detail)
            case _:
                self._log("relay_said", text=detail)


def _listen(endpoint: str) -> socket.socket:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    is_ipv6 = paths.is_ipv6(endpoint)
    # Only for an IPv6 address: a host name could resolve to another address.
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    wanted = "0.0.0.0" if host == "*" else host.strip("[]")  # noqa: S104 - as it was configured
    found = socket.getaddrinfo(
        wanted, 0 if port == "*" else int(port), family, socket.SOCK_STREAM, 0, socket.AI_PASSIVE
    )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_ipv6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(found[0][4])
        listener.listen(limits.CONNECTIONS_WAITING_MAX)
    except OSError:
        listener.close()
        raise
    return listener

"""The optional `/metrics` endpoint on the loopback address.

prometheus-client serves it from its own thread; the counters are read on the event loop, where they
are consistent.
"""

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from steno_protocol import limits
from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command
from steno_protocol.metrics import Collector
from steno_protocol.replies import StatsReport

_ADDRESS: Final = "127.0.0.1"


class MetricsServer:
    """Serves the metrics of one daemon until it is closed.

    Args:
        port: the port of the loopback address.
        report: returns the counters; called on the event loop.

    Raises:
        BadRequest: prometheus-client is not installed, or the port is taken.
    """

    def __init__(self, port: int, report: Callable[[], StatsReport]) -> None:
        self._loop = asyncio.get_running_loop()
        self._report = report
        try:
            client: Any = importlib.import_module("prometheus_client")
        except ImportError:
            raise BadRequest(
                "metrics.port is set, but prometheus-client is not installed: run"
                f" `{extra_command('metrics')}`, or set the port to 0"
            ) from None
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(Collector(self.take, client.Metric))
        try:
            self._server, self._thread = client.start_http_server(port, _ADDRESS, registry)
        except OSError as error:
            raise BadRequest(
                f"metrics.port {port} of {_ADDRESS} cannot be used ({error.strerror}): choose"
                " another, or 0"
            ) from None
        _bound(self._server)

    def take(self) -> StatsReport:
        """Return the present counters; called from the serving thread."""
        taken: Future[StatsReport] = Future()

        def take() -> None:
            try:
                taken.set_result(self._report())
            except Exception as error:
                taken.set_exception(error)

        self._loop.call_soon_threadsafe(take)
        return taken.result(limits.PROBE_TIMEOUT_S)

    def close(self) -> None:
        """Stop serving; a request in progress may fail."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _bound(server: Any) -> None:
    """Close connections beyond `METRICS_CONNECTIONS_MAX` at once, and silent ones after a while.

    Every user of the machine can open connections, and each takes a file handle and a thread.
    """
    open_requests: set[int] = set()
    shut_down = server.shutdown_request

    def has_room(request: object, _: object) -> bool:
        if len(open_requests) >= limits.METRICS_CONNECTIONS_MAX:
            return False
        open_requests.add(id(request))
        return True

    def end(request: object) -> None:
        shut_down(request)
        open_requests.discard(id(request))

    server.verify_request, server.shutdown_request = has_room, end
    handler = server.RequestHandlerClass
    server.RequestHandlerClass = type(
        handler.__name__, (handler,), {"timeout": limits.HANDSHAKE_MS / 1000}
    )

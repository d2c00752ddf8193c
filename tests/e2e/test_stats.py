"""The counters of a daemon as text, as JSON and for Prometheus."""

import select
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from steno_protocol import limits
from steno_protocol.replies import StatsReport
from support.command import Steno
from support.crowd import wait_until
from support.foreground import ForegroundDaemon
from support.nats_cluster import free_ports


def _samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_stats_has_text_json_and_prometheus_formats(root: Path) -> None:
    steno_call = Steno(root)
    steno_call("append", "demo", "hi")
    steno_call("append", "demo", "late", "--expect", "0:0")
    shown = steno_call("stats").out
    assert "appended  1 record, " in shown
    assert "errors    1 conflict" in shown
    assert "sync took, ms" in shown
    document = steno_call("stats", "--json").document
    assert document["errors"]["conflict"] == 1
    left_out = {"sessions", "stale", "repaired"}
    assert document.keys() == {*StatsReport.__struct_fields__} - left_out
    samples = _samples(steno_call("stats", "--format", "prometheus").out)
    assert samples["steno_appended_records_total", ()] == 1
    assert samples["steno_errors_total", ("conflict",)] == 1
    assert samples["steno_group_commands_count", ()] == 1
    assert (
        samples["steno_sync_seconds_bucket", ("+Inf",)] == samples["steno_sync_seconds_count", ()]
    )


def test_prometheus_reads_the_same_numbers_from_the_loopback(root: Path) -> None:
    # None that the kernel gives to another program while the daemon starts.
    (port,) = free_ports(1)
    (root / "config.toml").write_text(f"[metrics]\nport = {port}\n")
    with ForegroundDaemon(root) as daemon:
        daemon.wait_for(" metrics ")
        Steno(root)("append", "demo", "hi")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            served = _samples(answer.read().decode())
        shown = _samples(Steno(root)("stats", "--format", "prometheus").out)
        assert served.keys() >= shown.keys()
        assert served["steno_appended_records_total", ()] == 1
        assert daemon.stop() == 0


def test_a_port_that_is_taken_keeps_the_daemon_from_starting(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (root / "config.toml").write_text(f"[metrics]\nport = {port}\n")
        ran = Steno(root)("start")
    assert ran.code == 5
    assert f"metrics.port {port} of 127.0.0.1 cannot be used" in ran.err


def test_connections_to_the_metrics_address_are_bounded(root: Path) -> None:
    (port,) = free_ports(1)
    (root / "config.toml").write_text(f"[metrics]\nport = {port}\n")
    with ForegroundDaemon(root) as daemon, ExitStack() as held:
        daemon.wait_for(" metrics ")
        address = ("127.0.0.1", port)
        silent = [
            held.enter_context(socket.create_connection(address, 10))
            for _ in range(limits.METRICS_CONNECTIONS_MAX)
        ]
        # They are taken in order, so one more is closed at once, without an answer.
        with socket.create_connection(address, 10) as refused:
            assert refused.recv(1) == b""
        assert all(not select.select([each], [], [], 0)[0] for each in silent)
        silent[0].close()
        # The room is given back, once the daemon has seen the end.
        wait_until(lambda: _is_answered(address))
        assert daemon.stop() == 0


def _is_answered(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, 10) as asking:
        try:
            asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            return asking.recv(12).startswith(b"HTTP/1.0 200")
        except ConnectionError:
            return False

"""A daemon that cannot start says why, before its starter gives up."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.clustered_daemon import clustered_daemon
from support.command import Ran, Steno
from support.nats_cluster import NatsCluster

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

Edit = Callable[[str], str]


def start(folder: Path, servers: str, edit: Edit = str) -> Ran:
    """Start a daemon of one server with further settings."""
    with NatsCluster(1, extra=servers) as cluster:
        clustered_daemon(folder / "a", folder.name, cluster)
        path = folder / "a/config.toml"
        path.write_text(edit(f"{path.read_text()}replicas = 1\nlazy_sync = true\n"))
        # A daemon that has not ended by then has given no reason.
        ran = Steno(folder / "a")("--timeout", "12", "start")
        if ran.code == 0:
            Steno(folder / "a")("stop")
    return ran


ONE_USER = "authorization { user: ann, password: right }"
NO_RIGHT = 'authorization { users: [{ user: ann, password: a, permissions: { publish: "x" } }] }'


@pytest.mark.parametrize(
    ("servers", "edit", "says"),
    [
        (ONE_USER, str, "refuses the credentials"),
        (NO_RIGHT, lambda text: text.replace("nats://", "nats://ann:a@"), "allow the account to"),
        ("", lambda text: text.replace("nats://", "tls://"), "configure tls on the server"),
        ("max_payload: 64KB", str, "set max_payload of all servers to 1MB or more"),
        ("", lambda text: f"[network]\n{text}[network]\n", "('network',) twice"),
    ],
)  # fmt: skip
def test_a_start_that_is_refused_says_why(
    folder: Path, servers: str, edit: Edit, says: str
) -> None:
    ran = start(folder, servers, edit)

    assert ran.code != 0
    assert says in ran.err

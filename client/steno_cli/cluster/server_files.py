"""The configuration files of a cluster's servers and hosts; pure."""

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from steno_protocol.errors import BadRequest
from steno_protocol.settings import read_settings

DAEMON_PORT: Final = 7117
"""The port of a daemon in the printed tables; any free one will do."""

_LOOPBACK: Final = "127.0.0.1"
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]")
_SIZES: Final = (1, 3, 5)

_SERVER: Final = """\
# Server {name} of the cluster {cluster}: `nats-server -c {name}.conf` starts it.
server_name: {name}
listen: "{client}"

# The daemons ask here whether the server syncs. There is no password: let only the hosts of the
# cluster reach this port.
http: "{monitor}"

jetstream {{
  store_dir: {store}
  # Sync before each answer. By default servers sync every two minutes, and a power cut loses
  # records that were acknowledged: a daemon refuses such servers.
  sync_interval: always
  # A full server acknowledges nothing more. It has the history of all sessions until gc removes it.
  max_file_store: 20GB
}}
{routes}
# Without a login, every program that reaches the port reads and writes all sessions. Set
# STENO_PASSWORD in the environment of the server, and name it in replication.servers of each host:
# nats://steno:PASSWORD@ADDRESS. A credentials file or certificates do as well.
# authorization {{ user: steno, password: $STENO_PASSWORD }}
# tls {{ cert_file: "/etc/nats/cert.pem", key_file: "/etc/nats/key.pem" }}
"""

_ROUTES: Final = """
cluster {{
  name: {cluster}
  # Let only the servers of the cluster reach this port.
  listen: "{route}"
  routes: [{routes}]
}}
"""


class Ports(NamedTuple):
    """The ports of a server: for clients, for other servers, and for its monitoring."""

    client: int = 4222
    route: int = 6222
    monitor: int = 8222


class Plan(msgspec.Struct, frozen=True):
    """The servers and hosts of a cluster.

    Attributes:
        cluster: its name.
        nodes: the number of servers.
        addresses: the address of each server; none for servers on this machine.
        hosts: the address of each daemon's host; none for one table without an address.
        store: the folder of the servers' data.
        ports: the ports of each server; none for the usual ones.
    """

    cluster: str
    nodes: int
    addresses: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    store: str = "/var/lib/nats"
    ports: tuple[Ports, ...] = ()

    def ports_of(self, node: int) -> Ports:
        """The ports of a server; servers on one machine need different ones."""
        if self.ports:
            return self.ports[node]
        return Ports(*(port + (0 if self.addresses else node) for port in Ports()))

    def address(self, node: int) -> str:
        """The address of a server."""
        return self.addresses[node] if self.addresses else _LOOPBACK

    @property
    def servers(self) -> list[str]:
        """The URL of each server for clients."""
        return [f"nats://{self.address(n)}:{self.ports_of(n).client}" for n in range(self.nodes)]

    @property
    def routes(self) -> list[str]:
        """The URL of each server for the other ones."""
        return [f"nats://{self.address(n)}:{self.ports_of(n).route}" for n in range(self.nodes)]

    @property
    def monitors(self) -> list[str]:
        """The URL of each server's monitoring."""
        return [f"http://{self.address(n)}:{self.ports_of(n).monitor}" for n in range(self.nodes)]


def files_of(plan: Plan) -> dict[str, str]:
    """Return the text of each file by its name: one for each server, and one for each host.

    Raises:
        BadRequest: the number of servers, an address or the cluster's name is not valid.

    Example:
        >>> list(files_of(Plan("team", 3, hosts=("10.0.0.5", "10.0.0.6"))))
        ['n1.conf', 'n2.conf', 'n3.conf', '10.0.0.5.toml', '10.0.0.6.toml']
    """
    if plan.nodes not in _SIZES:
        raise BadRequest(
            f"a cluster has 3 or 5 servers, or 1 for a test, and not {plan.nodes}: name as many"
            " with --address, or give --nodes"
        )
    for address in (*plan.addresses, *plan.hosts):
        if _ADDRESS.fullmatch(address) is None:
            raise BadRequest(
                f"{address!r} is not the address of a host: give a name or number such as 10.0.0.1,"
                " without a port"
            )
    tables = {f"{host}.toml": _table(plan, host) for host in plan.hosts}
    tables = tables or {"config.toml": _table(plan, "")}
    for name, text in tables.items():
        read_settings(text, name, {})
    return {f"n{node + 1}.conf": _server(plan, node) for node in range(plan.nodes)} | tables


def _server(plan: Plan, node: int) -> str:
    name, address, ports = f"n{node + 1}", plan.address(node), plan.ports_of(node)
    routes = _ROUTES.format(
        cluster=_quoted(plan.cluster),
        route=f"{address}:{ports.route}",
        routes=", ".join(map(_quoted, plan.routes)),
    )
    return _SERVER.format(
        name=name,
        cluster=plan.cluster,
        client=f"{address}:{ports.client}",
        monitor=f"{address}:{ports.monitor}",
        store=_quoted(f"{plan.store}/{name}"),
        routes=routes if plan.nodes > 1 else "",
    )


def _table(plan: Plan, host: str) -> str:
    """The tables of a host's `config.toml`."""
    lines: list[str] = []
    if host:
        lines += [
            f"# For config.toml in the root of {host}. `steno keys new` makes the keys of clients.",
            "[network]", f'listen = "tcp://{host}:{DAEMON_PORT}"', "",
        ]  # fmt: skip
    else:
        lines += ["# For config.toml in the root of each host."]
    lines += [
        "[replication]",
        f"cluster = {_quoted(plan.cluster)}",
        f"servers = {_listed(plan.servers)}",
        f"monitors = {_listed(plan.monitors)}",
    ]
    if host:
        lines.append(f'advertise = "tcp://{host}:{DAEMON_PORT}"')
    else:
        lines.append(f'# advertise = "tcp://HOST:{DAEMON_PORT}"  # for clients on other hosts')
    if plan.nodes == 1:
        lines += [
            "# One server survives nothing: for tests only.",
            "replicas = 1",
            "lazy_sync = true",
        ]
    return "\n".join(lines) + "\n"


def _listed(urls: Sequence[str]) -> str:
    return json.dumps(list(urls))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

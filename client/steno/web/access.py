"""The token, the cookie and the addresses that a request may name.

The address that `steno view` prints has the token in its fragment, which no browser sends to a
server. The page exchanges it for a cookie that no script can read. A client of `steno mcp --http`
sends the token in each request.
"""

import ipaddress
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

_LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104  # compared with, not bound to


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets and the names of one server.

    Attributes:
        host: the address that it listens at.
        port: its port.
        names: further names of this machine that a browser may use, for a server that other
            machines reach.
        token: the secret that the server prints.
        cookie: the value of the cookie that the token is exchanged for.
    """

    host: str
    port: int
    names: Collection[str] = ()
    token: str = field(default_factory=_secret)
    cookie: str = field(default_factory=_secret)

    @property
    def cookie_name(self) -> str:
        """A name with the port: browsers share cookies between the ports of a host."""
        return f"steno_view_{self.port}"

    @property
    def address(self) -> str:
        """The address of the page, without the token."""
        host = "127.0.0.1" if self.host in _WILDCARDS else self.host
        return f"http://{_in_brackets(host)}:{self.port}/"

    def is_token(self, given: str) -> bool:
        """Whether this is the token."""
        return secrets.compare_digest(given.encode(), self.token.encode())

    def has_bearer(self, header: str) -> bool:
        """Whether an Authorization header has the token."""
        scheme, _, given = header.partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip())

    def has_cookie(self, header: str) -> bool:
        """Whether a Cookie header has the cookie of this viewer."""
        wanted = f"{self.cookie_name}={self.cookie}".encode()
        return any(
            secrets.compare_digest(each.strip().encode(), wanted) for each in header.split(";")
        )

    def is_host(self, header: str) -> bool:
        """Whether a Host header names this viewer.

        A page of another name that resolves to this machine (DNS rebinding) has its own name there.
        """
        try:
            parts = urlsplit(f"//{header}")
            name, port = parts.hostname, parts.port or 80
        except ValueError:
            return False
        if name is None or port != self.port or parts.username is not None:
            return False
        known = {*_LOCAL_NAMES, *self.names, self.host.lower(), _in_brackets(self.host.lower())}
        if _in_brackets(name) in known or name in known:
            return True
        return self.host in _WILDCARDS and _is_literal(name)

    def is_origin(self, header: str) -> bool:
        """Whether an Origin header names a page of this viewer."""
        scheme, _, host = header.partition("://")
        return scheme == "http" and self.is_host(host)


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_literal(name: str) -> bool:
    """An address in digits has no name that could resolve elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

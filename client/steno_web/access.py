"""The token of each request, and the names that a request may give the server.

The token travels in a header. There is no cookie: a browser sends the cookies of a host to every
server of that host, whatever its port.
"""

import ipaddress
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

_LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104  # compared with, not bound to


def new_secret() -> str:
    """A secret of 256 random bits, of letters, digits, dashes and underscores."""
    return secrets.token_urlsafe(32)


def is_same(given: str, secret: str) -> bool:
    """Whether a given text is the secret; the time of the answer does not depend on it."""
    return secrets.compare_digest(given.encode("utf-8", "backslashreplace"), secret.encode())


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets and the names of one server.

    Attributes:
        host: the address that it listens at.
        port: its port.
        names: further names of this machine that a browser may use, for a server that other
            machines reach.
        token: the secret that each request has in its Authorization header.
    """

    host: str
    port: int
    names: Collection[str] = ()
    token: str = field(default_factory=new_secret)

    @property
    def address(self) -> str:
        """The address of the page, without the token."""
        host = "127.0.0.1" if self.host in _WILDCARDS else self.host
        return f"http://{_in_brackets(host)}:{self.port}/"

    def has_bearer(self, header: str) -> bool:
        """Whether an Authorization header has the token."""
        scheme, _, given = header.partition(" ")
        return scheme.lower() == "bearer" and is_same(given.strip(), self.token)

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

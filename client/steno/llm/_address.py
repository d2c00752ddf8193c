"""The URL of a model's server, without secrets, and safe for a key."""

import ipaddress
from urllib.parse import urlsplit, urlunsplit

from steno_protocol.errors import BadRequest


def checked_base_url(url: str) -> str:
    """Return `url` without the slash at its end.

    Raises:
        BadRequest: it is no http(s) URL, or has a part that may be secret: a user, a query, a
            fragment.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadRequest(
            "the base URL cannot be read: give one such as http://host:port/v1"
        ) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise BadRequest("the base URL is not of http or https: give one such as https://host/v1")
    # Errors and logs name the URL, so nothing in it may be secret.
    if parts.username is not None or parts.query or parts.fragment:
        raise BadRequest(
            f"the base URL of {host} has a user, a query or a fragment, which may hold a key: leave"
            " it out, and give the key in the environment"
        )
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def is_loopback(url: str) -> bool:
    """True when the URL leads to this machine alone."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_key_in_the_clear(url: str) -> None:
    """Raise BadRequest when a key that is sent to `url` could be read on its way."""
    if urlsplit(url).scheme != "https" and not is_loopback(url):
        raise BadRequest(
            f"the key would go to {url} in the clear: use https, or unset the key in the"
            " environment if that server needs none"
        )


def endpoint(base_url: str, version: str, path: str) -> str:
    """The URL of one endpoint: `version` is put in where the base URL has no path of its own."""
    has_path = urlsplit(base_url).path != ""
    return f"{base_url}/{path}" if has_path else f"{base_url}/{version}/{path}"

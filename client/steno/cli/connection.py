"""Which daemon a command talks to, by `--root`, `--socket` and the environment."""

import os
import pwd
import re
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from steno._target import make_target
from steno.blocking import BlockingClient, connect_sync
from steno_protocol import limits


@contextmanager
def connected(options: Namespace, *, spawn: bool = True) -> Generator[BlockingClient]:
    """A client for the length of one command; starts the daemon if `spawn` and there is none.

    A socket alone means whoever answers there, and nothing is started for it. A socket beside a
    root says where the root's daemon shall listen, if it does not run yet.

    Raises:
        Unreachable: there is no daemon, and none was to be started or could be.
    """
    with connect_sync(**how_to_connect(options), spawn=spawn) as client:
        yield client


class HowToConnect(TypedDict):
    """What both clients are told of a connection."""

    root: str | None
    endpoint: str | None
    name: str
    timeout: float
    key_file: str | None


def how_to_connect(options: Namespace) -> HowToConnect:
    """What the options say of the connection, for either client."""
    return {
        "root": prepared_root(options),
        "endpoint": _endpoint(options),
        "name": options.name or _login_name(),
        "key_file": options.key_file or os.environ.get("STENO_KEY_FILE") or None,
        "timeout": limits.REQUEST_TIMEOUT_S if options.timeout is None else options.timeout,
    }


def root_of(options: Namespace) -> Path:
    """The root that the options name, its symbolic links resolved."""
    root = make_target(options.root, None, None, spawn=False).resolved().root
    assert root is not None
    return Path(root)


def root_in_use(options: Namespace) -> Path:
    """The root that the options name; for a socket alone that of the daemon which answers there.

    Raises:
        Unreachable: nobody answers there.
    """
    if options.root is not None or options.socket is None:
        return root_of(options)
    with connected(options, spawn=False) as client:
        return Path(client.welcome.root)


def prepared_root(options: Namespace) -> str | None:
    """The root that was given, its socket made known to the client and to a daemon it starts."""
    if options.root is not None and options.socket is not None:
        os.environ["STENO_SOCKET"] = str(Path(options.socket).absolute())
    root: str | None = options.root
    return root


def _endpoint(options: Namespace) -> str | None:
    if options.endpoint is not None:
        return str(options.endpoint)
    if options.root is None and options.socket is None and os.environ.get("STENO_ENDPOINT"):
        return os.environ["STENO_ENDPOINT"]
    if options.socket is None or options.root is not None:
        return None
    return f"ipc://{Path(options.socket).absolute()}"


def _login_name() -> str:
    """Who types: a pid, the client's own default, would say nothing a day later."""
    try:
        login = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        login = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9_.@+-]", "_", login)[: limits.NAME_CHARS_MAX - 4] + "@cli"

"""`steno mcp`: sessions for any client of the Model Context Protocol."""

import argparse
import errno
import signal
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import anyio

from steno import connect
from steno_cli.arguments import argument, command, default, flag, one_of, path_text
from steno_cli.configuration import redactor_of
from steno_cli.connection import how_to_connect
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command
from steno_redact.redactor import Redactor

_HOST = "127.0.0.1"
_PORT = 8765
"""A fixed port, because hosts have the address in a file."""


def _host_and_port(text: str) -> tuple[str, int]:
    """The type of --http: a host, a port, or both."""
    try:
        parts = urlsplit(f"//{_HOST}:{text}" if text.isdecimal() else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_address(text) from None
    if not host or parts.path or parts.query or parts.username is not None:
        raise _no_address(text)
    return host, _PORT if port is None else port


def _no_address(text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text[:80]!r} is no HOST:PORT, such as {_HOST}:{_PORT}")


@command(
    "mcp",
    "An MCP host starts it and talks to it over stdin and stdout; it ends when stdin is closed."
    " With --http it serves any number of hosts, each of which sends the printed token. Its"
    " tools also change sessions, unless --read-only is given. Needs the extra `stenod[mcp]`.",
    default(makes_root=True),
    argument(
        "--http", metavar="HOST:PORT", nargs="?", type=_host_and_port, const=(_HOST, _PORT),
        help=f"serve over streamable HTTP at this address (default: {_HOST}:{_PORT}, this machine"
        " only)",
    ),
    argument(
        "--token-file", metavar="FILE", type=path_text,
        help="with --http: use the token in FILE, which is created if it is missing (default: a new"
        " token at each start)",
    ),
    flag("--read-only", help="leave out the tools that change sessions"),
    one_of(
        flag(
            "--redact", default=None,
            help="mask secrets in every answer, see `steno redact` (default with --http)",
        ),
        argument(
            "--no-redact", action="store_false", dest="redact",
            help="leave secrets as they are (default without --http)",
        ),
    ),
    example="steno mcp\nsteno mcp --read-only\nsteno mcp --http --token-file ~/.steno-token",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Serve until stdin is closed, or until a signal ends it."""
    if options.token_file is not None and options.http is None:
        raise WrongUsage("--token-file is for --http: a host on stdin and stdout sends no token")
    module = "steno_mcp.stdio" if options.http is None else "steno_mcp.http"
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"the MCP server needs {error.name}: install it with `{extra_command('mcp')}`"
        ) from None
    if options.http is not None:
        anyio.run(_serve_http, options, output)
        return Exit.DONE
    if sys.stdin is None:
        raise BadRequest("stdin is closed, and an MCP host writes to it: use --http without a host")
    if sys.stdin.isatty():
        output.say("this is for an MCP host, which writes to stdin; Ctrl-C ends it")
    # A thread waits for stdin and cannot be cancelled, and there is nothing to put in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(_serve_stdio, options)
    except* BrokenPipeError:
        output.say("the MCP host has closed the server's stdout: its last answers are lost")
    return Exit.DONE


async def _serve_stdio(options: Namespace) -> None:
    # Imported here: no other command needs a server of MCP.
    from steno_mcp.stdio import serve_stdio  # noqa: PLC0415

    redactor = _redactor(options)
    async with connect(**how_to_connect(options)) as client:
        await serve_stdio(client, redactor, read_only=options.read_only)


async def _serve_http(options: Namespace, output: Output) -> None:
    from steno_mcp.http import PATH, serve_http  # noqa: PLC0415
    from steno_web.serving import listen  # noqa: PLC0415
    from steno_web.token_file import token_in  # noqa: PLC0415

    host, port = options.http
    redactor = _redactor(options)
    file = options.token_file
    token = None if file is None else token_in(Path(file).expanduser())
    async with connect(**how_to_connect(options)) as client:
        try:
            door = listen(host, port, token)
        except OSError as error:
            raise _not_listening(host, port, error) from None
        address = f"{door.access.address.rstrip('/')}{PATH}"

        async def ready() -> None:
            shown = door.access.token if file is None else None
            bearer = shown or f"the token in {file}"
            document = {"address": address, "token": shown}
            output.answer(document, address, f"Authorization: Bearer {bearer}")
            output.flush()
            if host not in {"127.0.0.1", "localhost", "::1"}:
                output.say("other machines reach it, and nothing on the way is encrypted")

        await serve_http(door, client, redactor, ready, read_only=options.read_only)


def _redactor(options: Namespace) -> Redactor:
    """What masks the answers: over HTTP they may go to other machines and their logs."""
    is_on = options.http is not None if options.redact is None else options.redact
    return redactor_of(options, is_on=is_on)


def _not_listening(host: str, port: int, error: OSError) -> BadRequest:
    where = f"{host} port {port}"
    if error.errno == errno.EADDRINUSE:
        return BadRequest(f"{where} is in use: choose another one with --http {host}:PORT")
    return BadRequest(f"cannot listen at {where}: {error.strerror}; check --http")

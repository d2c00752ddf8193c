"""`steno view`: sessions in the browser, as they grow."""

import errno
import subprocess
import threading
from argparse import Namespace
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import anyio

from steno import BlockingClient, connect, connect_sync
from steno_cli.arguments import argument, between, command, default, flag, optional_argument
from steno_cli.commands.doctor import findings_of
from steno_cli.configuration import redactor_of
from steno_cli.connection import how_to_connect, prepared_root, root_in_use
from steno_cli.doctor import Finding
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.printed_commands import own_command
from steno_protocol.errors import BadRequest, StenoError
from steno_protocol.installation import extra_command
from steno_redact.records import masked_record
from steno_redact.redactor import Redactor

if TYPE_CHECKING:
    from steno_agents.ledger import Ledger
    from steno_agents.prices import Prices
    from steno_search.filling import Reading
    from steno_search.folder import IndexFolder

_PORT_MAX = 65_535


@command(
    "view",
    "Prints the address of a page and opens it in the browser. The address contains a secret"
    " that works once: the page that it opens can read every session, and the command prints"
    " the next address. Ctrl-C ends the viewer. Needs the extra `stenod[view]`.",
    optional_argument("session", str, "show this session first (an id or a unique prefix)"),
    default(by_prefix=True),
    argument(
        "--host", metavar="ADDRESS", default="127.0.0.1",
        help="listen at this address of the machine (default: 127.0.0.1, this machine only)",
    ),
    argument(
        "--port", metavar="N", type=between(0, _PORT_MAX), default=0,
        help="listen at this port (default: a free one)",
    ),
    flag(
        "--write",
        help="let the page set checkpoints, titles and labels, revert, restore and fork",
    ),
    argument(
        "--no-redact", action="store_false", dest="redact",
        help="show secrets as they are; they are masked otherwise, see `steno redact`",
    ),
    flag("--watch", help="also follow the transcripts of other agents"),
    flag("--no-browser", help="only print the address"),
    example="steno view demo\nsteno view --watch\nsteno view --no-browser --port 8321",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Serve the page until a signal ends it."""
    try:
        import_module("steno_view.server")
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"the viewer needs {error.name}: install it with `{extra_command('view')}`"
        ) from None
    prepared_root(options)
    redactor = redactor_of(options, is_on=options.redact)
    anyio.run(_view, options, output, redactor)
    return Exit.DONE


async def _view(options: Namespace, output: Output, redactor: Redactor) -> None:
    # Imported here: no other command needs a web server.
    from steno_view.one_time_token import OneTimeToken  # noqa: PLC0415
    from steno_view.search import SearchService  # noqa: PLC0415
    from steno_view.server import (  # noqa: PLC0415
        open_browser,
        page_address,
        private_page,
        serve,
    )
    from steno_view.spending import SpendingService  # noqa: PLC0415
    from steno_web.serving import listen  # noqa: PLC0415

    how = how_to_connect(options)
    async with connect(**how) as client:
        # The daemon is started here if necessary, and never later: a viewer only reads.
        if options.session is not None:
            await client.stat(options.session)
        root = client.welcome.root if client.welcome is not None else ""
    try:
        door = listen(options.host, options.port)
    except OSError as error:
        raise _not_listening(options, error) from None

    def announce(token: str) -> None:
        _announce(page_address(door.access, token, options.session), output)

    printed = OneTimeToken(announce)
    address = page_address(door.access, printed.text, options.session)
    with ExitStack() as files:
        page = None if options.no_browser else files.enter_context(private_page(address))

        async def ready() -> None:
            announce(printed.text)
            if options.host not in {"127.0.0.1", "localhost", "::1"}:
                output.say("other machines reach it, and nothing on the way is encrypted")
            if page is not None and not await open_browser(page):
                output.say("there is no browser here: open the address in one")

        search = SearchService(lambda: _searched(options), partial(masked_record, redactor))
        spending = SpendingService(lambda: _counted(options), lambda: _prices(options))
        if options.watch:
            files.enter_context(_watching(options))
        async with connect(**how, spawn=False) as client:
            await serve(
                door, printed, client, root, lambda: _diagnose(options), ready, search,
                redactor=redactor, spending=spending, may_write=options.write,
                is_watching=options.watch,
            )  # fmt: skip


def _searched(options: Namespace) -> "tuple[BlockingClient, IndexFolder, Reading]":
    """A client for the search, its index, and what reads for it; called with the first search."""
    from steno_cli.indexed_search import index_folder  # noqa: PLC0415

    client = connect_sync(**how_to_connect(options, spawn=False), spawn=False)
    return client, *index_folder(options, client.welcome.root)


def _counted(options: Namespace) -> "tuple[BlockingClient, Ledger]":
    """A client for the tokens, and what reads them; called with the first page."""
    from steno_cli.spending import ledger_for  # noqa: PLC0415

    client = connect_sync(**how_to_connect(options, spawn=False), spawn=False)
    return client, ledger_for(client)


def _prices(options: Namespace) -> "Prices":
    from steno_cli.spending import place_of_prices, prices_at  # noqa: PLC0415

    return prices_at(place_of_prices(options))


@contextmanager
def _watching(options: Namespace) -> Generator[None]:
    """Follow the transcripts of other agents until the block ends.

    A process of its own does so: a file that grows fast delays no page. It ends by itself when
    nobody reads its stdout any longer, even if this process is killed.
    """
    words = own_command(root_in_use(options), "watch", "--json")
    child = subprocess.Popen(  # noqa: S603  # its own command, on its own root
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    # Nobody wants to see it, and a full pipe would stop it.
    threading.Thread(target=deque, args=(child.stdout, 0), daemon=True).start()
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def _announce(address: str, output: Output) -> None:
    """Print an address; a viewer whose output nobody reads any longer serves on."""
    with suppress(BrokenPipeError):
        output.answer({"address": address}, address)
        output.flush()


def _not_listening(options: Namespace, error: OSError) -> BadRequest:
    where = f"{options.host} port {options.port}"
    if error.errno == errno.EADDRINUSE:
        return BadRequest(f"{where} is in use: choose another --port, or none for a free one")
    return BadRequest(f"cannot listen at {where}: {error.strerror}; check --host and --port")


def _diagnose(options: Namespace) -> list[Mapping[str, str]]:
    """The findings of `steno doctor`; its checks need the files of the root."""
    try:
        found = findings_of(options, root_in_use(options))
    except WrongUsage as error:
        found = [("root", Finding("warning", error.message))]
    except StenoError as error:
        found = [("daemon", Finding("problem", error.message))]
    return [
        {"check": name, "state": each.state, "text": each.text, "remedy": each.remedy}
        for name, each in found
    ]

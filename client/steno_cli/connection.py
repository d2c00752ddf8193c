"""The connection of a command, from its options and the environment."""

import os
import pwd
import re
from argparse import Namespace
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import msgspec

from steno import BlockingClient, local
from steno.local import make_target
from steno.parts import BlockingLink
from steno_cli.exits import WrongUsage
from steno_cli.render.output import Output
from steno_protocol import limits, paths
from steno_protocol.commands import Command, List
from steno_protocol.errors import BadRequest, NotFound, StenoError, Unreachable
from steno_protocol.replies import RepairedFile, Reply, Sessions

if TYPE_CHECKING:
    from steno.local import Reader

ReplyT = TypeVar("ReplyT", bound=Reply)


@contextmanager
def connected(
    options: Namespace, *, spawn: bool = True, output: Output | None = None
) -> Generator[BlockingClient]:
    """A client for one command; starts the daemon if `spawn` is true and none runs.

    A socket alone means any daemon that answers there, and none is started. A socket together with
    a root is the address at which a new daemon of the root listens.

    Args:
        options: of the command.
        spawn: start the daemon if none runs.
        output: of a command that reads; it says once if a reply may be old.

    Raises:
        NotFound: there is no root, and the command creates none.
        Unreachable: no daemon runs, and none was started.
    """
    with BlockingClient(linked(options, spawn=spawn, output=output)) as client:
        yield client


def answers(
    link: BlockingLink, asked: Iterable[Command], kind: type[ReplyT], ahead_max: int
) -> Iterator[ReplyT | StenoError]:
    """The reply to each command, or why there is none; the daemon has the next ones meanwhile."""
    pending = map(link.begin, asked)
    ahead = deque(islice(pending, ahead_max))
    while ahead:
        first = ahead.popleft()
        ahead.extend(islice(pending, 1))
        found: ReplyT | StenoError
        try:
            found = link.finish(first, kind)[0]
        except StenoError as error:
            found = error
        yield found


def linked(options: Namespace, *, spawn: bool = True, output: Output | None = None) -> BlockingLink:
    """The link of one command that has requests in flight; the arguments are those of `connected`.

    Raises:
        NotFound, Unreachable: as `connected`.
    """
    how = how_to_connect(options, spawn=spawn)
    target = make_target(
        how["root"], how["endpoint"], how["name"], spawn=spawn, key_file=how["key_file"]
    )
    on_stale = None if output is None else _StaleNote(output)
    return BlockingLink(
        target, how["timeout"], on_stale=on_stale, on_repair=partial(say_repaired, options.messages)
    )


def say_repaired(messages: Output, repaired: RepairedFile) -> None:
    """Print the note about a repair that the daemon made when it opened the session."""
    from steno_present.repairs import repair  # noqa: PLC0415

    messages.say(repair(repaired))


class _StaleNote:
    """The message that replies may be old, printed at the first of them."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._is_printed = False

    def __call__(self) -> None:
        if not self._is_printed:
            self._is_printed = True
            self._output.say(
                "the cluster could not be asked, so this may be older than what other hosts have:"
                " `steno cluster status` shows why"
            )


def _check_root(options: Namespace) -> None:
    makes_root = getattr(options, "makes_root", False)
    is_change = getattr(options, "changes", True)
    if isinstance(is_change, str):
        is_change = getattr(options, is_change) is not None
    if (makes_root and is_change) or endpoint_of(options) is not None:
        return
    root = root_of(options)
    if not root.exists():
        raise NotFound(
            f"there is no root at {root}, and this command creates none: check --root and"
            " STENO_HOME; `steno append` or `steno start` creates one"
        )


class HowToConnect(TypedDict):
    """The connection arguments of both clients."""

    root: str | None
    endpoint: str | None
    name: str
    timeout: float
    key_file: str | None


def how_to_connect(options: Namespace, *, spawn: bool = True) -> HowToConnect:
    """The connection arguments from the options, for either client.

    Args:
        options: of the command.
        spawn: whether a daemon is started if none runs.

    Raises:
        NotFound: a daemon would be started, there is no root, and the command creates none.
    """
    if spawn:
        _check_root(options)
    reader = _reader_for(options, may_start=spawn)
    return {
        "root": prepared_root(options) if reader is None else None,
        "endpoint": endpoint_of(options) if reader is None else reader.endpoint,
        "name": options.name or _login_name(),
        "key_file": options.key_file or os.environ.get("STENO_KEY_FILE") or None,
        "timeout": limits.REQUEST_TIMEOUT_S if options.timeout is None else options.timeout,
    }


def _reader_for(options: Namespace, *, may_start: bool) -> "Reader | None":
    """The reader of a root that is not this user's, or is on a read-only file system.

    A command that changes something gets none, and its daemon refuses or fails as ever.
    """
    if endpoint_of(options) is not None or is_change(options):
        return None
    root = root_of(options)
    if _is_own_and_writable(root):
        return None
    found = local.running_reader(root)
    why = None if found is not None or not may_start else local.why_read_only(root)
    if why is None:
        return found
    started = local.start_reader(root)
    options.messages.say(f"{why}: this reads its files as they are, without its daemon")
    return started


def _is_own_and_writable(root: Path) -> bool:
    try:
        return root.stat().st_uid == os.geteuid() and os.access(root, os.W_OK)
    except OSError:
        # A root that does not exist is made, or named in an error.
        return True


def is_change(options: Namespace) -> bool:
    """True if a command changes something with these options."""
    given = getattr(options, "changes", False)
    return getattr(options, given) is not None if isinstance(given, str) else bool(given)


def root_of(options: Namespace) -> Path:
    """The root of the options, with symbolic links resolved."""
    root = make_target(options.root, None, None, spawn=False).resolved().root
    assert root is not None
    return Path(root)


def root_in_use(options: Namespace) -> Path:
    """The root of the options; for an address, the root of the daemon there.

    Raises:
        WrongUsage: the address is on another machine.
        Unreachable: no daemon answers there.
    """
    endpoint = endpoint_of(options)
    if endpoint is None:
        return root_of(options)
    if paths.is_remote(endpoint):
        raise WrongUsage(
            f"`steno {options.command}` works on the files of a root, and those of the daemon at"
            f" {endpoint} are on another machine: run it there, or name a root with --root"
        )
    try:
        with connected(options, spawn=False) as client:
            return Path(client.welcome.root)
    except Unreachable as error:
        raise Unreachable(f"{error.message}, or name its root with --root") from None


def root_here(options: Namespace) -> Path | None:
    """The root of the options, or of the daemon at the given address; None on another machine."""
    endpoint = endpoint_of(options)
    if endpoint is not None and paths.is_remote(endpoint):
        return None
    return root_in_use(options)


def refuse_endpoint(options: Namespace) -> None:
    """Refuse --endpoint for a command about a root.

    Raises:
        WrongUsage: it was given.
    """
    if options.endpoint is not None:
        raise WrongUsage(
            f"`steno {options.command}` needs a root, not the address"
            f" {options.endpoint}: name it with --root"
        )


def prepared_root(options: Namespace) -> str | None:
    """The given root; exports a given socket to the client and to a daemon that it starts."""
    if options.root is not None and options.socket is not None:
        os.environ["STENO_SOCKET"] = str(Path(options.socket).absolute())
    root: str | None = options.root
    return root


def endpoint_of(options: Namespace) -> str | None:
    """The address of the daemon; None for the daemon of a root.

    Raises:
        WrongUsage: STENO_ENDPOINT is no address.
    """
    if options.endpoint is not None:
        return str(options.endpoint)
    if options.root is not None:
        return None
    if options.socket is not None:
        return f"ipc://{Path(options.socket).absolute()}"
    return _endpoint_of_environment()


def _endpoint_of_environment() -> str | None:
    found = os.environ.get("STENO_ENDPOINT")
    if not found:
        return None
    try:
        return ",".join(paths.endpoints_of(found))
    except BadRequest as error:
        raise WrongUsage(f"STENO_ENDPOINT: {error.message}") from None


def _login_name() -> str:
    """The login name; the default of the client, a pid, means nothing a day later."""
    try:
        login = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        login = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9_.@+-]", "_", login)[: limits.NAME_CHARS_MAX - 4] + "@cli"


def pages(client: BlockingClient, wanted: List) -> Iterator[Sessions]:
    """The list of the sessions, a page for each request."""
    has_more, after = True, wanted.after
    while has_more:
        page = client.request(msgspec.structs.replace(wanted, after=after), Sessions)[0]
        yield page
        has_more, after = page.more, page.sessions[-1].session if page.sessions else after


def local_root(client: BlockingClient) -> Path | None:
    """The root of the daemon, or None if the daemon runs on another machine.

    A path alone proves nothing, since both machines may have it. The lock file and the daemon name
    the same process. If they do not, the daemon may have been restarted since it was greeted: a
    reply is then from the present one, and of another machine's.

    Raises:
        StenoError: that reply did not come.
    """
    if not client.welcome.root:
        # A client of another machine that may only read.
        return None
    root = Path(client.welcome.root)
    reader = local.running_reader(root)
    if reader is not None and reader.pid == client.welcome.pid:
        return root
    if _is_holder(root, client.welcome.pid):
        return root
    if not os.access(root / paths.LOCK, os.R_OK):
        return None
    client.status()
    return root if _is_holder(root, client.welcome.pid) else None


def own_root(client: BlockingClient) -> Path:
    """The root of the daemon, which must run on this machine.

    Raises:
        BadRequest: it runs on another machine.
    """
    root = local_root(client)
    if root is None:
        raise BadRequest(
            f"the root {client.welcome.root} is not on this machine: copy the folder to the"
            " machine where the daemon runs, and run the import there"
        )
    return root


def _is_holder(root: Path, pid: int) -> bool:
    note = local.note_of(root)
    return note is not None and note.pid == pid

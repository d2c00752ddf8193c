"""The `stenod` command, which serves a root in the foreground or detached.

Exit codes: 0 the daemon ended (in the foreground) or is ready (detached); 1 it could not start;
2 the command line is wrong; 3 another daemon holds the root.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import steno_system as system
from steno_protocol import __version__, paths
from steno_protocol.errors import Held, StenoError, StorageFailed
from steno_protocol.installation import check_system
from steno_system.private_files import check_folder
from stenod import daemon
from stenod.runtime import config, daemon_log, fd_limit
from stenod.runtime.config import Config
from stenod.runtime.internal_errors import fault_of
from stenod.store.lock import RootLock, make_root
from stenod.systemd import Supervisor, take_supervisor

EXIT_FAILED: Final = 1
EXIT_HELD: Final = 3

_OUTPUTS: Final = (1, 2)
"""File handles of stdout and stderr."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="stenod",
        description="The daemon that owns the session files of one root; it detaches itself once"
        " it is ready.",
        epilog="exit codes: 0 ready or ended, 1 could not start, 2 wrong usage, 3 the root is"
        " held by another daemon",
    )
    parser.add_argument("--version", action="version", version=f"stenod {__version__}")
    parser.add_argument(
        "--root", metavar="DIR", help="the folder to own (default: STENO_HOME, or the state folder)"
    )
    parser.add_argument(
        "--socket", metavar="PATH", help="where to listen (default: STENO_SOCKET, or in the root)"
    )
    parser.add_argument(
        "--foreground", action="store_true", help="stay in the foreground and log to stderr"
    )
    parser.add_argument(
        "--log", metavar="FILE", help="in the foreground, log to this file, which is rotated"
    )
    parser.add_argument(
        "--reader", action="store_true",
        help="serve reads of the root to the program at stdin, and change nothing in it: print an"
        " address, and end when stdin does",
    )  # fmt: skip
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.log and not options.foreground:
        parser.error("--log needs --foreground: a daemon in the background logs in its root")
    try:
        check_system()
        daemon.prepare_process()
        if options.reader:
            return _serve_reader(_real_root(options.root))
        # A detached daemon does not notify the service manager.
        supervisor = take_supervisor(os.environ)
        fd_limit.check_enough()
        settings = _settings(options.root, options.socket, is_attended=options.foreground)
        if options.foreground:
            log = Path(options.log).absolute() if options.log else None
            return _serve(settings, log=log, ready=None, supervisor=supervisor)
        return _detach(settings)
    except Held as error:
        print(f"stenod: {error}", file=sys.stderr)
        return EXIT_HELD
    except (StenoError, OSError) as error:
        print(f"stenod: cannot start: {error}", file=sys.stderr)
        return EXIT_FAILED


def _real_root(root: str | None) -> Path:
    home = os.path.expanduser("~")  # noqa: PTH111 (Path.home raises if the home is unknown)
    real = os.path.realpath(paths.root_folder(root, os.environ, home))
    return Path(paths.check_path(real, "root"))


def _serve_reader(root: Path) -> int:
    """Serve reads of a root at a private address, without its lock, log and options.

    The address lies in a new folder of this user: nobody else can listen there, and nothing is
    written to the root.
    """
    daemon_log.discard()
    # Its listing fails here for a root that this user may not read.
    os.listdir(root)  # noqa: PTH208 (no Paths are made)
    with TemporaryDirectory(prefix="steno-reader-") as folder:
        settings = config.load_to_read(root, str(Path(folder, "socket")))
        daemon.serve_reader(settings, lambda: print(settings.endpoint, flush=True))
    return 0


def _settings(root: str | None, socket: str | None, *, is_attended: bool) -> Config:
    folder = _real_root(root)
    try:
        make_root(folder)
    except OSError as error:
        raise StorageFailed(
            f"the root {folder} cannot be used: {error}; choose another with --root or STENO_HOME,"
            " or set HOME to a folder that you can write to"
        ) from error
    check_folder(folder)
    path = paths.socket_path(str(folder), socket, os.environ, os.getuid())
    return config.load(folder, str(Path(path).absolute()), is_attended=is_attended)


def _serve(settings: Config, *, log: Path | None, ready: int | None, supervisor: Supervisor) -> int:
    # In the background, stderr is read only through the log.
    is_detached = ready is not None
    daemon_log.start(log, outputs=_OUTPUTS if is_detached else ())
    daemon_log.adopt(settings.settings)

    def on_ready() -> None:
        if ready is not None:
            # The parent may have been killed meanwhile; other clients still need the daemon.
            with suppress(BrokenPipeError):
                os.write(ready, b"ready")
            os.close(ready)

    daemon.serve(settings, RootLock(settings.root), on_ready, supervisor)
    return 0


def _detach(settings: Config) -> int:
    """Fork before anything is opened; the parent exits when the child is ready or has failed."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        if answer == b"ready":
            # A client waits for this exit, and a regular interpreter shutdown takes a while.
            os._exit(0)
        print(answer.decode(errors="replace").partition(":")[2], file=sys.stderr)
        return int(answer.partition(b":")[0] or EXIT_FAILED)
    os.close(reader)
    os.setsid()
    if os.fork():
        os._exit(0)
    _close_inherited(writer)
    _leave_terminal(settings.root)
    os._exit(_serve_detached(settings, writer))


def _serve_detached(settings: Config, writer: int) -> int:
    try:
        log = settings.root / paths.LOG
        return _serve(settings, log=log, ready=writer, supervisor=Supervisor())
    except Exception as error:
        code = EXIT_HELD if isinstance(error, Held) else EXIT_FAILED
        # A MemoryError has no text.
        reason = str(error) or fault_of(error)
        # Of two daemons that start at a time one is refused, and nothing is wrong.
        daemon_log.log("held" if code == EXIT_HELD else "cannot_start", error=reason)
        _notify_parent(writer, f"{code}:stenod: cannot start: {reason}")
        return code


def _notify_parent(writer: int, text: str) -> None:
    # The parent may have exited, since the daemon was ready before; the log has the reason.
    with suppress(OSError):
        os.write(writer, text.encode())


def _close_inherited(ours: int) -> None:
    """Close the inherited handles, except the standard streams and `ours`.

    The daemon must not hold another program's lock or pipe: `flock start.lock stenod` would keep
    the start lock, and a reader of the pipe would wait for its end.
    """
    with suppress(OSError):
        found = {int(each.name) for each in Path(system.HANDLES).iterdir()}
        for handle in found - {0, 1, 2, ours}:
            # The handle of the listing itself is closed already.
            with suppress(OSError):
                os.close(handle)


def _leave_terminal(root: Path) -> None:
    os.chdir(root)
    null = os.open(os.devnull, os.O_RDWR)
    for handle in (0, *_OUTPUTS):
        os.dup2(null, handle)
    os.close(null)

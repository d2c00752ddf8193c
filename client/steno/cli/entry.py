"""One call of the command: the arguments in, the exit code out, and every error as one line."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from io import StringIO
from typing import TextIO

from steno.cli.exits import Exit, exit_of
from steno.cli.parser import build_parser
from steno.cli.render.output import Output, silence
from steno_protocol.errors import NotFound, StenoError

Handler = Callable[[Namespace, Output], int]
"""What carries out a subcommand."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `steno` with these arguments (None: those of the process); returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        options = build_parser(words).parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)
    output = Output(_open(sys.stdout), _open(sys.stderr), as_json=options.json)
    if sys.stdout is None:
        # Refused before anything is sent: the result could not be printed.
        output.failure("stdout is closed: nothing was done; `> /dev/null` is for unwanted answers")
        return Exit.FAILED
    try:
        code = _carry_out(options, output)
        sys.stdout.flush()
    except StenoError as error:
        output.error(error)
        return exit_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except OSError as error:
        silence(sys.stdout)
        return _end_of_stream(options, output, error)
    return code


def _open(stream: TextIO | None) -> TextIO:
    """A stream of the process, or a null stream if it was closed at the start."""
    return StringIO() if stream is None else stream


def _carry_out(options: Namespace, output: Output) -> int:
    handler = _handler(options.handler)
    try:
        return handler(options, output)
    except NotFound as error:
        from steno.cli.prefixes import meant  # noqa: PLC0415  # rarely needed

        session = meant(options, error)
        if session is None:
            raise
        output.say(f"there is no session {options.session}; {session} is the one that begins so")
        options.session = session
    # Nothing was found, so nothing was done or printed that would now be so twice.
    return handler(options, output)


def _end_of_stream(options: Namespace, output: Output, error: OSError) -> int:
    """What it means that stdin or stdout failed."""
    if _is_change(options):
        session = getattr(options, "session", None)
        look = f"steno tail {session}" if session else "steno sessions"
        output.failure(f"{_reason(error)}; it may have happened: see `{look}`")
        return Exit.UNKNOWN
    if isinstance(error, BrokenPipeError):
        # The reader of the output has closed it, which is no failure: `steno read demo | head`.
        return Exit.DONE
    output.failure(_reason(error))
    return Exit.FAILED


def _is_change(options: Namespace) -> bool:
    given = getattr(options, "changes", False)
    return getattr(options, given) is not None if isinstance(given, str) else bool(given)


def _reason(error: OSError) -> str:
    if error.strerror is None:
        # Raised by one of us, in words that say all.
        return str(error)
    # What is read and written by its handle has no name in the error.
    return (
        f"{error.strerror}: {error.filename or 'standard input, standard output or an open file'}"
    )


def _handler(name: str) -> Handler:
    # Fetched when it is called: a command pays for its own imports only.
    module, _, function = name.partition(":")
    handler: Handler = getattr(import_module(f"steno.cli.commands.{module}"), function)
    return handler

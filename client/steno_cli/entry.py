"""One call of the command: arguments in, exit code out, each error on one line."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from io import StringIO
from typing import TextIO

from steno_cli.connection import is_change
from steno_cli.exits import Exit, exit_of, reason_of
from steno_cli.parser import build_parser
from steno_cli.render.output import Output, silence
from steno_cli.render.printed_commands import destination
from steno_protocol.errors import NotFound, StenoError


def main(argv: Sequence[str] | None = None) -> int:
    """Run `steno` with these arguments (None: those of the process); returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        options = build_parser(words).parse_args(words)
        if options.command is None:
            options = build_parser(["help"]).parse_args([*words, "help"])
    except SystemExit as end:
        return int(end.code or 0)
    except OSError as error:
        silence(sys.stdout)
        output = Output(_open(sys.stdout), _open(sys.stderr))
        return _end_of_stream(Namespace(), output, error)
    output = Output(
        _open(sys.stdout),
        _open(sys.stderr),
        as_json=options.json,
        destination=destination(options),
    )
    # Where a command says what it finds out of itself, such as that it reads without a daemon.
    options.messages = output
    if sys.stdout is None:
        # Refused before the command does anything: its result could not be printed.
        output.failure("stdout is closed: nothing was done; `> /dev/null` discards the output")
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
    try:
        code: int = options.run(options, output)
    except NotFound as error:
        # Imported here: most commands find their session.
        from steno_cli.session_ids import session_with_prefix  # noqa: PLC0415

        session = session_with_prefix(options, error)
        if session is None:
            raise
        output.say(f"there is no session {options.session}; only {session} begins with it")
        options.session = session
        # The first run found nothing, so that it did and printed nothing.
        code = options.run(options, output)
    return code


def _end_of_stream(options: Namespace, output: Output, error: OSError) -> int:
    """The exit code after a failure of stdin or stdout."""
    # An error of a stream has no file name; with one, a file was refused before the change.
    if is_change(options) and error.filename is None:
        session = getattr(options, "session", None)
        look = f"steno tail {session}" if session else "steno sessions"
        output.failure(f"{reason_of(error)}; the change may have happened: see `{look}`")
        return Exit.UNKNOWN
    if isinstance(error, BrokenPipeError):
        # The reader closed the pipe, which is no failure: `steno read demo | head`.
        return Exit.DONE
    output.failure(reason_of(error))
    return Exit.FAILED

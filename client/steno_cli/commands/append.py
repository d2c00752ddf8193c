"""`steno append`: messages appended to a session."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from steno import BlockingClient
from steno.parts import BlockingLink, Message, OrderedAppends, Settled, encode_messages
from steno.values import Ack
from steno_cli.arguments import (
    Subcommands,
    change_options,
    command,
    create_options,
    optional_argument,
    role,
    session_argument,
    whole_number,
)
from steno_cli.changes import Check, Verb, apply, change, print_ack
from steno_cli.connection import linked
from steno_cli.exits import Exit, WrongUsage, reason_of
from steno_cli.render.output import Output, silence
from steno_cli.render.printed_commands import destination, given_words
from steno_cli.render.progress import Progress
from steno_cli.stdin import InputLine, InputLines, is_typed, json_batch, stdin
from steno_present.wording import count
from steno_protocol.errors import BadRequest, NotFound, OutcomeUnknown, StenoError, TooLarge
from steno_protocol.paths import check_key
from steno_protocol.positions import Position
from steno_protocol.records import check_message


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "append", run,
        "Appends TEXT as one message, or the records on stdin, one JSON object per line. Prints the"
        " new head once they are durable: after each line, or on a terminal after the last. Lines"
        " are sent without waiting for the earlier ones and stored in order; nothing is stored"
        " after a line that fails, and --expect then holds for every line. Creates a missing"
        " session with a note; in a mount, only with --create.",
        example="steno append demo 'What is in this folder?'\n"
        "steno append demo < turns.jsonl\n"
        "steno append demo --batch < turn.jsonl",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "text", str, "the content of one message")
    parser.add_argument(
        "--role", metavar="ROLE", type=role,
        help="role of the message, such as system, assistant or developer (default: user)",
    )  # fmt: skip
    parser.add_argument(
        "--batch", action="store_true", help="append all of stdin as one atomic batch"
    )
    parser.add_argument(
        "--from-line", metavar="N", type=whole_number,
        help="skip the lines of stdin before line N, to go on after a failure",
    )  # fmt: skip
    create_options(parser)
    change_options(parser, key="line N of stdin gets KEY-N unless --batch is given")


def run(options: Namespace, output: Output) -> int:
    """Append one message, or the records on stdin."""
    _check_append(options)
    if options.text is not None:
        message = {"role": options.role or "user", "content": options.text}
        return change(options, output, *_appending(message))
    lines = _input_lines(options)
    if is_typed():
        output.say(
            "reading records from the terminal, one JSON object a line; Ctrl-D ends the input"
        )
    if options.batch:
        remedy = "leave --batch out, which appends line by line, or send several batches"
        return change(options, output, *_appending(json_batch(lines, remedy)))
    return _append_stream(options, output, lines)


def _input_lines(options: Namespace) -> InputLines:
    """The lines of stdin; the same ones when the command runs again with the whole session id."""
    if not hasattr(options, "input_lines"):
        options.input_lines = InputLines(stdin())
    lines: InputLines = options.input_lines
    return lines


def _append_stream(options: Namespace, output: Output, lines: InputLines) -> int:
    """Append each line by itself, with requests in flight; nothing is stored after a failure."""
    link = linked(options)
    with BlockingClient(link) as client, Progress(output, "appending") as progress:
        stream = _Stream(options, output, lines, progress)
        return stream.run(client, link)


class _Stream:
    """The lines of stdin on their way into a session."""

    def __init__(
        self, options: Namespace, output: Output, lines: InputLines, progress: Progress
    ) -> None:
        self._options = options
        self._output = output
        self._lines = lines
        self._progress = progress
        self._total_bytes = lines.total_bytes
        # On a terminal the progress line shows the acks: thousands of heads would hide it.
        self._is_watched = (
            output.is_terminal
            and output.talks_to_terminal
            and not output.as_json
            and not is_typed()
        )
        self._first: InputLine | None = None
        self._appends: OrderedAppends | None = None
        self._printed = 0

    @property
    def _stored(self) -> int:
        """Acknowledged lines."""
        return 0 if self._appends is None else self._appends.settled.lines

    @property
    def _head(self) -> Position | None:
        """The head after the acknowledged lines, or the expected one."""
        head: Position | None = self._options.expect
        return head if self._appends is None else self._appends.settled.ack.head

    def run(self, client: BlockingClient, link: BlockingLink) -> int:
        """Append all lines; returns the exit code.

        Raises:
            StenoError: a line was not acknowledged; a message names it and how to go on.
            OSError: stdin failed before a line was appended.
        """
        try:
            self._append_all(client, link)
        except OSError as error:
            if self._appends is None:
                raise
            self._stream_failed(self._appends, error)
            return Exit.UNKNOWN
        return Exit.DONE

    def _append_all(self, client: BlockingClient, link: BlockingLink) -> None:
        try:
            self._first = self._take(wait=True)
            if self._first is None:
                raise _nothing_to_append(self._options)
            ack = self._append_alone(client, self._first)
            # Made before the line is printed: an interrupt takes from it which lines are stored.
            self._appends = OrderedAppends(
                link,
                self._options.session,
                Settled(self._first.number, ack, 1),
                self._options.durability,
                is_alone=self._options.expect is not None,
            )
            self._print(self._appends.settled)
            self._append_rest(self._appends)
        except StenoError as error:
            if not isinstance(error, _NothingToAppend | NotFound) or self._stored:
                self._report_failure(self._failed_number(), error)
            raise
        except KeyboardInterrupt:
            self._interrupted()
            raise
        if self._is_watched:
            self._progress.clear()
            self._output.write(str(self._head))
        # The end of the command flushes, too, and knows no line.
        self._output.flush()

    def _append_alone(self, client: BlockingClient, line: InputLine) -> Ack:
        """Append the first line, which may create the session."""
        key = self._key(line.number)
        try:
            return apply(client, self._options, self._output, *_appending(line.text), key)
        except NotFound:
            self._lines.put_back(line)
            raise

    def _append_rest(self, appends: OrderedAppends) -> None:
        """Keep the window full of a fast producer's lines, and empty before a slow one's next."""
        while appends or not self._lines.is_at_end:
            line = None
            if appends.has_room:
                line = self._take_next(appends)
            if line is not None:
                appends.send(line.number, line.text, self._key(line.number))
            elif appends:
                self._settle(appends)

    def _take_next(self, appends: OrderedAppends) -> InputLine | None:
        try:
            return self._take(wait=not appends)
        except TooLarge:
            # The lines before it come first, also with their errors.
            while appends:
                self._settle(appends)
            raise

    def _take(self, *, wait: bool) -> InputLine | None:
        first = self._options.from_line or 1
        while (line := self._lines.take(wait=wait)) is not None:
            if line.number >= first:
                return line
        return None

    def _settle(self, appends: OrderedAppends) -> None:
        self._print(appends.settle())
        if not appends.is_answered:
            self._output.flush()

    def _print(self, settled: Settled) -> None:
        self._progress.show_bytes(
            self._lines.taken_bytes, self._total_bytes, count(settled.lines, "line")
        )
        if not self._is_watched:
            self._progress.make_room()
            print_ack(self._options, self._output, settled.ack)
            if settled.lines == 1:
                self._output.flush()
        self._printed = settled.lines

    def _key(self, line_number: int) -> str | None:
        return None if self._options.key is None else _line_key(self._options.key, line_number)

    def _failed_number(self) -> int:
        if self._appends:
            return self._appends.next_number
        if self._appends is None and self._first is not None:
            return self._first.number
        # The next line could not be taken.
        return self._lines.next_number

    def _report_failure(self, number: int, error: StenoError) -> None:
        """Print which line failed, the lines before it, and the command that goes on from it."""
        stored = [] if self._appends is None else self._appends.drain()
        later = [each for each in stored if each > number]
        self._progress.clear()
        self._output.flush()
        parts = [f"line {number} of stdin was not acknowledged"]
        if self._stored:
            parts.append(f"{_records(self._stored)} before it {_stay(self._stored)} appended")
        if later:
            lines = ", ".join(map(str, later))
            parts.append(
                f"another writer interfered, and of the later lines these are stored: {lines}"
            )
        if self._stored or number > 1:
            parts.append(self._remedy(number, is_unknown=isinstance(error, OutcomeUnknown)))
        self._output.say("; ".join(parts))

    def _interrupted(self) -> None:
        """Finish the lines in flight, and print how to go on; a second interrupt ends that."""
        if self._appends is None:
            if self._first is not None:
                self._say_first_unknown(self._first.number)
            return
        if self._printed < self._appends.settled.lines:
            self._print(self._appends.settled)
        state = self._finish(self._appends, self._settle)
        self._progress.clear()
        self._output.flush()
        self._output.say(f"interrupted: {state}")

    def _stream_failed(self, appends: OrderedAppends, error: OSError) -> None:
        """Finish the lines in flight without their heads, and print how to go on."""
        # The heads that stdout did not take must not fail once more at the end of the process.
        silence(sys.stdout)
        state = self._finish(appends, OrderedAppends.settle)
        self._progress.clear()
        self._output.failure(f"{reason_of(error)}; {state}")

    def _say_first_unknown(self, number: int) -> None:
        options = self._options
        self._progress.clear()
        self._output.say(
            f"interrupted: line {number} of stdin may be stored; see"
            f" `steno tail {options.session}`; {self._remedy(number, is_unknown=True)}"
        )

    def _finish(self, appends: OrderedAppends, settle: Callable[[OrderedAppends], object]) -> str:
        """Settle the lines in flight; returns which lines are stored and how to go on."""
        is_unknown = True
        with suppress(StenoError):
            while appends:
                settle(appends)
            is_unknown = False
        # The input may be further: a line that was taken and not sent comes again.
        number = appends.next_number
        appends.drain()
        stored = _records(self._stored)
        if not is_unknown and number == self._lines.next_number and self._has_ended():
            return f"{stored} {_stay(self._stored)} appended, and stdin holds no further one"
        return (
            f"{stored} before line {number} of stdin {_stay(self._stored)} appended;"
            f" {self._remedy(number, is_unknown=is_unknown)}"
        )

    def _has_ended(self) -> bool:
        """Whether stdin certainly holds no further line; does not wait for one."""
        with suppress(StenoError, OSError):
            return self._lines.take(wait=False) is None and self._lines.is_at_end
        return False

    def _remedy(self, number: int, *, is_unknown: bool) -> str:
        options = self._options
        words = ["steno", "append", options.session, "--from-line", str(number)]
        words += [*destination(options), *given_words(options, ("name", "timeout", "key"))]
        if options.durability != "synced":
            words += ["--durability", options.durability]
        # Without keys of the caller only the head proves that no line is stored twice.
        if self._head is not None and (
            options.expect is not None or (is_unknown and options.key is None)
        ):
            words += ["--expect", str(self._head)]
        return f"to go on from line {number}: {shlex.join(words)} < {_input_name()}"


class _NothingToAppend(BadRequest):
    """Stdin held no record."""


def _nothing_to_append(options: Namespace) -> _NothingToAppend:
    # A script that passes no TEXT by mistake must notice that nothing was appended.
    beyond = "" if options.from_line is None else f" from line {options.from_line} on"
    return _NothingToAppend(
        f"stdin held no record{beyond}, and nothing was appended: give one JSON object a line, or"
        " TEXT",
        session=options.session,
    )


def _records(stored: int) -> str:
    return count(stored, "record")


def _stay(stored: int) -> str:
    return "stays" if stored == 1 else "stay"


def _input_name() -> str:
    """The path of the file on stdin, quoted for a shell; FILE if it is none."""
    with suppress(OSError):
        path = Path(f"/proc/self/fd/{stdin().fileno()}").readlink()
        if path.is_file():
            return shlex.quote(str(path))
    return "FILE"


def _appending(messages: Message | Sequence[Message]) -> tuple[Verb, Check]:
    records = encode_messages(messages)
    return (
        lambda session, how: session.append_message(records, **how),
        lambda: [check_message(record) for record in records],
    )


def _check_append(options: Namespace) -> None:
    if options.text is None and options.role is not None:
        raise WrongUsage("--role is for one TEXT: a record on stdin has its own role")
    if options.text is not None and options.batch:
        raise WrongUsage("--batch is for records on stdin: leave TEXT out")
    if options.from_line is not None and (options.text is not None or options.batch):
        raise WrongUsage("--from-line is for records on stdin without --batch")
    if options.text is None and options.key is not None and not options.batch:
        _check_line_key(options.key)


def _check_line_key(key: str) -> None:
    try:
        check_key(_line_key(key, 1))
    except BadRequest:
        raise WrongUsage(
            "--key is too long to get the number of a line of stdin appended: choose a shorter one"
        ) from None


def _line_key(key: str, line_number: int) -> str:
    return f"{key}-{line_number}"

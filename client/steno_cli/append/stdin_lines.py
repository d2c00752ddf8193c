"""The lines of stdin on their way into a session: in flight, in order, and every way they end."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from steno import BlockingClient
from steno.parts import BlockingLink, OrderedAppends, Settled
from steno.values import Ack
from steno_cli.append.input_records import (
    Control,
    InputRecords,
    NothingToAppend,
    control_of,
    line_key,
    nothing_to_append,
)
from steno_cli.changes import Check, Verb, appending, apply, no_check, print_places
from steno_cli.exits import Exit, reason_of
from steno_cli.render.output import Output, silence
from steno_cli.render.printed_commands import destination, given_words
from steno_cli.render.progress import Progress
from steno_cli.stdin import InputLine, is_typed, stdin
from steno_present.wording import count
from steno_protocol import limits
from steno_protocol.errors import BadRequest, NotFound, OutcomeUnknown, StenoError, TooLarge
from steno_protocol.positions import Position
from steno_protocol.records import system_prompt_record


class AppendStream:
    """The lines of stdin on their way into a session."""

    def __init__(
        self, options: Namespace, output: Output, lines: InputRecords, progress: Progress
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
        self._has_new_ids = False
        # The line that is sent while no other one is in flight: the first one, or a control record.
        self._alone: InputLine | None = None
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
            first = self._take(wait=True)
            if first is None:
                raise nothing_to_append(self._options)
            self._append_alone(client, link, first)
            while (control := self._append_messages()) is not None:
                self._append_alone(client, link, control)
        except StenoError as error:
            if not isinstance(error, NothingToAppend | NotFound) or self._stored:
                self._report_failure(self._failed_number(), error)
            raise
        except KeyboardInterrupt:
            self._interrupted()
            raise
        if self._is_watched and self._appends is not None:
            self._progress.clear()
            self._output.write(str(self._appends.settled.ack.last))
        if self._lines.is_export:
            self._output.say("the events, streams and the timeline of the export are left out")
        # The end of the command flushes, too, and knows no line.
        self._output.flush()

    def _append_alone(self, client: BlockingClient, link: BlockingLink, line: InputLine) -> None:
        """Append the first line, which may create the session, or a control record."""
        self._alone = line
        stored = self._stored
        options = self._options
        if self._appends is None:
            ack = self._append_first(client, line)
        else:
            verb, _ = _command_of(line)
            how = {
                "key": self._key(line.number),
                "expect": None if options.expect is None else self._head,
                "durability": options.durability,
            }
            ack = verb(client.session(options.session), how)
        # Made before the line is printed: an interrupt takes from it which lines are stored.
        self._appends = OrderedAppends(
            link,
            options.session,
            Settled(line.number, ack, stored + 1),
            options.durability,
            is_alone=options.expect is not None,
        )
        self._print(self._appends.settled)
        self._say_new_id(line, ack)

    def _append_first(self, client: BlockingClient, line: InputLine) -> Ack:
        key = self._key(line.number)
        try:
            return apply(client, self._options, self._output, *_command_of(line), key)
        except NotFound:
            self._lines.put_back(line)
            raise

    def _append_messages(self) -> InputLine | None:
        """Keep the window full of a fast producer's lines, and empty before a slow one's next.

        Returns:
            The next control record, once all lines before it are settled; None at the end.
        """
        appends = self._appends
        assert appends is not None
        control: InputLine | None = None
        while appends or (control is None and not self._lines.is_at_end):
            line = None
            if control is None and appends.has_room:
                line = self._take_next(appends)
            if line is not None and control_of(line.text) is not None:
                control = line
            elif line is not None:
                appends.send(line.number, line.text, self._key(line.number))
            elif appends:
                self._settle(appends)
        return control

    def _take_next(self, appends: OrderedAppends) -> InputLine | None:
        try:
            return self._take(wait=not appends)
        except TooLarge:
            # The lines before it come first, also with their errors.
            while appends:
                self._settle(appends)
            raise

    def _say_new_id(self, line: InputLine, ack: Ack) -> None:
        control = control_of(line.text)
        if control is None or control.role != "_checkpoint" or self._has_new_ids:
            return
        if control.value is not None and control.value != ack.checkpoint_id:
            self._has_new_ids = True
            self._output.say(
                f"checkpoint {control.value} of stdin is checkpoint {ack.checkpoint_id} of"
                f" {self._options.session}, where ids count on; those after it differ, too"
            )

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
            print_places(self._options, self._output, settled.ack)
            if settled.lines == 1:
                self._output.flush()
        self._printed = settled.lines

    def _key(self, line_number: int) -> str | None:
        return None if self._options.key is None else line_key(self._options.key, line_number)

    @property
    def _unsettled(self) -> InputLine | None:
        """The line that was sent alone and has no acknowledgement."""
        alone = self._alone
        if alone is None or (
            self._appends is not None and self._appends.settled.number >= alone.number
        ):
            return None
        return alone

    def _failed_number(self) -> int:
        if self._appends:
            return self._appends.next_number
        if self._unsettled is not None:
            return self._unsettled.number
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
        if self._unsettled is not None:
            self._say_unknown(self._unsettled.number)
        if self._appends is None or self._unsettled is not None:
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

    def _say_unknown(self, number: int) -> None:
        stored = self._stored
        before = f"{_records(stored)} before it {_stay(stored)} appended; " if stored else ""
        self._progress.clear()
        self._output.flush()
        self._output.say(
            f"interrupted: line {number} of stdin may be stored; {before}see"
            f" `steno tail {self._options.session}`; {self._remedy(number, is_unknown=True)}"
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


def _command_of(line: InputLine) -> tuple[Verb, Check]:
    """The command that writes a line of stdin."""
    control = control_of(line.text)
    return appending(line.text) if control is None else _writing(control)


def _writing(control: Control) -> tuple[Verb, Check]:
    """The command of a control record.

    Raises:
        BadRequest: it lacks its value.
    """
    value = control.value
    match control.role:
        case "_checkpoint":
            return lambda session, how: session.checkpoint(**how), no_check
        case "_usage":
            if type(value) is not int or not 0 <= value <= limits.COUNT_MAX:
                raise BadRequest("the line has the role '_usage' and no number in token_count")
            return lambda session, how: session.update_token_count(value, **how), no_check
        case "_system_prompt":
            if not isinstance(value, str):
                raise BadRequest("the line has the role '_system_prompt' and no text in content")
            return (
                lambda session, how: session.write_system_prompt(value, **how),
                lambda: system_prompt_record(value),
            )

"""`steno append`: messages appended to a session."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from steno._sansio.messages import Message, encode_messages
from steno.cli.arguments import (
    Subcommands,
    change_options,
    command,
    create_options,
    optional_argument,
    role,
    session_argument,
)
from steno.cli.changes import Check, Verb, apply, change, print_ack
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render.output import Output
from steno.cli.render.wording import count
from steno.cli.stdin import is_typed, stdin
from steno_protocol import limits
from steno_protocol.errors import BadRequest, StenoError, TooLarge
from steno_protocol.paths import check_key
from steno_protocol.records import check_message


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "append", run,
        "Appends TEXT as one message, or the records on stdin, one JSON object per line. Prints the"
        " new head once they are durable. Creates a missing session with a note; in a mount, only"
        " with --create.",
        example="steno append demo 'What is in this folder?'\n"
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
    create_options(parser)
    change_options(parser, key="line N of stdin gets KEY-N unless --batch is given")


def run(options: Namespace, output: Output) -> int:
    """Append one message, or the records on stdin."""
    _check_append(options)
    if options.text is not None:
        message = {"role": options.role or "user", "content": options.text}
        return change(options, output, *_appending(message))
    lines = _lines(stdin().buffer)
    if is_typed():
        output.say(
            "reading records from the terminal, one JSON object a line; Ctrl-D ends the input"
        )
    if options.batch:
        return change(options, output, *_appending(_batch(lines)))
    return _append_stream(options, output, lines)


def _append_stream(options: Namespace, output: Output, lines: Iterator[tuple[int, bytes]]) -> int:
    """Append each line by itself; acknowledged lines before a refused one stay appended."""
    done = 0
    with connected(options) as client:
        for line_number, line in lines:
            key = None if options.key is None else _line_key(options.key, line_number)
            try:
                ack = apply(client, options, output, *_appending(line), key)
            except StenoError:
                stay = "stays" if done == 1 else "stay"
                stored = f"; {count(done, 'record')} before it {stay} appended" if done else ""
                output.say(f"line {line_number} of stdin was not acknowledged{stored}")
                raise
            print_ack(options, output, ack)
            output.flush()
            done += 1
    if not done:
        # A script that passes no TEXT by mistake must notice that nothing was appended.
        raise BadRequest(
            "stdin held no record, and nothing was appended: give one JSON object a line, or TEXT",
            session=options.session,
        )
    return Exit.DONE


def _batch(lines: Iterator[tuple[int, bytes]]) -> list[bytes]:
    """The records of one batch; an endless stdin is read no further than a batch can hold."""
    batch: list[bytes] = []
    size = 0
    for _, line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) > limits.BATCH_RECORDS_MAX or size > limits.BATCH_BYTES_MAX:
            raise TooLarge(
                f"stdin holds more than a batch, which is {limits.BATCH_RECORDS_MAX} records and"
                f" {limits.BATCH_BYTES_MAX} bytes at most: send several batches"
            )
    return batch


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
    if options.text is None and options.expect is not None and not options.batch:
        raise WrongUsage("--expect applies to one command only: add --batch, or give one TEXT")
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


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines without their ends, with their numbers from 1; blank lines are skipped."""
    line_number = 0
    while line := stream.readline(limits.RECORD_BYTES_MAX + 2):
        line_number += 1
        if not line.endswith(b"\n") and len(line) > limits.RECORD_BYTES_MAX:
            raise TooLarge(
                f"line {line_number} of stdin is longer than {limits.RECORD_BYTES_MAX} bytes:"
                " split it, or store the large part elsewhere and refer to it"
            )
        if line.strip():
            yield line_number, line.rstrip(b"\r\n")

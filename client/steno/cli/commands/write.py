"""The subcommands that change a session; each prints the new head, a checkpoint its id."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, cast

from steno._sansio.requests import Message, encode_messages
from steno._sansio.wire_events import encode_events
from steno._sync.client import BlockingClient, BlockingSession
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.wording import count, number
from steno.cli.stdin import is_typed, stdin, text_or_stdin
from steno.values import Ack
from steno_protocol import limits
from steno_protocol.errors import BadRequest, NotFound, StenoError, TooLarge
from steno_protocol.paths import check_key
from steno_protocol.positions import Position
from steno_protocol.records import check_message, system_prompt_record
from steno_protocol.wire import check_event, metadata_line

_BEGINNING: Final = Position(0, 0)
"""Where a new session ends."""


def append(options: Namespace, output: Output) -> int:
    """Append one message, or the records on stdin."""
    _check_append(options)
    if options.text is not None:
        message = {"role": options.role or "user", "content": options.text}
        return _change(options, output, *_appending(message))
    lines = _lines(stdin().buffer)
    if is_typed():
        output.say("reading records from the terminal, one JSON object a line; Ctrl-D ends")
    if options.batch:
        return _change(options, output, *_appending(_batch(lines)))
    return _append_stream(options, output, lines)


def checkpoint(options: Namespace, output: Output) -> int:
    """Append a checkpoint and print its id."""
    visible = options.add_user_message
    return _change(options, output, lambda session, how: session.checkpoint(visible, **how))


def revert(options: Namespace, output: Output) -> int:
    """Drop a checkpoint and all that follows it."""
    target, why = options.checkpoint, options.why
    return _change(options, output, lambda session, how: session.revert_to(target, why=why, **how))


def clear(options: Namespace, output: Output) -> int:
    """Drop everything."""
    return _change(options, output, lambda session, how: session.clear(why=options.why, **how))


def restore(options: Namespace, output: Output) -> int:
    """Bring back a generation that was left behind."""
    target, why = options.generation, options.why
    return _change(
        options, output, lambda session, how: session.restore_generation(target, why=why, **how)
    )


def emit(options: Namespace, output: Output) -> int:
    """Append an event to the wire file."""
    events = encode_events(options.type, _payload(options), options.timestamp)
    header = None if options.header is None else _object(options.header, "header")
    return _change(
        options,
        output,
        lambda session, how: session.append_wire(events, header=header, **how),
        lambda: [metadata_line(header), *map(check_event, events)],
    )


def usage(options: Namespace, output: Output) -> int:
    """Append a token count, or print the recorded ones."""
    tokens = options.tokens
    if tokens is not None:
        return _change(
            options, output, lambda session, how: session.update_token_count(tokens, **how)
        )
    with connected(options) as client:
        state = client.session(options.session).history_at()
    if output.as_json:
        output.document(contract.usage(options.session, state))
        return Exit.DONE
    for entry in state.usage_history:
        output.write(f"{entry.cursor}  {entry.token_count}")
    pending = state.token_count_with_pending - state.token_count
    output.say(f"{count(state.token_count, 'token')}, and about {number(pending)} not yet counted")
    return Exit.DONE


def prompt(options: Namespace, output: Output) -> int:
    """Write the system prompt, or print the present one."""
    if options.text is not None:
        text = text_or_stdin(options, "text")
        return _change(
            options,
            output,
            lambda session, how: session.write_system_prompt(text, **how),
            lambda: system_prompt_record(text),
        )
    with connected(options) as client:
        state = client.session(options.session).history_at()
    if output.as_json:
        output.document({"session": options.session, "system_prompt": state.system_prompt})
    elif state.system_prompt is None:
        output.say(f"the session {options.session} has no system prompt: give one as TEXT")
    else:
        output.write(printable(state.system_prompt) if output.is_terminal else state.system_prompt)
    return Exit.DONE


# --- how a change is made ------------------------------------------------------------------------

Verb = Callable[[BlockingSession, dict[str, Any]], Ack]
"""A verb of a session, given the options that all of them have."""

Gate = Callable[[], object]
"""Raises what any session would refuse about a change, so that none is made for it."""


def _open_gate() -> None:
    """Of a change that no session refuses for its own sake."""


def _change(options: Namespace, output: Output, verb: Verb, gate: Gate = _open_gate) -> int:
    with connected(options) as client:
        ack = _apply(client, options, output, verb, gate, options.key)
    _print_ack(options, output, ack)
    return Exit.DONE


def _append_stream(options: Namespace, output: Output, lines: Iterator[tuple[int, bytes]]) -> int:
    """Append each line by itself; what was acknowledged before a refusal stays appended."""
    done = 0
    with connected(options) as client:
        for line_number, line in lines:
            key = None if options.key is None else _line_key(options.key, line_number)
            try:
                ack = _apply(client, options, output, *_appending(line), key)
            except StenoError:
                stay = "stays" if done == 1 else "stay"
                stored = f"; {count(done, 'record')} before it {stay} appended" if done else ""
                output.say(f"line {line_number} of stdin was not acknowledged{stored}")
                raise
            _print_ack(options, output, ack)
            output.flush()
            done += 1
    if not done:
        # A TEXT that a script left empty by mistake must not look like one that was appended.
        raise BadRequest(
            "stdin held no record, and nothing was appended: give one JSON object a line, or TEXT",
            session=options.session,
        )
    return Exit.DONE


def _batch(lines: Iterator[tuple[int, bytes]]) -> list[bytes]:
    """The records of one batch; of a stdin without end no more is taken than a batch can hold."""
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


def _appending(messages: Message | Sequence[Message]) -> tuple[Verb, Gate]:
    records = encode_messages(messages)
    return (
        lambda session, how: session.append_message(records, **how),
        lambda: [check_message(record) for record in records],
    )


def _apply(
    client: BlockingClient,
    options: Namespace,
    output: Output,
    verb: Verb,
    gate: Gate,
    key: str | None,
) -> Ack:
    """Ask for the change; the session is made when that alone is missing."""
    how = {"key": key, "expect": options.expect, "durability": options.durability}
    session = client.session(options.session)
    try:
        return verb(session, how)
    except NotFound as error:
        if getattr(options, "no_create", True) or options.expect not in (None, _BEGINNING):
            raise
        missing = error
    from steno.cli import creation  # noqa: PLC0415  # rarely needed

    creation.check(client, options, missing)
    # A change that is refused all the same must not leave an empty session behind.
    gate()
    # The rarer case second: a session that is there costs one round trip, not two.
    creation.create(client, options, output)
    return verb(session, how)


def _print_ack(options: Namespace, output: Output, ack: Ack) -> None:
    if output.as_json:
        output.document(contract.ack(options.session, ack))
        return
    is_checkpoint = options.command == "checkpoint"
    output.write(str(ack.checkpoint_id if is_checkpoint else ack.head))
    if ack.rotated is not None:
        output.say(f"what was there before is kept in {ack.rotated}")
    if ack.duplicate:
        output.say(f"the key {ack.key} had been applied before; this is its answer of that time")


def _payload(options: Namespace) -> dict[str, Any]:
    if options.payload is None:
        return {}
    return _object(text_or_stdin(options, "payload"), "payload")


def _object(text: str, what: str) -> dict[str, Any]:
    import json  # noqa: PLC0415  # only for `emit`

    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"the {what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise WrongUsage(f"the {what} is not a JSON object: put it into one")
    return cast("dict[str, Any]", found)


def _check_append(options: Namespace) -> None:
    if options.text is None and options.role is not None:
        raise WrongUsage("--role is for one TEXT: a record on stdin has its own role")
    if options.text is not None and options.batch:
        raise WrongUsage("--batch is for records on stdin: leave TEXT out")
    if options.text is None and options.expect is not None and not options.batch:
        raise WrongUsage("--expect can hold for one command only: add --batch, or give one TEXT")
    if options.text is None and options.key is not None and not options.batch:
        _check_line_key(options.key)


def _check_line_key(key: str) -> None:
    try:
        check_key(_line_key(key, 1))
    except BadRequest:
        raise WrongUsage(
            "--key has no room for the number of a line of stdin behind it: choose a shorter one"
        ) from None


def _line_key(key: str, line_number: int) -> str:
    return f"{key}-{line_number}"


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, without their ends, counted from 1."""
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

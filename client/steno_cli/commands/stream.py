"""`steno stream`: the streams of a session, and the records of one."""

from argparse import Namespace

from steno import BlockingClient, BlockingStream
from steno.parts import encode_messages
from steno.values import RecordsEvent, StreamRecord
from steno_cli.arguments import (
    argument,
    change_options,
    command,
    create_options,
    flag,
    follow_option,
    optional_argument,
    session_argument,
    span_options,
    stream_name,
    whole_number,
)
from steno_cli.changes import change
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.records import follow, report_damaged
from steno_cli.render.output import Output
from steno_cli.render.tables import table
from steno_cli.stdin import InputLines, json_batch, stdin
from steno_present import contract
from steno_present.wording import moment, number, size
from steno_protocol.records import check_record

_READING = ("after", "until", "lines")


@command(
    "stream",
    "Without NAME, lists the streams with records, size and last change. With NAME, prints its"
    " records exactly as they were appended; -f prints new ones once they are durable."
    " --append prints the new head once the record is durable; the first append creates the"
    " stream. --delete keeps the records in a file of the session until they expire.",
    session_argument,
    optional_argument("stream", stream_name, "the stream's name"),
    argument("-n", "--lines", metavar="N", type=whole_number, help="only the last N records"),
    span_options,
    follow_option,
    argument(
        "--append", metavar="RECORD",
        help="append a JSON object, or - for the lines of stdin as one atomic batch",
    ),
    flag("--delete", help="delete the stream"),
    create_options,
    change_options(given="append"),
    example="steno stream demo\n"
    "steno stream demo notes -n 3 -f\n"
    "steno stream demo notes --append '{\"text\": \"hi\"}'",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """List the streams of a session, or read, append to, follow or delete one."""
    _check(options)
    if options.append is not None:
        return _append(options, output)
    with connected(options, output=output) as client:
        if options.stream is None:
            _list(client, options, output)
        elif options.delete:
            _delete(_stream(client, options), options, output)
        elif options.follow:
            _follow(_stream(client, options), options, output)
        else:
            _read(_stream(client, options), options, output)
    return Exit.DONE


def _check(options: Namespace) -> None:
    given = [name for name in _READING if getattr(options, name) is not None]
    given += [name for name in ("follow", "delete") if getattr(options, name)]
    given += ["append"] if options.append is not None else []
    if given and options.stream is None:
        raise WrongUsage(f"--{given[0]} needs the NAME of a stream", session=options.session)
    if "append" in given or "delete" in given:
        if len(given) > 1:
            raise WrongUsage(
                f"--{given[-1]} and --{given[0]} do not fit together: give one of them",
                session=options.session,
            )
    elif options.lines is not None and (options.after is not None or options.until is not None):
        raise WrongUsage(
            "-n counts from the end: give it, or --after and --until", session=options.session
        )
    elif options.follow and options.until is not None:
        raise WrongUsage("-f has no end: leave out --until", session=options.session)


def _stream(client: BlockingClient, options: Namespace) -> BlockingStream:
    return client.session(options.session).stream(options.stream)


def _list(client: BlockingClient, options: Namespace, output: Output) -> None:
    found = client.session(options.session).streams()
    rows = [
        (each.name, number(each.records), size(each.bytes), moment(each.modified_at))
        for each in found
    ]
    message = (
        f"{options.session} has no stream: `steno stream {options.session} NAME --append RECORD`"
        " makes one"
    )
    output.answer(
        contract.streams(options.session, found),
        *table(rows, right=frozenset({1, 2})),
        message="" if found else message,
    )


def _read(stream: BlockingStream, options: Namespace, output: Output) -> None:
    if options.lines is not None:
        for record in stream.last(options.lines):
            _print(output, record)
        return
    records = stream.records(options.after, options.until)
    for record in records:
        _print(output, record)
    report_damaged(output, records.damaged)


def _follow(stream: BlockingStream, options: Namespace, output: Output) -> None:
    after = options.after
    if after is None and options.lines is not None:
        head = stream.head()
        after = head._replace(line=max(0, head.line - options.lines))

    def show(event: RecordsEvent) -> None:
        for record in event.stream_records():
            _print(output, record)

    with stream.subscribe("start" if after is None else after) as events:
        follow(events, output, show)


def _append(options: Namespace, output: Output) -> int:
    if options.append == "-":
        records = encode_messages(json_batch(InputLines(stdin())))
    else:
        records = encode_messages(options.append.encode(errors="surrogateescape"))
    return change(
        options,
        output,
        lambda session, how: session.stream(options.stream).append(records, **how),
        lambda: [check_record(record) for record in records],
    )


def _delete(stream: BlockingStream, options: Namespace, output: Output) -> None:
    deleted = stream.delete(key=options.key, expect=options.expect)
    message = f"the stream {stream.name} is deleted and expires {moment(deleted.expires_at)}"
    document = contract.deleted(options.session, deleted)
    output.answer(document, str(deleted.trash), message=message)


def _print(output: Output, record: StreamRecord) -> None:
    """Print a record as it was appended, or as a document with its cursor."""
    output.json_line(contract.stream_record(record) if output.as_json else record.data + b"\n")

"""`steno append`: messages appended to a session."""

from argparse import Namespace

from steno import BlockingClient
from steno_cli.append.input_records import (
    InputRecords,
    control_of,
    is_array_of_records,
    line_key,
    looks_like_record,
    nothing_to_append,
)
from steno_cli.arguments import (
    argument,
    change_options,
    command,
    create_options,
    flag,
    optional_argument,
    role,
    session_argument,
    whole_number,
)
from steno_cli.changes import appending, change, print_places
from steno_cli.connection import linked
from steno_cli.exits import WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.stdin import is_typed, json_batch, stdin
from steno_protocol.errors import BadRequest
from steno_protocol.paths import check_key


@command(
    "append",
    "Appends TEXT as one message, or stdin: a text as one message, or records, one JSON object"
    " per line. Records are recognised by their form, as are the lines that `steno read` and"
    " `steno export` print: checkpoints, token counts and the system prompt among them are"
    " written by their own commands, with new ids: what `steno read` prints of a session makes"
    " a copy of it. Prints the position of each record once it is durable; on a"
    " terminal, of many records the last. Records are sent without waiting for the earlier ones"
    " and stored in order; nothing is stored after a line that fails, and --expect then holds"
    " for every line. Creates a missing session with a note; in a mount, only with --create."
    " --json also says that stdin holds records.",
    session_argument,
    optional_argument("text", str, "the content of one message; - for stdin"),
    argument(
        "--role", metavar="ROLE", type=role,
        help="role of a text, such as system, assistant or developer (default: user)",
    ),
    flag(
        "--text", dest="is_text",
        help="all of stdin is the content of one message, also if it looks like records",
    ),
    flag("--batch", help="append all of stdin as one atomic batch"),
    argument(
        "--from-line", metavar="N", type=whole_number,
        help="skip the lines of stdin before line N, to go on after a failure",
    ),
    create_options,
    change_options(key="a record on line N of stdin gets KEY-N unless --batch is given"),
    example="steno append demo 'What is in this folder?'\n"
    "steno append demo < turns.jsonl\n"
    "steno append demo --batch < turn.jsonl",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Append one message, or the records on stdin."""
    _check_append(options)
    text = options.text
    if text is None:
        lines = _input_lines(options)
        if _holds_records(options, output, lines):
            if options.batch:
                return _append_all_at_once(options, output, lines)
            return _append_stream(options, output, lines)
        text = _text_of(options, lines)
    message = {"role": options.role or "user", "content": text}
    return change(options, output, *appending(message), show=print_places)


def _input_lines(options: Namespace) -> InputRecords:
    """The lines of stdin; the same ones when the command runs again with the whole session id."""
    if not hasattr(options, "input_lines"):
        options.input_lines = InputRecords(stdin())
    lines: InputRecords = options.input_lines
    return lines


def _holds_records(options: Namespace, output: Output, lines: InputRecords) -> bool:
    """Whether stdin holds records, from the options or from its first line.

    Raises:
        WrongUsage: the options belong to the other form.
    """
    if options.is_text:
        return False
    if options.from_line is None and not _begins_with_record(options, output, lines):
        return False
    if options.role is not None:
        raise WrongUsage(
            "--role is for a text: a record on stdin has its own role, and --text appends stdin as"
            " a text"
        )
    if options.key is not None and not options.batch:
        _check_line_key(options.key)
    return True


def _begins_with_record(options: Namespace, output: Output, lines: InputRecords) -> bool:
    """Whether the first line is a record; an empty stdin counts as one without any.

    Raises:
        BadRequest: it looks like a record and is none.
    """
    if is_typed():
        output.say(
            "reading a text, or records, one JSON object a line, from the terminal; Ctrl-D ends"
            " the input"
        )
    first = lines.peek().lstrip()
    if not first or looks_like_record(first):
        return True
    if not (first.startswith(b"{") or output.as_json):
        return False
    raise BadRequest(
        "the first line of stdin is no record, which is one JSON object with a role on one line:"
        " --text appends all of stdin as one text",
        session=options.session,
    )


def _text_of(options: Namespace, lines: InputRecords) -> str:
    """All of stdin as one text, without the line ends at its end.

    Raises:
        BadRequest: it is empty, no UTF-8, or a text mixed with records.
        WrongUsage: an option is for records.
    """
    if options.batch or options.from_line is not None:
        option = "--batch" if options.batch else "--from-line"
        raise WrongUsage(
            f"{option} is for records, and stdin holds a text: leave it out",
            session=options.session,
        )
    if hasattr(options, "text_of_stdin"):
        # The command runs again with the whole session id.
        return str(options.text_of_stdin)
    data = lines.take_all()
    if not options.is_text:
        _check_unmixed(options, data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadRequest(
            "stdin is no text in UTF-8: convert it, with iconv for example", session=options.session
        ) from None
    if not text.strip():
        raise nothing_to_append(options)
    options.text_of_stdin = text.rstrip("\r\n")
    return str(options.text_of_stdin)


def _check_unmixed(options: Namespace, data: bytes) -> None:
    if is_array_of_records(data):
        raise BadRequest(
            "stdin is one JSON array of records: `jq -c '.[]'` makes a line of each; --text appends"
            " it as one text",
            session=options.session,
        )
    for number, line in enumerate(data.split(b"\n"), 1):
        if looks_like_record(line):
            raise BadRequest(
                f"line {number} of stdin is a record, and the lines before it are text, so nothing"
                " was appended: --text appends all of stdin as one text; records alone are appended"
                " one by one",
                session=options.session,
            )


def _append_all_at_once(options: Namespace, output: Output, lines: InputRecords) -> int:
    remedy = "leave --batch out, which appends line by line, or send several batches"
    batch = json_batch(lines, remedy)
    control = next(filter(None, map(control_of, batch)), None)
    if control is not None:
        raise BadRequest(
            f"stdin holds a record of the role {control.role!r}, which has a command of its own and"
            " is in no batch: leave --batch out, which appends line by line",
            session=options.session,
        )
    return change(options, output, *appending(batch), show=print_places)


def _append_stream(options: Namespace, output: Output, lines: InputRecords) -> int:
    """Append each line by itself, with requests in flight; nothing is stored after a failure."""
    # Imported here: a text, the usual call, is one change.
    from steno_cli.append.stdin_lines import AppendStream  # noqa: PLC0415

    link = linked(options)
    with BlockingClient(link) as client, Progress(output, "appending") as progress:
        stream = AppendStream(options, output, lines, progress)
        return stream.run(client, link)


def _check_append(options: Namespace) -> None:
    if options.text == "-":
        options.text = None
    if options.text is not None and options.is_text:
        raise WrongUsage("--text is for stdin, and TEXT is a text: leave one of them out")
    if options.is_text and (options.batch or options.from_line is not None):
        raise WrongUsage("--text makes one message of stdin: leave --batch and --from-line out")
    if options.text is not None and options.batch:
        raise WrongUsage("--batch is for records on stdin: leave TEXT out")
    if options.from_line is not None and (options.text is not None or options.batch):
        raise WrongUsage("--from-line is for records on stdin without --batch")


def _check_line_key(key: str) -> None:
    try:
        check_key(line_key(key, 1))
    except BadRequest:
        raise WrongUsage(
            "--key is too long to get the number of a line of stdin appended: choose a shorter one"
        ) from None

"""A session as the files of another agent, which goes on with it."""

import os
import shlex
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from steno import BlockingSession
from steno_agents.detection import FORMATS
from steno_agents.json_lines import lenient_object
from steno_agents.writers.programs import WRITERS
from steno_agents.writers.turns import Conversation, conversation
from steno_agents.writers.writer import Target, Writer
from steno_cli.configuration import redactor_of
from steno_cli.connection import connected
from steno_cli.destination import new_file, new_folder, print_result, put_new
from steno_cli.exits import Exit, WrongUsage
from steno_cli.records import report_damaged
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_present.wording import count
from steno_protocol.errors import BadRequest
from steno_redact.records import masked_record

_LOOKED_AT_RECORDS: Final = 100
"""Records of a transcript in which its directory is looked for; every program names it early."""


def export_for_program(options: Namespace, output: Output) -> int:
    """Write a session in the format of an agent, and print where or how to go on with it."""
    writer = WRITERS[options.format]
    _check(options, writer)
    redactor = redactor_of(options, is_on=options.redact)
    with connected(options, output=output) as client, Progress(output, "exporting") as progress:
        session = client.session(options.session)
        stat = session.stat()
        progress.expect(stat.bytes)
        records = session.records(until=stat.head)

        def messages() -> Iterator[dict[str, Any]]:
            for record in records:
                progress.add(len(record.raw))
                yield masked_record(redactor, record).record

        now_ms = int(time.time() * 1000)
        found = conversation(messages(), now_ms, takes_links=writer.takes_links)
        if not found.turns:
            raise BadRequest(
                f"{options.session} has no message that {writer.program} could go on with",
                session=options.session,
            )
        target = Target(uuid.uuid4(), _work_dir(options, session, output), stat.title, now_ms)
    files = writer.files(found.turns, target)
    if options.install:
        _install(options, output, writer, target, files)
    else:
        _write(options, output, writer, files)
    report_damaged(output, records.damaged)
    _print_changes(output, writer, found)
    return Exit.DONE


def _check(options: Namespace, writer: Writer) -> None:
    """Refuse options that do not go together.

    Raises:
        WrongUsage: they do not.
    """
    if options.install and options.output is not None:
        raise WrongUsage(
            f"--install puts the session where {writer.program} looks for it: leave -o out",
            session=options.session,
        )
    if writer.is_folder and options.output is None and not options.install:
        raise WrongUsage(
            f"--format {options.format} makes a folder: name it with -o, or give --install",
            session=options.session,
        )


def _work_dir(options: Namespace, session: BlockingSession, output: Output) -> str:
    """The directory in which the program goes on, without links, as programs name it.

    Raises:
        BadRequest: the user named one that does not exist.
    """
    if options.work_dir is not None:
        given = Path(options.work_dir)
        if not given.is_dir():
            raise BadRequest(f"{given} is no folder: name the directory of the project")
        return str(given.resolve())
    found = _directory_of(session)
    if found is not None and Path(found).is_dir():
        return str(Path(found).resolve())
    here = str(Path.cwd().resolve())
    if found is not None:
        output.say(f"it ran in {found}, which is not here: it goes on in {here}")
    return here


def _directory_of(session: BlockingSession) -> str | None:
    """The directory that the transcript of an imported session names."""
    readers = {each.stream: each for each in FORMATS}
    for info in session.streams():
        if info.name in readers:
            reader = readers[info.name]()
            lines = session.stream(info.name).records(until=info.head)
            for place, line in zip(range(_LOOKED_AT_RECORDS), lines, strict=False):
                record = lenient_object(line.data)
                if record is not None:
                    reader.scan(place, record)
                if reader.work_dir is not None:
                    return reader.work_dir
    return None


def _install(
    options: Namespace,
    output: Output,
    writer: Writer,
    target: Target,
    files: Mapping[str, bytes],
) -> None:
    """Put the session where its program looks, and print the command that goes on with it."""
    named = os.environ.get(writer.home.variable)
    home = Path(named).expanduser().absolute() if named else Path.home() / writer.home.default
    place = PurePath(writer.place(target))
    put_new(home, {place / inside: content for inside, content in files.items()})
    path = home / place
    steps = [["cd", target.work_dir], *writer.command(target, str(path))]
    command = " && ".join(map(shlex.join, steps))
    print_result(options, output, path, command)
    if not output.as_json:
        output.say(f"{path} is new")


def _write(options: Namespace, output: Output, writer: Writer, files: Mapping[str, bytes]) -> None:
    """Write the session to the path that the user named, or to stdout."""
    if options.output is None:
        output.raw(files[""])
        return
    path = Path(options.output)
    if writer.is_folder:
        with new_folder(path) as folder:
            put_new(folder, {PurePath(inside): each for inside, each in files.items()})
    else:
        with new_file(path) as file:
            file.write(files[""])
    print_result(options, output, path)


def _print_changes(output: Output, writer: Writer, found: Conversation) -> None:
    """Print how the session of the program differs from the one of steno."""
    if found.left_out:
        named = ", ".join(count(number, what) for what, number in sorted(found.left_out.items()))
        output.say(f"left out, because {writer.program} or its service takes none: {named}")
    if found.interrupted:
        calls = count(found.interrupted, "call")
        output.say(f"{calls} without a result got one that says that it was interrupted")
    if found.renamed:
        calls = count(found.renamed, "call")
        output.say(f"the tools of {calls} are renamed: services refuse signs such as a dot in them")

"""Changes of a session: how a command applies one, and creates a missing session for it."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from steno import BlockingClient, BlockingSession
from steno.parts import Message, encode_messages, opening
from steno.values import Ack, Checkpoint
from steno_cli.closing import close_calls, last_calls, say_open_calls
from steno_cli.connection import connected, local_root
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present import contract
from steno_protocol import paths
from steno_protocol.commands import List
from steno_protocol.errors import BadRequest, NotFound, Outcome, StenoError
from steno_protocol.positions import Position
from steno_protocol.records import check_message
from steno_protocol.replies import Sessions, SessionStat

_BEGINNING: Final = Position(0, 0)
"""The head of a new session."""

_CLOSE_MAX: Final = 3
"""Similar ids in a message; more of them would hide its text."""

Verb = Callable[[BlockingSession, dict[str, Any]], Ack]
"""A verb of a session, called with the options that all verbs have."""

Check = Callable[[], object]
"""Raises the error with which any session refuses the change, so that none is created for it."""


Show = Callable[[Namespace, Output, Ack], None]
"""Prints an acknowledgement."""


def no_check() -> None:
    """The check of a change that every session accepts."""


def appending(messages: Message | Sequence[Message]) -> tuple[Verb, Check]:
    """The change that appends messages as one batch, and its check."""
    records = encode_messages(messages)
    return (
        lambda session, how: session.append_message(records, **how),
        lambda: [check_message(record) for record in records],
    )


def print_ack(options: Namespace, output: Output, ack: Ack) -> None:
    """Print an acknowledgement: the new head, or the id of a checkpoint."""
    if output.as_json:
        output.document(contract.ack(options.session, ack))
        return
    is_checkpoint = options.command == "checkpoint"
    output.write(str(ack.checkpoint_id if is_checkpoint else ack.head))
    if isinstance(ack, Checkpoint) and ack.incarnation:
        output.say(f"its handle {ack.handle} names this checkpoint, also where ids are used again")
    say_kept(options, output, ack)


def print_places(options: Namespace, output: Output, ack: Ack) -> None:
    """Print the position of each record of an append, as `steno show` does."""
    if output.as_json:
        output.document(contract.ack(options.session, ack))
        return
    generation, last = ack.last
    if ack.rotated is not None:
        # The positions of a rewrite are its head, and a new system prompt is the first line.
        output.write(str(Position(generation, 0)))
    else:
        for line in range(ack.first.line, last + 1):
            output.write(str(Position(generation, line)))
    say_kept(options, output, ack)


def change(
    options: Namespace,
    output: Output,
    verb: Verb,
    check: Check = no_check,
    show: Show = print_ack,
) -> int:
    """Apply one change and print its acknowledgement."""
    with connected(options) as client:
        ack = apply(client, options, output, verb, check, options.key)
    show(options, output, ack)
    return Exit.DONE


def apply(
    client: BlockingClient,
    options: Namespace,
    output: Output,
    verb: Verb,
    check: Check,
    key: str | None,
) -> Ack:
    """Apply a change; creates the session if only that is missing and the options allow it."""
    how = {"key": key, "expect": options.expect, "durability": options.durability}
    session = client.session(options.session)
    may_create = not getattr(options, "no_create", True) and options.expect in (None, _BEGINNING)
    # The session is created only if it is missing: an existing session costs one round trip.
    if not (may_create and _is_absent(client, options.session)):
        try:
            return verb(session, how)
        except NotFound as error:
            if not may_create:
                raise
            _check_creation(client, options, error)
    # A refused change must not leave an empty session behind.
    check()
    _check_short_id(client, options)
    is_new = _create(client, options, output)
    try:
        return verb(session, how)
    except StenoError as error:
        if is_new and error.outcome == Outcome.NOT_APPLIED:
            # It is not removed here: another client may have written to it by now.
            output.say(
                f"the session {session.id} was created and stays empty: `steno delete {session.id}`"
                " removes it"
            )
        raise


def _is_absent(client: BlockingClient, session: str) -> bool:
    """Whether a session of a root on this machine certainly has no folder.

    The daemon counts a change of a missing session as an error, and a first append is none.
    """
    root = local_root(client)
    with suppress(BadRequest):
        mount, names = paths.split_session(session)
        if root is not None and mount is None:
            folder = root.joinpath(paths.SESSIONS, *names)
            # A session of kimi-cli's old format is one file beside the place of the folder.
            return not folder.exists() and not folder.with_name(f"{folder.name}.jsonl").exists()
    return False


def say_kept(options: Namespace, output: Output, ack: Ack) -> None:
    """Print where a rewrite kept the old file, and whether the given key was used before."""
    if ack.rotated is not None:
        output.say(f"the previous content is kept in {ack.rotated}")
    # The client repeats a request under a key of its own after a lost connection.
    if ack.duplicate and options.key is not None:
        output.say(f"the key {ack.key} was applied before; this is its first answer")


def _check_creation(client: BlockingClient, options: Namespace, missing: NotFound) -> None:
    """Refuse to create a session in a mount unless --create is given.

    A mount belongs to another program, and a prefix of an id there means one of its sessions.

    Raises:
        NotFound: the session would be in a mount; the message names similar ids.
    """
    mount, colon, _ = options.session.partition(":")
    if not colon or options.create:
        return
    close = _meant(*_close_ids(client, options.session))
    raise NotFound(
        f"there is no session {options.session}, and `steno {options.command}` creates none in the"
        f" mount {mount} without --create{close}",
        session=options.session,
    ) from missing


def _check_short_id(client: BlockingClient, options: Namespace) -> None:
    """Create no session under the short id of another one; the command then runs with its whole id.

    Raises:
        NotFound: `steno sessions` shows another session with this id.
    """
    if options.create:
        return
    # Imported here: most changes find their session.
    from steno_cli.session_ids import session_with_short_id  # noqa: PLC0415

    whole = session_with_short_id(client, options.session)
    if whole is not None:
        raise NotFound(
            f"there is no session {options.session}, and `steno sessions` shows {whole} in this"
            " form: --create creates a session with the short id",
            session=options.session,
        )


def _create(client: BlockingClient, options: Namespace, output: Output) -> bool:
    """Create the session and print a note with similar ids; returns whether it was missing."""
    session = options.session
    close = "" if options.create else _meant(*_close_ids(client, session))
    # The reply says whether the session was created: in a cluster another host may have it.
    request = opening(session, client.name, None, create=True, exclusive=False, stamp=True)
    found, _ = client.request(request, SessionStat)
    if found.created and not options.create:
        undo = f" Then `steno delete {session}` removes it." if close.endswith("?") else ""
        output.say(f"the session {session} was created: there was none{close}{undo}")
    return bool(found.created)


def _meant(begins: list[str], spelt: list[str]) -> str:
    """The end of a sentence that names similar ids."""
    if spelt:
        return f"; did you mean {' or '.join(spelt)}?"
    return f"; {', '.join(begins)} begin{'s' if len(begins) == 1 else ''} with it" if begins else ""


def _close_ids(client: BlockingClient, session: str) -> tuple[list[str], list[str]]:
    """The ids that begin with this one, and those with a similar spelling."""
    # Imported here: most changes find their session.
    from steno_cli.session_ids import without_subsessions  # noqa: PLC0415

    mount, colon, name = session.rpartition(":")
    request = List(prefix=f"{mount}{colon}{name[:1]}")
    ids = [entry.session for entry in client.request(request, Sessions)[0].sessions]
    # Imported here: most changed sessions exist.
    from steno_protocol.spelling import close_spellings  # noqa: PLC0415

    begins = without_subsessions(each for each in ids if each.startswith(session))
    return begins[:_CLOSE_MAX], close_spellings(session, ids, _CLOSE_MAX)


def print_fork(output: Output, fork: BlockingSession, *, close: bool = False) -> int:
    """Print a new session that was forked from another one.

    Args:
        output: of the command.
        fork: the new session.
        close: append a result to each call that has none; otherwise they are named.
    """
    if close:
        close_calls(fork)
    stat = fork.stat()
    message = f"{stat.session} is a fork of {stat.forked_from} and ends at {stat.head}"
    code = output.answer(contract.document(stat), stat.session, message=message)
    if not output.as_json:
        say_open_calls(output, stat.session, last_calls(fork))
    return code

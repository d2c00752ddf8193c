"""The commands that keep sessions in order: ids, titles, labels, the archive and the trash."""

import re
from argparse import Namespace
from typing import Final

from steno import BlockingClient
from steno.parts import opening
from steno_cli.arguments import (
    argument,
    command,
    default,
    flag,
    key_option,
    no_create_option,
    optional_argument,
    path_text,
    session_argument,
    title_text,
)
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.session_ids import meant
from steno_cli.stdin import is_typed, stdin
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, moment
from steno_protocol.errors import NotFound
from steno_protocol.replies import SessionStat

_LABEL: Final = r"[^\x00-\x1f\x7f-\x9f,]{1,64}"
"""The pattern of a valid label."""


@command(
    "open", "Crash recovery runs now instead of at the first append. Prints the head.",
    argument("session", metavar="SESSION", help="the full session id"),
    default(by_prefix=False, makes_root=True),
    no_create_option, flag("--exclusive", help="fail if the session already exists"),
    flag(
        "--no-stamp",
        help="for a new session: store records byte for byte, without _id and _by; retries are then"
        " recognised only while the daemon runs",
    ),
    key_option(),
    example="steno open team/planner-1 --exclusive",
)  # fmt: skip
def open_session(options: Namespace, output: Output) -> int:
    """Open a session, and print its head."""
    with connected(options) as client:
        # `client.open` does not return the reply, which says whether the session was created.
        request = opening(
            options.session,
            client.name,
            options.key,
            create=not options.no_create,
            exclusive=options.exclusive,
            stamp=not options.no_stamp,
        )
        found, _ = client.request(request, SessionStat)
    did = "was created" if found.created else "exists"
    message = f"{found.session} {did}, in {found.folder}"
    return output.answer(contract.document(found), found.head, message=message)


@command(
    "title", "An empty TEXT removes the title.",
    session_argument,
    optional_argument("text", title_text, "the title, one line (default: show the current one)"),
    default(changes="text"),
    example="steno title demo 'What is in this folder?'",
)  # fmt: skip
def title(options: Namespace, output: Output) -> int:
    """Set a session's title, or print the present one."""
    with connected(options) as client:
        if options.text is not None:
            stat = client.session(options.session).describe(title=options.text)
            return output.answer(contract.description(stat))
        stat = client.stat(options.session)
    if not stat.title:
        message = f"the session {stat.session} has no title: give one as TEXT"
        return output.answer(contract.description(stat), message=message)
    return output.answer(contract.description(stat), printable(stat.title, one_line=True))


@command(
    "label",
    "+LABEL adds a label, -LABEL removes one, and plain labels replace all. Prints the"
    " resulting labels.",
    session_argument,
    argument(
        # Without a default, argparse requires the argument.
        "labels", metavar="LABEL", nargs="*", default=[],
        help="a label, optionally with + or - before it",
    ),
    flag("--none", help="remove all labels"),
    default(changes=True, dashed="labels"),
    example="steno label demo +review -draft\nsteno label demo red green",
    # With `-h`, argparse would take a removed label that begins with h for an option.
    short_help=False,
)  # fmt: skip
def label(options: Namespace, output: Output) -> int:
    """Change the labels of a session, and print the resulting ones."""
    _check_labels(options)
    with connected(options) as client:
        stat = client.stat(options.session)
        wanted = _wanted(stat.labels, options.labels, none=options.none)
        if wanted != stat.labels:
            stat = client.session(options.session).describe(labels=wanted)
    shown = (printable(each, one_line=True) for each in stat.labels)
    message = "" if stat.labels else f"the session {stat.session} has no labels"
    return output.answer(contract.description(stat), *shown, message=message)


def _check_labels(options: Namespace) -> None:
    signed = [each for each in options.labels if each[:1] in {"+", "-"}]
    if signed and len(signed) != len(options.labels):
        raise WrongUsage(
            "plain labels replace all labels, +LABEL and -LABEL change single ones: give either"
            " kind",
            session=options.session,
        )
    for label in [each.removeprefix("+") for each in options.labels if each[:1] != "-"]:
        if re.fullmatch(_LABEL, label) is None:
            raise WrongUsage(
                f"{label[:80]!r} is not a label: use 1 to 64 characters, none of them a comma or a"
                " control character",
                session=options.session,
            )
    if options.none and options.labels:
        raise WrongUsage("--none removes all labels: leave LABEL out", session=options.session)


def _wanted(present: tuple[str, ...], words: list[str], *, none: bool) -> tuple[str, ...]:
    """The new labels of a session, in order and without duplicates."""
    if none:
        return ()
    if not words:
        return present
    if words[0][:1] not in {"+", "-"}:
        return tuple(dict.fromkeys(words))
    gone = {word[1:] for word in words if word[0] == "-"}
    added = [word[1:] for word in words if word[0] == "+"]
    return tuple(dict.fromkeys(each for each in (*present, *added) if each not in gone))


@command(
    "archive", "The session can still be read and written by its id.",
    session_argument, default(changes=True),
    example="steno archive demo",
)  # fmt: skip
def archive(options: Namespace, output: Output) -> int:
    """Hide a session from lists."""
    with connected(options) as client:
        stat = client.session(options.session).describe(archived=True)
    message = f"{stat.session} is archived: `steno sessions --archived` lists it"
    return output.answer(contract.description(stat), message=message)


@command("unarchive", "", session_argument, default(changes=True), example="steno unarchive demo")
def unarchive(options: Namespace, output: Output) -> int:
    """List an archived session again."""
    with connected(options) as client:
        stat = client.session(options.session).describe(archived=False)
    return output.answer(contract.description(stat), message=f"{stat.session} is listed again")


@command(
    "rename",
    "Also renames the sessions below it. The new id is in the same root or mount. Followers of"
    " the old id end, and the old id is free. A unique prefix of SESSION is enough unless --key"
    " is given. Prints the new id.",
    session_argument, argument("new", metavar="NEW-ID", help="the new id of the session"),
    key_option(),
    example="steno rename demo team/demo",
)  # fmt: skip
def rename(options: Namespace, output: Output) -> int:
    """Give a session another id."""
    with connected(options) as client:
        moved = client.rename(options.session, options.new, key=options.key)
    message = f"{options.session} is now {moved.session}"
    return output.answer(contract.document(moved), moved.session, message=message)


@command(
    "delete",
    "Also deletes the sessions below it. A unique prefix is enough unless --key is given. Asks"
    " for confirmation on a terminal. Prints the trash folder and its time of expiry.",
    session_argument, flag("--yes", help="do not ask for confirmation"), key_option(),
    example="steno delete demo --yes",
)  # fmt: skip
def delete(options: Namespace, output: Output) -> int:
    """Move a session to the trash, after a confirmation on a terminal."""
    with connected(options) as client:
        if not options.yes and is_typed() and not _is_sure(client, options, output):
            output.say(f"{options.session} stays")
            return Exit.FAILED
        deleted = client.delete(options.session, key=options.key)
    return output.answer(
        contract.deleted(options.session, deleted),
        str(deleted.trash),
        message=f"{options.session} is in the trash and expires {moment(deleted.expires_at)}:"
        f" `steno undelete {options.session}` restores it",
    )


def _is_sure(client: BlockingClient, options: Namespace, output: Output) -> bool:
    stat = client.stat(options.session)
    named = f"{stat.session} ({stat.title})" if stat.title else stat.session
    below = len(client.sessions(f"{options.session}/"))
    more = f" and {count(below, 'session')} below it" if below else ""
    output.ask(f"move {named}{more} to the trash? [y/N] ")
    return stdin().readline().strip().lower() in {"y", "yes"}


@command(
    "undelete",
    "Also restores the sessions that were deleted with it. `steno sessions --trash` lists the"
    " deleted sessions; its short ids are enough unless --key is given. Prints the id.",
    argument("session", metavar="SESSION", help="the id of a deleted session or a unique prefix"),
    argument(
        "--trash", metavar="FOLDER", type=path_text,
        help="its folder in the trash (default: that of the latest deletion)",
    ),
    key_option(),
    example="steno undelete demo",
)  # fmt: skip
def undelete(options: Namespace, output: Output) -> int:
    """Restore a session from the trash."""
    with connected(options) as client:
        session = options.session if options.key else _full_id(client, options.session)
        moved = client.undelete(session, trash=options.trash, key=options.key)
    message = f"{moved.session} is restored: `steno show {moved.session}` shows it"
    return output.answer(contract.document(moved), moved.session, message=message)


def _full_id(client: BlockingClient, text: str) -> str:
    """The only deleted session that a text means; the text itself if it is an id or means none.

    Raises:
        NotFound: the text means several.
    """
    ids = sorted({entry.session for entry in client.trash()})
    found = meant(text, ids)
    if len(found) > 1:
        raise NotFound(
            f"several deleted sessions have an id that begins with {text}: {', '.join(found[:5])};"
            " give more of it",
            session=text,
        )
    return found[0] if found else text

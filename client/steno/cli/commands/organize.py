"""The subcommands that keep sessions in order: title, label, archive, unarchive, delete."""

import re
from argparse import Namespace
from typing import Final

from steno._sync.client import BlockingClient
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.wording import count, moment
from steno.cli.stdin import is_typed, stdin
from steno_protocol.replies import SessionStat

_LABEL: Final = r"[^\x00-\x1f\x7f-\x9f,]{1,64}"
"""What a label can be."""


def title(options: Namespace, output: Output) -> int:
    """Set a session's title, or print the present one."""
    with connected(options) as client:
        if options.text is None:
            stat = client.stat(options.session)
        else:
            stat = client.session(options.session).describe(title=options.text)
    if output.as_json:
        output.document(contract.description(stat))
    elif options.text is None and not stat.title:
        output.say(f"the session {stat.session} has no title: give one as TEXT")
    elif options.text is None:
        output.write(printable(stat.title, one_line=True))
    return Exit.DONE


def label(options: Namespace, output: Output) -> int:
    """Change a session's labels, and print those that it has then."""
    _check_labels(options)
    with connected(options) as client:
        stat = client.stat(options.session)
        wanted = _wanted(stat.labels, options.labels, none=options.none)
        if wanted != stat.labels:
            stat = client.session(options.session).describe(labels=wanted)
    if output.as_json:
        output.document(contract.description(stat))
        return Exit.DONE
    for each in stat.labels:
        output.write(printable(each, one_line=True))
    if not stat.labels:
        output.say(f"the session {stat.session} has no labels")
    return Exit.DONE


def archive(options: Namespace, output: Output) -> int:
    """Leave a session out of lists."""
    return _set_archived(options, output, archived=True)


def unarchive(options: Namespace, output: Output) -> int:
    """List a session again."""
    return _set_archived(options, output, archived=False)


def delete(options: Namespace, output: Output) -> int:
    """Move a session to the trash, after a confirmation on a terminal."""
    with connected(options) as client:
        if not options.yes and is_typed() and not _is_sure(client, options, output):
            output.say(f"{options.session} stays")
            return Exit.FAILED
        deleted = client.delete(options.session, key=options.key)
    if output.as_json:
        output.document(contract.deleted(options.session, deleted))
        return Exit.DONE
    output.write(str(deleted.trash))
    output.say(f"{options.session} is in the trash and expires {moment(deleted.expires_at)}")
    return Exit.DONE


def _set_archived(options: Namespace, output: Output, *, archived: bool) -> int:
    with connected(options) as client:
        stat = client.session(options.session).describe(archived=archived)
    if output.as_json:
        output.document(contract.description(stat))
    elif archived:
        output.say(f"{stat.session} is archived: `steno sessions --archived` lists it")
    else:
        output.say(f"{stat.session} is listed again")
    return Exit.DONE


def _check_labels(options: Namespace) -> None:
    signed = [each for each in options.labels if each[:1] in {"+", "-"}]
    if signed and len(signed) != len(options.labels):
        raise WrongUsage(
            "plain labels replace all there are, and +LABEL and -LABEL change some: give the one"
            " or the other",
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
        raise WrongUsage("--none takes all labels away: leave LABEL out", session=options.session)


def _wanted(present: tuple[str, ...], words: list[str], *, none: bool) -> tuple[str, ...]:
    """The labels that a session is to have, in order and each once."""
    if none:
        return ()
    if not words:
        return present
    if words[0][:1] not in {"+", "-"}:
        return tuple(dict.fromkeys(words))
    gone = {word[1:] for word in words if word[0] == "-"}
    added = [word[1:] for word in words if word[0] == "+"]
    return tuple(dict.fromkeys(each for each in (*present, *added) if each not in gone))


def _is_sure(client: BlockingClient, options: Namespace, output: Output) -> bool:
    stat = client.stat(options.session)
    below = len(client.sessions(f"{options.session}/"))
    more = f" and {count(below, 'session')} below it" if below else ""
    output.ask(f"move {_named(stat)}{more} to the trash? [y/N] ")
    return stdin().readline().strip().lower() in {"y", "yes"}


def _named(stat: SessionStat) -> str:
    return f"{stat.session} ({stat.title})" if stat.title else stat.session

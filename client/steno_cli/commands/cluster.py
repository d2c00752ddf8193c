"""`steno cluster`: sessions that several hosts share."""

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from steno import BlockingClient
from steno.local import make_private
from steno_cli.arguments import (
    action,
    argument,
    between,
    command_with_actions,
    default,
    flag,
    keep_option,
    number_from,
    one_of,
    path_text,
    prefix_argument,
    session_argument,
)
from steno_cli.cluster.report import report_lines
from steno_cli.cluster.server_files import Plan, files_of
from steno_cli.command_limits import JOINS_AHEAD_MAX, TRY_AGENTS_MAX, TRY_TURNS_MAX
from steno_cli.connection import answers, connected, linked
from steno_cli.daemon_control import stop_daemon, write_request
from steno_cli.destination import new_file
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.repair.checking import patient
from steno_present import contract
from steno_present.wording import count, duration, number
from steno_protocol.commands import Join, Streams
from steno_protocol.errors import BadRequest, NotFound, StenoError, StorageFailed, Unreachable
from steno_protocol.limits import JOIN_SESSIONS_MAX
from steno_protocol.replies import (
    ClusterHost,
    ClusterReport,
    ClusterSession,
    Joined,
    SessionEntry,
    StreamList,
)

_NOT_REPLICATED: Final = "the daemon did not replicate it"

_SHOWN: Final = 20
"""Sessions that `status` shows by itself: each one costs the servers a look."""


command_with_actions(
    "cluster",
    "The daemons of a cluster replicate each record to NATS JetStream servers, and one takes"
    " over the sessions of another that died. `steno cluster try` shows it on this machine.",
    example="steno cluster try\nsteno cluster config --nodes 3\nsteno cluster status",
)


@action(
    "cluster status", "show hosts, servers, and the owners of sessions",
    "It asks the daemon of this host, and starts none.",
    argument(
        "-n", dest="count", metavar="N", type=number_from(0), default=_SHOWN,
        help=f"the first N sessions (default: {_SHOWN})",
    ),
    prefix_argument("only sessions whose id begins with this"),
    example="steno cluster status -n 5",
)  # fmt: skip
def status(options: Namespace, output: Output) -> int:
    """Print the cluster as the daemon sees it."""
    with connected(options, spawn=False) as client, Progress(output, "asking the servers"):
        report = _report(client, options.prefix or "", options.count)
    lines = report_lines(output, report, time.time())
    return output.answer(contract.document(report), *lines)


def _report(client: BlockingClient, prefix: str, limit: int | None) -> ClusterReport:
    """The report of a daemon that is in a cluster.

    Raises:
        BadRequest: it is in none.
    """
    report = client.cluster(prefix, limit=limit)
    if not report.cluster:
        raise BadRequest(
            f"the daemon of {client.welcome.root} is in no cluster: add the table [replication] to"
            " config.toml there, and restart it (`steno cluster config` prints one)"
        )
    return report


@action(
    "cluster move", "give a session to another host",
    "Its clients follow it there by themselves.",
    session_argument,
    argument(
        "host", metavar="HOST", help="the endpoint or identity of a host, or a unique beginning"
    ),
    default(changes=True),
    example="steno cluster move demo tcp://10.0.0.6:7117",
)  # fmt: skip
def move(options: Namespace, output: Output) -> int:
    """Give a session to another host, and wait until that one owns it."""
    with connected(options) as client:
        report = _report(client, "", 0)
        host = host_meant(report, options.host)
        before = _owner(client, options.session)
        started = time.monotonic()
        is_there = before is not None and before.host == host.host
        if not is_there:
            client.hand_over(options.session, host.host)
        took_s = time.monotonic() - started
    left = None if before is None else before.endpoint
    message = f"{host.endpoint} owns {options.session} already"
    if not is_there:
        where = f" from {left}" if left else ""
        message = f"{options.session} moved{where} to {host.endpoint} in {duration(took_s)}"
    document = {
        "session": options.session, "moved": not is_there, "from": left,
        "to": host.endpoint, "host": host.host, "took_s": round(took_s, 3),
    }  # fmt: skip
    return output.answer(document, message=message)


def host_meant(report: ClusterReport, word: str) -> ClusterHost:
    """Return the living host of a cluster that a word means.

    Args:
        report: the report of a daemon of the cluster.
        word: the endpoint or the identity of a host, or a unique beginning of one.

    Raises:
        NotFound: no host is meant, or several are.
        Unreachable: the host is not alive.
    """
    exact = [each for each in report.hosts if word in {each.endpoint, each.host}]
    found = exact or [
        each
        for each in report.hosts
        if each.endpoint.startswith(word) or each.host.startswith(word)
    ]
    if not found:
        raise NotFound(
            f"no host of the cluster {report.cluster} is {word!r}: {_choices(report.hosts)}"
        )
    if len(found) > 1:
        raise NotFound(f"several hosts begin with {word!r}: {_choices(found)}")
    host = found[0]
    if not host.alive:
        raise Unreachable(
            f"the host {host.endpoint} was last heard {host.heard_s:.0f} s ago, so that it can take"
            " no session: start its daemon, or name another host"
        )
    return host


def _choices(hosts: Sequence[ClusterHost]) -> str:
    return "choose from " + ", ".join(f"{each.endpoint} ({each.host})" for each in hosts)


def _owner(client: BlockingClient, session: str) -> ClusterSession | None:
    """The owner of a session; None if the journal does not have the session.

    Raises:
        NotFound: there is no such session.
    """
    found = client.cluster(session, limit=1).sessions
    if found and found[0].session == session:
        return found[0]
    client.stat(session)
    return None


@action(
    "cluster config", "print configuration files for servers and hosts",
    "Without --address, the servers are for this machine alone.",
    argument(
        "--cluster", metavar="TEXT", default="steno", help="the cluster's name (default: steno)"
    ),
    argument("--nodes", metavar="N", type=between(1, 5), help="1, 3 or 5 servers (default: 3)"),
    argument(
        "--address", metavar="HOST", nargs="+", default=[], help="the address of each server"
    ),
    argument(
        "--host", metavar="HOST", nargs="+", default=[], help="the address of each daemon's host"
    ),
    argument(
        "--store", metavar="DIR", type=path_text, default="/var/lib/nats",
        help="the folder of the servers' data (default: /var/lib/nats)",
    ),
    argument(
        "--folder", metavar="DIR", type=path_text, help="write the files there; none is overwritten"
    ),
    example="steno cluster config --address 10.0.0.1 10.0.0.2 10.0.0.3 --host 10.0.0.5",
)  # fmt: skip
def config(options: Namespace, output: Output) -> int:
    """Print or write the files of the servers and hosts."""
    nodes = options.nodes or len(options.address) or 3
    if options.address and len(options.address) != nodes:
        raise WrongUsage(
            f"--nodes is {nodes}, and --address names {count(len(options.address), 'server')}:"
            " leave --nodes out"
        )
    files = files_of(
        Plan(options.cluster, nodes, tuple(options.address), tuple(options.host), options.store)
    )
    document = {"files": files, "folder": options.folder}
    if options.folder is None:
        heads = {name: output.style(f"# --- {name}", "bold") for name in files}
        return output.answer(document, *(f"{heads[name]}\n{files[name]}" for name in files))
    folder = Path(options.folder)
    make_private(folder)
    for name, text in files.items():
        with new_file(folder / name) as file:
            file.write(text.encode())
    return output.answer(document, *(str(folder / name) for name in files))


class _Comparison(NamedTuple):
    """The sessions of this root, compared with those of its cluster.

    Attributes:
        there: those that the cluster has.
        missing: those that it does not have.
        troubles: those that it has and that an operator has to look at, each with the reason.
    """

    there: list[str]
    missing: list[str]
    troubles: dict[str, str]


@action(
    "cluster join", "bring the sessions of this root into its cluster",
    "For a root that was used before it had a cluster. It may be repeated: sessions that the"
    " cluster has are left alone, and one with the id of another host's session is named."
    " Mounts stay on this machine.",
    prefix_argument("only sessions whose id begins with this"),
    one_of(
        flag(
            "--create",
            help="restart the daemon, and let it create the cluster's streams: on one host, once",
        ),
        flag(
            "--again",
            help="restart the daemon, and let it use streams that were made again or restored",
        ),
    ),
    default(changes=True),
    example="steno cluster join",
)  # fmt: skip
def join(options: Namespace, output: Output) -> int:
    """Use each session that the journal lacks, or may have an old copy of, which ships it."""
    prefix = options.prefix or ""
    if options.create or options.again:
        root = stop_daemon(options).root
        write_request(root, "create" if options.create else "again")
        options.root, options.socket, options.endpoint = str(root), None, None
    # Those that are large come side by side.
    link = linked(patient(options))
    with BlockingClient(link) as client:
        with Progress(output, "comparing sessions"):
            _report(client, "", 0)
            before = _comparison(client, prefix)
        left: list[str] = []
        with Progress(output, "joining") as progress:
            for number, _ in enumerate(progress.over(before.missing)):
                if number % JOIN_SESSIONS_MAX == 0:
                    part = before.missing[number : number + JOIN_SESSIONS_MAX]
                    left += _joined_together(client, part)
        # Of a session in a stream that lost messages, this root may have the newest files.
        used = [*left, *before.troubles, *(before.there if options.again else ())]
        failed: dict[str, str] = {}
        # Of all that makes the daemon own a session, the list of its streams reads the least.
        asked = (Streams(session=session) for session in used)
        joining = answers(link, asked, StreamList, JOINS_AHEAD_MAX)
        with Progress(output, "joining, one by one") as progress:
            for session in progress.over(used):
                found = next(joining)
                if isinstance(found, StenoError):
                    failed[session] = found.message
                elif found.stale:
                    # It could not be owned, and the files of this disk were read as they are.
                    failed[session] = _NOT_REPLICATED
        with Progress(output, "comparing sessions"):
            # What was kept beside a session that differed is new.
            after = _comparison(client, prefix) if before.missing or used else before
    joined = [session for session in before.missing if session in after.there]
    silent = dict.fromkeys(after.missing, _NOT_REPLICATED)
    still_failed = {each: why for each, why in failed.items() if each in {*silent, *before.there}}
    left_out = {**silent, **still_failed}
    _print_joined(output, joined, len(before.there), left_out, after.troubles)
    left_out |= after.troubles
    return Exit.FAILED if left_out else Exit.DONE


def _joined_together(client: BlockingClient, sessions: list[str]) -> list[str]:
    """Bring sessions that the cluster lacks into it; returns those that need more than that."""
    try:
        return client.request(Join(sessions=tuple(sessions)), Joined)[0].left
    except StenoError:
        # Each by itself gets its own reason.
        return sessions


def _comparison(client: BlockingClient, prefix: str) -> _Comparison:
    """Compare the sessions of this root with those of the cluster.

    Raises:
        StorageFailed: the cluster's sessions could not be listed.
    """
    report = client.cluster(prefix, limit=None)
    if report.trouble:
        raise StorageFailed(
            f"the sessions of the cluster could not be listed: {report.trouble}; see `steno cluster"
            " status`, and join again"
        )
    known = {each.session: each.trouble for each in report.sessions}
    here = [each.session for each in client.sessions(prefix) if _is_here(each)]
    return _Comparison(
        there=[session for session in here if known.get(session) == ""],
        missing=[session for session in here if session not in known],
        troubles={session: known[session] for session in here if known.get(session)},
    )


def _is_here(entry: SessionEntry) -> bool:
    """Whether this root has files of a session that can be replicated."""
    # A session with a colon is one of a mount, which is not replicated.
    is_mount = ":" in entry.session
    return not is_mount and (entry.owner is None or entry.bytes > 0 or entry.generations > 0)


def _print_joined(
    output: Output,
    joined: list[str],
    there: int,
    left_out: dict[str, str],
    troubles: dict[str, str],
) -> None:
    if not output.as_json:
        for session, text in sorted(left_out.items()):
            output.say(f"{session} did not join: {text}")
        for session, text in sorted(troubles.items()):
            output.say(f"{session} is in trouble: {text}")
    why = sorted({**left_out, **troubles}.items())
    left = [{"session": session, "why": text} for session, text in why]
    output.answer(
        {"joined": joined, "there": there, "left_out": left},
        message=f"{count(len(joined), 'session')} joined, {number(there)} were there already",
    )


@action(
    "cluster try", "prove a takeover with servers and daemons on this machine",
    "Three servers and two daemons run in a temporary folder. Several processes write one"
    " session, its owner is killed, and the other daemon takes over. The command then proves"
    " from the file that every acknowledged record is there exactly once and in order.",
    argument(
        "--agents", metavar="N", type=between(1, TRY_AGENTS_MAX), default=4,
        help="number of processes (default: 4)",
    ),
    argument(
        "--turns", metavar="N", type=between(10, TRY_TURNS_MAX), default=100,
        help="turns of each process (default: 100)",
    ),
    keep_option,
    example="steno cluster try --agents 8",
)  # fmt: skip
def try_takeover(options: Namespace, output: Output) -> int:
    """Play a takeover, and prove it."""
    # Imported here: the other actions need no event loop and no servers.
    from steno_cli.cluster.trial import run_trial  # noqa: PLC0415

    return run_trial(options.agents, options.turns, output, keep=options.keep)

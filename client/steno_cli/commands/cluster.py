"""`steno cluster`: sessions that several hosts share."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Final, NamedTuple

from steno import BlockingClient
from steno.local import make_private
from steno_cli.arguments import (
    Subcommands,
    action,
    actions,
    between,
    command,
    keep_option,
    number_from,
    optional_argument,
    path_text,
    session_argument,
)
from steno_cli.cluster.hosts import host_meant
from steno_cli.cluster.join_request import write_request
from steno_cli.cluster.report import report_lines
from steno_cli.cluster.server_files import Plan, files_of
from steno_cli.command_limits import JOINS_AHEAD_MAX, TRY_AGENTS_MAX, TRY_TURNS_MAX
from steno_cli.connection import answers, connected, linked
from steno_cli.daemon_control import stop_daemon
from steno_cli.destination import new_file
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.repair.checking import patient
from steno_present import contract
from steno_present.wording import count, duration, number
from steno_protocol.commands import Stat
from steno_protocol.errors import BadRequest, StenoError, StorageFailed
from steno_protocol.replies import ClusterReport, ClusterSession, SessionEntry, SessionStat

_SHOWN: Final = 20
"""Sessions that `status` shows by itself: each one costs the servers a look."""


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "cluster", None,
        "The daemons of a cluster replicate each record to NATS JetStream servers, and one takes"
        " over the sessions of another that died. `steno cluster try` shows it on this machine.",
        example="steno cluster try\nsteno cluster config --nodes 3\nsteno cluster status",
    )  # fmt: skip
    under = actions(parser)
    _add_status(under)
    _add_move(under)
    _add_config(under)
    _add_join(under)
    _add_try(under)


def _add_status(under: Subcommands) -> None:
    parser = action(
        under, "status", _status, "show hosts, servers, and the owners of sessions",
        "It asks the daemon of this host, and starts none.",
        example="steno cluster status -n 5",
    )  # fmt: skip
    parser.add_argument(
        "-n", dest="count", metavar="N", type=number_from(0), default=_SHOWN,
        help=f"the first N sessions (default: {_SHOWN})",
    )  # fmt: skip
    optional_argument(parser, "prefix", str, "only sessions whose id begins with this")


def _add_move(under: Subcommands) -> None:
    parser = action(
        under, "move", _move, "give a session to another host",
        "Its clients follow it there by themselves.",
        example="steno cluster move demo tcp://10.0.0.6:7117",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "host", metavar="HOST", help="the endpoint or identity of a host, or a unique beginning"
    )
    parser.set_defaults(changes=True)


def _add_config(under: Subcommands) -> None:
    parser = action(
        under, "config", _config, "print configuration files for servers and hosts",
        "Without --address, the servers are for this machine alone.",
        example="steno cluster config --address 10.0.0.1 10.0.0.2 10.0.0.3 --host 10.0.0.5",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", metavar="TEXT", default="steno", help="the cluster's name (default: steno)"
    )
    parser.add_argument(
        "--nodes", metavar="N", type=between(1, 5), help="1, 3 or 5 servers (default: 3)"
    )
    parser.add_argument(
        "--address", metavar="HOST", nargs="+", default=[], help="the address of each server"
    )
    parser.add_argument(
        "--host", metavar="HOST", nargs="+", default=[], help="the address of each daemon's host"
    )
    parser.add_argument(
        "--store", metavar="DIR", type=path_text, default="/var/lib/nats",
        help="the folder of the servers' data (default: /var/lib/nats)",
    )  # fmt: skip
    parser.add_argument(
        "--folder", metavar="DIR", type=path_text, help="write the files there; none is overwritten"
    )


def _add_join(under: Subcommands) -> None:
    parser = action(
        under, "join", _join, "bring the sessions of this root into its cluster",
        "For a root that was used before it had a cluster. It may be repeated: sessions that the"
        " cluster has are left alone, and one with the id of another host's session is named."
        " Mounts stay on this machine.",
        example="steno cluster join",
    )  # fmt: skip
    optional_argument(parser, "prefix", str, "only sessions whose id begins with this")
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--create", action="store_true",
        help="restart the daemon, and let it create the cluster's streams: on one host, once",
    )  # fmt: skip
    either.add_argument(
        "--again", action="store_true",
        help="restart the daemon, and let it use streams that were made again or restored",
    )  # fmt: skip
    parser.set_defaults(changes=True)


def _add_try(under: Subcommands) -> None:
    parser = action(
        under, "try", _try, "prove a takeover with servers and daemons on this machine",
        "Three servers and two daemons run in a temporary folder. Several processes write one"
        " session, its owner is killed, and the other daemon takes over. The command then proves"
        " from the file that every acknowledged record is there exactly once and in order.",
        example="steno cluster try --agents 8",
    )  # fmt: skip
    parser.add_argument(
        "--agents", metavar="N", type=between(1, TRY_AGENTS_MAX), default=4,
        help="number of processes (default: 4)",
    )  # fmt: skip
    parser.add_argument(
        "--turns", metavar="N", type=between(10, TRY_TURNS_MAX), default=100,
        help="turns of each process (default: 100)",
    )  # fmt: skip
    keep_option(parser)


def _status(options: Namespace, output: Output) -> int:
    """Print the cluster as the daemon sees it."""
    with connected(options, spawn=False) as client, Progress(output, "asking the servers"):
        report = _report(client, options.prefix or "", options.count)
    if output.as_json:
        output.document(contract.document(report))
        return Exit.DONE
    for line in report_lines(output, report, time.time()):
        output.write(line)
    return Exit.DONE


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


def _move(options: Namespace, output: Output) -> int:
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
    if output.as_json:
        output.document(
            {
                "session": options.session, "moved": not is_there, "from": left,
                "to": host.endpoint, "host": host.host, "took_s": round(took_s, 3),
            }
        )  # fmt: skip
    elif is_there:
        output.say(f"{host.endpoint} owns {options.session} already")
    else:
        where = f" from {left}" if left else ""
        output.say(f"{options.session} moved{where} to {host.endpoint} in {duration(took_s)}")
    return Exit.DONE


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


def _join(options: Namespace, output: Output) -> int:
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
        # Of a session in a stream that lost messages, this root may have the newest files.
        used = [
            *before.missing, *before.troubles, *(before.there if options.again else ())
        ]  # fmt: skip
        failed: dict[str, str] = {}
        asked = (Stat(session=session) for session in used)
        joining = answers(link, asked, SessionStat, JOINS_AHEAD_MAX)
        with Progress(output, "joining") as progress:
            for session in progress.over(used):
                found = next(joining)
                if isinstance(found, StenoError):
                    failed[session] = found.message
        with Progress(output, "comparing sessions"):
            after = _comparison(client, prefix) if used else before
    joined = [session for session in before.missing if session in after.there]
    silent = dict.fromkeys(after.missing, "the daemon did not replicate it")
    still_failed = {each: why for each, why in failed.items() if each in {*silent, *before.there}}
    left_out = {**silent, **still_failed}
    _print_joined(output, joined, len(before.there), left_out, after.troubles)
    left_out |= after.troubles
    return Exit.FAILED if left_out else Exit.DONE


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
    if output.as_json:
        why = sorted({**left_out, **troubles}.items())
        left = [{"session": session, "why": text} for session, text in why]
        output.document({"joined": joined, "there": there, "left_out": left})
        return
    for session, text in sorted(left_out.items()):
        output.say(f"{session} did not join: {text}")
    for session, text in sorted(troubles.items()):
        output.say(f"{session} is in trouble: {text}")
    output.say(f"{count(len(joined), 'session')} joined, {number(there)} were there already")


def _config(options: Namespace, output: Output) -> int:
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
    if options.folder is not None:
        return _write_files(options.folder, files, output)
    if output.as_json:
        output.document({"files": files, "folder": None})
        return Exit.DONE
    for name, text in files.items():
        output.write(output.style(f"# --- {name}", "bold"))
        output.write(text)
    return Exit.DONE


def _write_files(folder: str, files: dict[str, str], output: Output) -> int:
    make_private(Path(folder))
    for name, text in files.items():
        with new_file(Path(folder) / name) as file:
            file.write(text.encode())
    if output.as_json:
        output.document({"files": files, "folder": folder})
        return Exit.DONE
    for name in files:
        output.write(str(Path(folder) / name))
    return Exit.DONE


def _try(options: Namespace, output: Output) -> int:
    """Play a takeover, and prove it."""
    # Imported here: the other actions need no event loop and no servers.
    from steno_cli.cluster.trial import run_trial  # noqa: PLC0415

    return run_trial(options.agents, options.turns, output, keep=options.keep)

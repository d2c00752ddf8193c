"""The command lines about the daemon."""

from steno.cli.arguments import (
    Subcommands,
    actions,
    command,
    count,
    days,
    number_from,
    optional_argument,
)


def add_status(commands: Subcommands) -> None:
    command(
        commands,
        "status",
        "lifecycle:status",
        "say how the daemon is; starts none",
        example="steno status --json",
    )


def add_start(commands: Subcommands) -> None:
    parser = command(
        commands, "start", "lifecycle:start", "start the daemon and print where it listens",
        "Prints the address, also when the daemon runs already.",
        example="steno start --root ~/work",
    )  # fmt: skip
    parser.set_defaults(makes_root=True)


def add_stop(commands: Subcommands) -> None:
    command(
        commands, "stop", "lifecycle:stop", "let the daemon finish what is queued, and end",
        "Returns when everything is on the disk and the root is free for another daemon.",
        example="steno stop",
    )  # fmt: skip


def add_restart(commands: Subcommands) -> None:
    parser = command(
        commands,
        "restart",
        "lifecycle:restart",
        "stop the daemon and start it again",
        example="steno restart",
    )
    parser.set_defaults(makes_root=True)


def add_logs(commands: Subcommands) -> None:
    parser = command(
        commands,
        "logs",
        "logs:logs",
        "print the daemon's log; starts none",
        example="steno logs -n 20 -f",
    )
    parser.add_argument("-n", "--lines", metavar="N", type=count, help="the last N lines only")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on"
    )


def add_gc(commands: Subcommands) -> None:
    parser = command(
        commands, "gc", "gc:gc", "give up old generations and expired trash",
        "Gives up what is asked for and nothing else; the newest generation that a rewrite left"
        " behind always stays, and what a checkpoint or a D-Mail lies in, too.",
        example="steno gc --dry-run --generations-older 90 --keep-generations 5 --trash",
    )  # fmt: skip
    optional_argument(parser, "prefix", str, "only sessions whose id begins with it")
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would go and what that frees"
    )
    parser.add_argument(
        "--generations-older", metavar="DAYS", type=days,
        help="generations that were left behind longer ago than this",
    )  # fmt: skip
    parser.add_argument(
        "--keep-generations", metavar="N", type=number_from(1),
        help="all but the newest N; with --generations-older only what both let go",
    )  # fmt: skip
    parser.add_argument(
        "--with-lineage", action="store_true",
        help="also what checkpoints from before a compaction lie in: no revert to them any more",
    )  # fmt: skip
    parser.add_argument(
        "--trash", action="store_true", help="deleted sessions that have expired (disk.trash_days)"
    )


def add_service(commands: Subcommands) -> None:
    parser = command(
        commands, "service", "", "let systemd look after the daemon",
        "Writes units of the user; systemd is not called, and what to run next is said.",
        example="steno service install",
    )  # fmt: skip
    inner = actions(parser)
    command(
        inner, "install", "service:install", "write the unit files",
        "A socket that listens always, and the daemon, which starts when somebody connects.",
        example="steno service install",
    )  # fmt: skip
    command(
        inner, "uninstall", "service:uninstall", "remove the files that install wrote",
        example="steno service uninstall",
    )  # fmt: skip
    command(
        inner, "show", "service:show", "print the files and whether they are installed",
        example="steno service show",
    )  # fmt: skip


def add_doctor(commands: Subcommands) -> None:
    command(
        commands,
        "doctor",
        "doctor:doctor",
        "look at everything a daemon needs, and say what to do about what is not well",
        "Works without a daemon, and beside one that hangs; starts none, and changes nothing.",
        example="steno doctor",
    )


def add_stats(commands: Subcommands) -> None:
    parser = command(
        commands,
        "stats",
        "stats:stats",
        "say what the daemon did, in numbers; starts none",
        "Counts begin with the daemon.",
        example="steno stats --format prometheus",
    )
    parser.add_argument(
        "--format", choices=("text", "prometheus"), default="text",
        help="text, for people (default); prometheus, for its text collector",
    )  # fmt: skip


def add_config(commands: Subcommands) -> None:
    parser = command(
        commands, "config", "config:config",
        "say which options are in force and where each value came from",
        "Asks the daemon if one runs, else reads config.toml and the environment; starts none.",
        example="steno config\nsteno config --example > ~/.local/state/steno/config.toml",
    )  # fmt: skip
    parser.add_argument(
        "--example", action="store_true", help="print a config.toml with every option instead"
    )


def add_clients(commands: Subcommands) -> None:
    parser = command(
        commands,
        "clients",
        "lifecycle:clients",
        "say who is connected; starts none",
        example="steno clients demo",
    )
    optional_argument(
        parser, "session", str, "only those who follow this one, or what only one begins with"
    )
    parser.set_defaults(by_prefix=True)

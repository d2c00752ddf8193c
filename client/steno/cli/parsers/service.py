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
        "show the daemon's state (does not start it)",
        example="steno status --json",
    )


def add_start(commands: Subcommands) -> None:
    parser = command(
        commands, "start", "lifecycle:start", "start the daemon and print its address",
        "A daemon that already runs is left as it is.",
        example="steno start --root ~/work",
    )  # fmt: skip
    parser.set_defaults(makes_root=True)


def add_stop(commands: Subcommands) -> None:
    command(
        commands, "stop", "lifecycle:stop", "stop the daemon after its queued commands",
        "Returns once all queued commands are on the disk and the root is unlocked.",
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
        "print the daemon's log (does not start it)",
        example="steno logs -n 20 -f",
    )
    parser.add_argument("-n", "--lines", metavar="N", type=count, help="the last N lines only")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new entries as they are written"
    )


def add_gc(commands: Subcommands) -> None:
    parser = command(
        commands, "gc", "gc:gc", "remove old generations and expired trash",
        "Removes only what the options name. The newest past generation always stays, and so does"
        " every generation that holds a checkpoint or a D-Mail in use.",
        example="steno gc --dry-run --generations-older 90 --keep-generations 5 --trash",
    )  # fmt: skip
    optional_argument(parser, "prefix", str, "only sessions whose id starts with PREFIX")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be removed and the space it frees; remove nothing",
    )
    parser.add_argument(
        "--generations-older", metavar="DAYS", type=days,
        help="generations replaced by a rewrite more than DAYS days ago",
    )  # fmt: skip
    parser.add_argument(
        "--keep-generations", metavar="N", type=number_from(1),
        help="all but the newest N; with --generations-older, only generations that match both",
    )  # fmt: skip
    parser.add_argument(
        "--with-lineage", action="store_true",
        help="also generations with checkpoints from before a compaction; reverts to them fail"
        " then",
    )  # fmt: skip
    parser.add_argument(
        "--trash", action="store_true", help="deleted sessions that have expired (disk.trash_days)"
    )


def add_service(commands: Subcommands) -> None:
    parser = command(
        commands, "service", "", "run the daemon under systemd",
        "Writes user units and prints the systemctl commands to run next; it does not call"
        " systemd.",
        example="steno service install",
    )  # fmt: skip
    inner = actions(parser)
    command(
        inner, "install", "service:install", "write the unit files",
        "A socket unit that always listens, and the daemon's unit, started by the first"
        " connection.",
        example="steno service install",
    )  # fmt: skip
    command(
        inner, "uninstall", "service:uninstall", "remove the unit files",
        example="steno service uninstall",
    )  # fmt: skip
    command(
        inner, "show", "service:show", "print the unit files and their state",
        example="steno service show",
    )  # fmt: skip


def add_doctor(commands: Subcommands) -> None:
    command(
        commands,
        "doctor",
        "doctor:doctor",
        "check everything the daemon needs and suggest fixes",
        "Works without a daemon and beside one that hangs. It starts no daemon and changes"
        " nothing.",
        example="steno doctor",
    )


def add_stats(commands: Subcommands) -> None:
    parser = command(
        commands,
        "stats",
        "stats:stats",
        "show the daemon's counters (does not start it)",
        "Counters start at zero with each daemon.",
        example="steno stats --format prometheus",
    )
    parser.add_argument(
        "--format", choices=("text", "prometheus"), default="text",
        help="text (default), or prometheus for its textfile collector",
    )  # fmt: skip


def add_config(commands: Subcommands) -> None:
    parser = command(
        commands, "config", "config:config",
        "show the options in force and the source of each",
        "Asks the running daemon, or reads config.toml and the environment if none runs.",
        example="steno config\nsteno config --example > ~/.local/state/steno/config.toml",
    )  # fmt: skip
    parser.add_argument(
        "--example", action="store_true", help="print a config.toml with every option"
    )


def add_clients(commands: Subcommands) -> None:
    parser = command(
        commands,
        "clients",
        "lifecycle:clients",
        "list the connected clients (does not start a daemon)",
        example="steno clients demo",
    )
    optional_argument(
        parser, "session", str, "only clients that follow this session (an id or a unique prefix)"
    )
    parser.set_defaults(by_prefix=True)

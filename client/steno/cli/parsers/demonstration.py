"""The command line of the demo."""

from steno.cli.arguments import (
    Subcommands,
    between,
    command,
)


def add_demo(commands: Subcommands) -> None:
    parser = command(
        commands, "demo", "demo:demo", "demonstrate concurrent writers and a killed daemon",
        "Several processes write one session at once while another follows it, and the daemon is"
        " killed in the middle. The demo then proves from the file that every acknowledged record"
        " is there exactly once and in order. Without --root, it uses a temporary folder.",
        example="steno demo --agents 8",
    )  # fmt: skip
    parser.add_argument(
        "--agents", metavar="N", type=_agents, default=4, help="number of processes (default: 4)"
    )
    parser.add_argument(
        "--turns",
        metavar="N",
        type=_turns,
        default=300,
        help="turns of each process (default: 300)",
    )


def _agents(text: str) -> int:
    return between(text, 1, 32)


def _turns(text: str) -> int:
    return between(text, 10, 100_000)

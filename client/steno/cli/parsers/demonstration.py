"""The command line of the demo."""

from steno.cli.arguments import (
    Subcommands,
    between,
    command,
)


def add_demo(commands: Subcommands) -> None:
    parser = command(
        commands, "demo", "demo:demo", "see the main job done, and proved from the file",
        "Several processes write one session at once while another follows it; the daemon is"
        " killed in the middle. Then the file itself has to show that every acknowledged record"
        " is there exactly once and in order. Without --root it takes a throwaway folder.",
        example="steno demo --agents 8",
    )  # fmt: skip
    parser.add_argument(
        "--agents", metavar="N", type=_agents, default=4, help="processes (default: 4)"
    )
    parser.add_argument(
        "--turns", metavar="N", type=_turns, default=300, help="of each (default: 300)"
    )


def _agents(text: str) -> int:
    return between(text, 1, 32)


def _turns(text: str) -> int:
    return between(text, 10, 100_000)

"""The command line for what makes a shell know steno: completion."""

from steno.cli.arguments import Subcommands, command

SHELLS = ("bash", "zsh")


def add_completion(commands: Subcommands) -> None:
    parser = command(
        commands, "completion", "completion:completion", "print what makes Tab complete `steno`",
        "Commands, options and session ids; the ids are looked up in the folders of the root, no"
        " daemon is started for them. Evaluate it where the shell starts, for zsh behind compinit,"
        " or put it where the shell looks.",
        example="steno completion bash > ~/.bash_completion\n"
        "steno completion zsh > ~/.zfunc/_steno",
    )  # fmt: skip
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash or zsh")

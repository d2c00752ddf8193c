"""The command line for what makes a shell know steno: completion."""

from steno.cli.arguments import Subcommands, command

SHELLS = ("bash", "zsh")


def add_completion(commands: Subcommands) -> None:
    parser = command(
        commands, "completion", "completion:completion", "print the completion script of a shell",
        "Completes commands, options and session ids; ids come from the folders of the root,"
        " without a daemon. Evaluate the script at shell start-up (in zsh after compinit), or put"
        " it into the shell's completion folder.",
        example="steno completion bash > ~/.bash_completion\n"
        "steno completion zsh > ~/.zfunc/_steno",
    )  # fmt: skip
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash or zsh")

"""`steno completion`: the completion script of a shell."""

from argparse import Namespace
from importlib.resources import files

from steno_cli.arguments import Subcommands, command
from steno_cli.exits import Exit
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "completion", run,
        "Completes commands, options and session ids; ids come from the folders of the root,"
        " without a daemon. Evaluate the script at shell start-up (in zsh after compinit), or put"
        " it into the shell's completion folder.",
        example="steno completion bash > ~/.bash_completion\n"
        "steno completion zsh > ~/.zfunc/_steno\n"
        "steno completion fish > ~/.config/fish/completions/steno.fish",
    )  # fmt: skip
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )


def run(options: Namespace, output: Output) -> int:
    """Print the script, which `tests/support/generate_completions.py` generates."""
    script = files("steno_cli").joinpath("completions", f"steno.{options.shell}").read_bytes()
    if output.as_json:
        output.document({"shell": options.shell, "script": script.decode()})
    else:
        output.raw(script)
    return Exit.DONE

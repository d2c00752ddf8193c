"""The command `steno`: the operations of the client, for a shell.

Data goes to stdout, messages go to stderr. With `--json` the data are the documents of
`steno.cli.render.contract`: one object for a command that answers once, one object a line for
`read`, `tail`, `grep`, `logs` and an `append` from stdin; an error is then one JSON object on
stderr (what argparse finds wrong with the command line stays text).

Exit codes, a closed table (`steno.cli.exits`):

    0  done
    1  refused or failed; nothing happened
    2  the command line is wrong
    3  conflict: another writer changed the session, or the key was used before
    4  not found: no such session, checkpoint, generation, position, log or match
    5  no daemon answered; nothing happened
    6  outcome unknown: repeat the command with the printed key
    7  verify found damage or doctor found a problem; nothing was changed
    130  interrupted

A command loads only what it needs, and never an event loop: it has to start in a blink.
"""

from steno.cli.entry import main
from steno.cli.parser import build_parser

__all__ = ["build_parser", "main"]

"""The command `steno`: the operations of the client, for a shell.

Data goes to stdout, messages go to stderr. With `--json` both are the documents of
`steno_present.contract`: one object from a command that answers once, one object a line from
`read`, `tail`, `grep`, `logs` and an `append` from stdin; an error is then one JSON object on
stderr (an error in the command line stays text).

Exit codes, a closed table (`steno_cli.exits`):

    0  done
    1  refused or failed; nothing happened
    2  the command line is wrong
    3  conflict: another writer changed the session, or the key was used before
    4  not found: no such session, checkpoint, generation, position, log or match
    5  no daemon answered; nothing happened
    6  outcome unknown: repeat the command with the printed key
    7  verify found damage or doctor found a problem; nothing was changed
    130  interrupted

`steno_cli.command_table` lists the commands; each is a function in a module of
`steno_cli.commands`. A one-shot command imports that module and no event loop, so that it starts
fast.
"""

"""The table of the commands, in the order of `steno help --all`.

A new command needs a line here and a function in `steno_cli.commands` that carries it out and is
decorated with its command line: in a module of its name, or in one of `MODULES`.
"""

from typing import Final

GROUPS: Final = {
    "read sessions": {
        "sessions": "list the sessions",
        "info": "show the state of a session",
        "show": "show a conversation in readable form",
        "read": "print records exactly as stored",
        "tail": "print the last records",
        "grep": "find text in the messages of sessions",
        "view": "show sessions in the browser as they grow",
        "mcp": "serve sessions to agents over MCP",
    },
    "write to a session": {
        "open": "open a session, creating it if necessary",
        "append": "append messages",
        "checkpoint": "create a checkpoint and print its id",
        "revert": "remove a checkpoint and everything after it",
        "clear": "remove all records, including the system prompt",
        "usage": "show tokens and costs, or append a count",
        "prompt": "show or set the system prompt",
    },
    "history and branches": {
        "timeline": "show the history of a session as a tree",
        "restore": "restore a past generation",
        "fork": "create a new session from a past state",
        "undo": "drop the last turns, or fork before them",
        "redo": "bring back what the last undo dropped",
        "dmail": "send a message back to a checkpoint",
        "compact": "summarise all but the last messages with a model",
    },
    "keep sessions in order": {
        "title": "show or set the title of a session",
        "label": "show or change the labels of a session",
        "archive": "hide a session from `steno sessions`",
        "unarchive": "show an archived session in `steno sessions` again",
        "rename": "give a session another id",
        "delete": "move a session to the trash",
        "undelete": "restore a session from the trash",
    },
    "move and check sessions": {
        "export": "export a session for people or other programs",
        "import": "import session folders and transcripts",
        "watch": "import transcripts as they grow",
        "backup": "copy a running root",
        "verify": "check sessions and transcripts for damage",
        "repair": "show or carry out the repair of a session or file",
        "redact": "show the secrets that exports and the viewer mask",
    },
    "the wire file and streams": {
        "wire": "list the events of a session's wire file",
        "turns": "list the turns of a session",
        "replay": "replay the events with their original pauses",
        "emit": "append an event to a session's wire file",
        "stream": "list the streams of a session, or read or change one",
    },
    "the daemon": {
        "status": "show the daemon's state or counters (does not start it)",
        "start": "start the daemon and print its address",
        "stop": "stop the daemon after its queued commands",
        "restart": "stop the daemon and start it again",
        "logs": "print the daemon's log (does not start it)",
        "clients": "list the connected clients (does not start a daemon)",
        "config": "show the options in force and the source of each",
        "top": "watch rates and clients live (does not start it)",
        "doctor": "check everything the daemon needs and suggest fixes",
        "service": "run it under systemd or launchd",
        "hooks": "print hooks for agents",
        "gc": "remove old generations and expired trash",
    },
    "several hosts": {
        "keys": "manage the keys of clients on other machines",
        "cluster": "share sessions with other hosts, and look at them",
    },
    "the command itself": {
        "help": "list the commands, or show the help of one",
        "completion": "print the completion script of a shell",
        "demo": "demonstrate concurrent writers and a killed daemon",
    },
}
"""The commands by purpose, each with its summary."""

COMMANDS: Final = {
    name: summary for commands in GROUPS.values() for name, summary in commands.items()
}
"""The summary of each command."""

MODULES: Final = {
    name: module
    for module, names in {
        "changing": ("checkpoint", "revert", "clear", "restore", "prompt", "fork", "undo", "redo"),
        "daemon": ("status", "start", "stop", "restart", "clients"),
        "help": ("completion",),
        "keeping": (
            "open", "title", "label", "archive", "unarchive", "rename", "delete", "undelete",
        ),
        "looking": ("info", "timeline", "turns"),
        "wire": ("replay", "emit"),
    }.items()
    for name in names
}  # fmt: skip
"""The modules of commands that are not in one of their name."""

FIRST: Final = {
    "read sessions": ("sessions", "info", "show", "tail", "grep", "view"),
    "write to a session": ("append", "checkpoint"),
    "go back": ("undo", "revert", "restore", "fork", "timeline"),
    "keep sessions in order": ("title", "label", "archive", "delete", "undelete"),
    "move and check sessions": ("export", "import", "verify", "repair"),
    "look after steno": ("status", "doctor", "help"),
}
"""The commands of the first help, by what people want to do."""

GOING_BACK: Final = (
    "undo drops the last turns of the session itself, and redo brings them back: to try the last"
    " turn again. revert removes a checkpoint and everything after it from the session"
    " itself, which its followers see: when an agent went the wrong way. restore makes a past"
    " generation current again: after a revert, a clear or a compaction too many. fork makes a new"
    " session from any past state: to go two ways at once."
)
"""When to use which of the commands that go back."""

ALIASES: Final = {"ls": "sessions"}
"""Other names of commands."""

RENAMED: Final = {"stat": ("info",), "stats": ("status", "--counters")}
"""Names that commands had before, which scripts use, with the words of today; no help has them."""

"""The command lines that bring sessions out of steno and into it: export, import."""

from steno.cli.arguments import (
    Subcommands,
    command,
    optional_argument,
    place,
    session_argument,
)

FORMATS = ("markdown", "json", "kimi")


def add_export(commands: Subcommands) -> None:
    parser = command(
        commands, "export", "export:export", "write a session down for another program",
        "markdown is the conversation for people; json is everything with its cursors, events and"
        " timeline; kimi is a session folder as kimi-cli makes it: its lines without the keys that"
        " steno adds, its older generations, uploads, tasks and subagents. A daemon on another"
        " machine sends only the lines and the title. Symbolic links are left out. Nothing that"
        " is there already is overwritten.",
        example="steno export demo -o demo.md\nsteno export demo --format kimi -o ~/copy",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "--format", choices=FORMATS, help="(default: markdown, or json with --json)"
    )
    parser.add_argument(
        "-o", "--output", metavar="PATH", type=place,
        help="the file or, for kimi, the folder to make (default, and -: stdout; kimi needs one)",
    )  # fmt: skip


def add_import(commands: Subcommands) -> None:
    parser = command(
        commands, "import", "import_sessions:import_sessions",
        "take in session folders, byte for byte",
        "FOLDER is a session folder, a tree of them such as kimi-cli's, or the file <uuid>.jsonl of"
        " a session in kimi-cli's old format. Each session appears"
        " whole or not at all; one that was imported before is passed over, so that a repeat is"
        " harmless. Of kimi-cli's kimi.json, the work directories of these sessions and their last"
        " sessions are taken, too, and `steno sessions` shows them. FOLDER itself is only read. The"
        " root has to be on this machine.",
        example="steno import ~/.kimi/sessions kimi\nsteno import ~/copy demo-2",
    )  # fmt: skip
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=place,
        help="a session folder, a tree of them, or one old file",
    )
    optional_argument(
        parser, "session", str,
        "the id of the session, or what the ids of a tree begin with (default: a session's folder"
        " name; nothing for a tree)",
    )  # fmt: skip
    parser.set_defaults(changes=True, makes_root=True)

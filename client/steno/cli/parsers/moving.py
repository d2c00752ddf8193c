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
        commands, "export", "export:export", "export a session for people or other programs",
        "markdown: the conversation for people. json: all records, events and the timeline with"
        " their cursors. kimi: a session folder in kimi-cli's format, without the keys that steno"
        " adds, with past generations, uploads, tasks and subagents. A daemon on another machine"
        " sends only the lines and the title. Symbolic links are skipped. Existing files are"
        " never overwritten.",
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
        "import session folders byte for byte",
        "FOLDER is a session folder, a tree of session folders such as kimi-cli's, or a file"
        " <uuid>.jsonl in kimi-cli's old format. The import of a session is atomic; a session that"
        " was imported before is skipped, so the command can be repeated. The work directories in"
        " kimi-cli's kimi.json are imported too; `steno sessions` shows them. FOLDER is only read."
        " The root must be on this machine.",
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
        "the id of the session, or a prefix for the ids of a tree (default: the folder name for a"
        " session, no prefix for a tree)",
    )  # fmt: skip
    parser.set_defaults(changes=True, makes_root=True)

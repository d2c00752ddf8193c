"""Command lines that mean nothing: exit code 2, one line that says why, and nothing is done."""

import os
from pathlib import Path

import pytest

from steno_cli.entry import main
from steno_cli.exits import Exit

LATIN = os.fsdecode("é".encode("latin-1"))
"""An argument that is not UTF-8, as a program receives it."""

TEXTS = [
    (["title", "d", "a\nb"], "a title is one line without control characters"),
    (["title", "d", "\x1b[31mred"], "a title is one line without control characters"),
    (["fork", "d", "e", "--title", "a\x07"], "one line without control characters"),
    (["title", "d", "x" * 201], "it has 201 characters, at most 200"),
    (["clear", "d", "--why", "x" * 1001], "it has 1001 characters, at most 1000"),
    (["label", "d", "+a\nb"], "is not a label"),
    (["label", "d", "a,b"], "is not a label"),
    (["label", "d", "+"], "is not a label"),
    (["label", "d", "x" * 65], "is not a label"),
    (["revert", "d", "x"], "'x' is neither the number of a checkpoint"),
    (["fork", "d", "e", "--checkpoint", ""], "'' is neither the number of a checkpoint"),
    (["dmail", "send", "d", "0:1", "hi"], "'0:1' is neither the number of a checkpoint"),
    (["revert", "d", "7@x"], "'7@x' is neither the number of a checkpoint"),
    (["append", "d", "hi", "--role", "_usage"], "the role '_usage' is written by its own command"),
    (["append", "d", "hi", "--role", ""], "the role '' is no text of 1 to 64 bytes"),
    (["append", "d", "hi", "--role", "us\ner"], r"the role 'us\ner' is no text of 1 to 64 bytes"),
    (["append", "d", "hi", "--role", "r" * 65], "is no text of 1 to 64 bytes"),
    (["grep", "hi", "--role", "_usage"], "the role '_usage' is written by its own command"),
    (["append", "d", "hi", "--expect", "12"], "'12' is not a position"),
    (["append", "d", "hi", "--key", "a b"], "'a b' is not a key"),
    (["fork", "d", "e", "--key", "a b"], "'a b' is not a key"),
    (["append", "d", "hi", "--name", "two words"], "'two words' is not a client name"),
    (["grep", "("], "-F searches for plain text"),
    *(
        (["emit", "d", "A", payload], "the payload is no")
        for payload in ("[1]", "{", "null", '"t"')
    ),
]
NUMBERS = [
    (["replay", "d", "--speed", "-1"], "'-1' is not a number from 0 on"),
    (["replay", "d", "--speed", "nan"], "'nan' is not a number from 0 on"),
    (["replay", "d", "--speed", "inf"], "'inf' is not a number from 0 on"),
    (["emit", "d", "T", "--timestamp", "x"], "'x' is no time: give seconds since 1970"),
    (["emit", "d", "T", "--timestamp", "nan"], "'nan' is no time: give seconds since 1970"),
    *(
        (["show", "d", f"--since={text}"], "is no time: give 90s")
        for text in ("yesterday", "25:61", "h", "-1h", "1e400d", "10000-01-01")
    ),
    (["compact", "d", "--model", "m", "--preserve", "0"], "from 1 to 10000"),
    (["compact", "d", "--model", "m", "--preserve", "10001"], "from 1 to 10000"),
    (["logs", "-n", "9" * 23], "is not a number from 0 on, up to 9007199254740992"),
    (["usage", "d", "9" * 5000], "is not a number from 0 on"),
    (["usage", "d", "--key", "k", "many"], "'many' is not a number from 0 on"),
    (["append", "d", "hi", "--timeout", "0"], "'0' is not a number of seconds above 0"),
    (["demo", "--agents", "0"], "'0' is not a number from 1 to 32"),
    (["demo", "--agents", "9" * 5000], "is not a number from 1 to 32"),
    (["undo", "d", "--turns", "9" * 23], "is not a number from 1 on"),
    (["undo", "d", "--turns", "0"], "'0' is not a number from 1 on"),
    (["sessions", "-n", "0"], "'0' is not a number from 1 on"),
    (["cluster", "try", "--agents", "0"], "'0' is not a number from 1 to"),
    (["top", "--interval", "0.01"], "is less than 0.1 seconds"),
]
CHOICES = [
    (["nonsense"], "there is no command 'nonsense'"),
    (["append", "d", "hi", "--durability", "hopeful"], "there is no 'hopeful': choose from synced"),
    (["sessions", "--sort", "weight"], "there is no 'weight'"),
    (["completion", "tcsh"], "there is no shell 'tcsh'"),
    (["usage", "--by", "week"], "there is no sum by 'week'"),
    (["usage", "--program", "vi"], "there is no program 'vi'"),
]
TOGETHER = [
    (["append"], "the following arguments are required: SESSION"),
    (["append", "d", "a", "b"], "unrecognized arguments: b"),
    (["append", "d", "hi", "--batch"], "--batch is for records on stdin: leave TEXT out"),
    (["read", "d", "--after", "0:1", "--until", "1:1"], "read one generation at a time"),
    (["read", "d", "--after", "0:1", "--generation", "1"], "not allowed with argument --after"),
    (["show", "d", "--at", "0:1", "--generation", "1"], "not allowed with argument --at"),
    (["show", "d", "--follow", "--json"], "follow a session with `steno tail -f --json`"),
    (["undo", "d", "--title", "other"], "give its id with --to"),
    (["undo", "d", "--to", "e", "--why", "wrong"], "leave them out with --to"),
    (["repair", "--close-calls", "d", "--apply"], "leave --apply and --why out"),
    (["repair", "--close-calls", "d", "--why", "so"], "leave --apply and --why out"),
    (["repair", "--close-calls", "./notes.jsonl"], "give its id instead of a path"),
    (["verify"], "name sessions, files or folders, or give --all"),
    (["verify", "--all", "d"], "name sessions, files or folders, or give --all"),
    (["export", "d", "--format", "kimi", "-o", "-"], "name it with -o"),
    (
        ["export", "d", "--format", "kimi", "--close-calls", "-o", "x"],
        "`steno fork d NEW --close-c",
    ),
    (["stats", "--json", "--format", "prometheus"], "two formats"),
    (["export", "d", "--json", "--format", "markdown"], "two formats"),
    (["export", "d", "-o", "a.pdf"], "one of .md, .markdown, .html, .htm, .json, .jsonl"),
    (["export", "d", "--format", "kimi"], "name it with -o"),
    (["label", "d", "red", "+green"], "give either kind"),
    (["label", "d", "--none", "red"], "leave LABEL out"),
    (["label", "d", "red", "--unknown"], "unrecognized arguments: --unknown"),
    (["label"], "the following arguments are required: SESSION"),
    (["sessions", "--all", "--archived"], "not allowed with argument"),
    (["sessions", "--trash", "--sort", "id"], "--trash takes no --label"),
    (["usage", "--csv", "--json"], "two formats"),
    (["usage", "own", "5", "--csv"], "leave the options of sums out"),
    (["stream", "d", "-n", "1"], "--lines needs the NAME"),
    (["stream", "d", "--delete"], "--delete needs the NAME"),
    (["stream", "d", "--append", "{}"], "--append needs the NAME"),
    (["stream", "d", "notes", "--append", "{}", "--delete"], "do not fit together"),
    (["stream", "d", "notes", "-n", "1", "--after", "0:0"], "-n counts from the end"),
    (["stream", "d", "notes", "-f", "--until", "0:1"], "-f has no end"),
    (["stream", "d", "notes", "-f", "--delete"], "do not fit together"),
    (["stream", "d", "wire"], "is not a stream's name"),
    (["stream", "d", "A"], "is not a stream's name"),
    (["append", "d", "hi", "--from-line", "2"], "--from-line is for records on stdin"),
    (["append", "d", "--batch", "--from-line", "2"], "--from-line is for records on stdin"),
    (["cluster", "config", "--nodes", "3", "--address", "a"], "--address names 1 server"),
    (["gc"], "only what the options name is removed"),
    (["grep", "--index", "++"], "no word"),
    (["grep", "--index", "-F", "x"], "without --index"),
    (["grep", "--limit", "3", "x"], "need --index"),
    (["tail", "d", "--wait"], "only -f prints those: add -f"),
    (["top"], "add --once"),
]
PLACES = [
    *(
        (words, f"argument {argument}: the path is empty")
        for words, argument in (
            (["sessions", "--root", ""], "--root"),
            (["sessions", "--socket", ""], "--socket"),
            (["sessions", "--key-file", ""], "--key-file"),
            (["import", ""], "FOLDER"),
            (["import", "", "d"], "FOLDER"),
            (["verify", ""], "TARGET"),
            (["verify", "d", ""], "TARGET"),
            (["repair", ""], "TARGET"),
            (["repair", "--apply", ""], "TARGET"),
            (["export", "d", "-o", ""], "-o/--output"),
            (["export", "d", "--format", "kimi", "-o", ""], "-o/--output"),
            (["keys", "new", "one", "-o", ""], "-o/--output"),
        )
    ),
    *(
        (["stop", "--endpoint", text], f"{text!r} is not an endpoint: use tcp://HOST:PORT")
        for text in (
            "",
            "foo",
            "tcp://",
            "tcp://host",
            "tcp://host:0",
            "tcp://host:65536",
            "ipc://",
        )
    ),
    *(
        ([*words, "--endpoint", "tcp://127.0.0.1:1"], "needs a root")
        for words in (["service", "show"], ["service", "install"], ["demo"])
    ),
]
NOT_UTF8 = [
    (words, "it is not UTF-8")
    for words in (
        ["append", "d", LATIN],
        ["append", LATIN, "hi"],
        ["title", "d", LATIN],
        ["label", "d", "+fine", f"+{LATIN}"],
        ["clear", "d", "--why", LATIN],
        ["sessions", LATIN],
        ["sessions", "--label", LATIN],
        ["grep", LATIN],
        ["dmail", "send", "d", "0", LATIN],
        ["emit", "d", LATIN],
    )
]


@pytest.mark.parametrize(
    ("words", "printed"), [*TEXTS, *NUMBERS, *CHOICES, *TOGETHER, *PLACES, *NOT_UTF8]
)
def test_command_line_that_means_nothing_is_refused(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    printed: str,
) -> None:
    monkeypatch.setenv("STENO_HOME", str(root))
    # A file that an argument names would be here.
    monkeypatch.chdir(root)
    assert main(words) == Exit.USAGE
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert printed in shown.err
    assert list(root.iterdir()) == []

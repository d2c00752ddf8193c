"""The commands in errors, remedies and help texts: each one runs as it is printed."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from steno import connect_sync
from steno_cli.entry import main
from steno_cli.render.printed_commands import with_destination
from support.command import Steno
from support.messages import message
from support.project import PROJECT

FOLDERS: Final = ("client", "daemon", "protocol")
CALL: Final = re.compile(r"`(steno [^`]+)`")
TYPED: Final = "{options.command}"
"""The command that the user has just typed."""

VALUES: Final = {
    # Expressions in the texts.
    "{session}": "demo",
    "{place.session}": "demo",
    "{options.session}": "demo",
    "{command.session}": "demo",
    "{repair}": "demo",
    "{self._session}": "demo",
    "{session.id}": "demo",
    "{self._options.session}": "demo",
    "{moved.session}": "demo",
    "{source.session}": "imported",
    "{found.session}": "demo",
    "{shlex.quote(str(source.file))}": "FILE",
    "{shlex.quote(str(path))}": "FILE",
    "{shlex.quote(str(file))}": "FILE",
    "{shlex.quote(path)}": "FILE",
    "{found.kept_in}": "0",
    "{line}": "0",
    "{past - 1}": "0",
    # Placeholders, which the user replaces.
    "SESSION": "demo",
    "PATH": "FILE",
    "TEXT": "text",
    "NAME": "laptop",
    "ID": "imported",
    "RECORD": "'{}'",
    "N": "0",
}
"""Real values for the variable parts of printed commands."""

MENTIONS: Final = {
    "steno append", "steno backup", "steno backup --follow", "steno checkpoint", "steno prompt",
    "steno read",
    "steno repair", "steno show", "steno tail --json", "steno usage",
    "steno cluster join", "steno cluster status", "steno cluster try",
    "steno dmail send", "steno export",
    "steno fork --at", "steno fork --turn", "steno grep", "steno import",
    "steno keys new", "steno keys revoke", "steno read --since", "steno rename", "steno restore",
    "steno label", "steno mcp", "steno mcp --http", "steno redact", "steno redo",
    "steno tail -f --json", "steno timeline",
    "steno title", "steno top", "steno undelete --trash",
    "steno view", "steno view --write", "steno watch",
}  # fmt: skip
"""Commands that a text names for a purpose; the user chooses their arguments."""

IN_A_CLUSTER: Final = {
    "steno cluster join --again", "steno cluster join --create",
    "steno cluster move {path} {self.owner.endpoint}",
    "steno cluster move {session} {self._hosts.owner.endpoint}",
    "steno cluster status {path}",
}  # fmt: skip
"""Commands that need a cluster; the tests in `tests/cluster` run them."""


OF_A_PROCESS: Final = ("steno start", "steno stop", "steno restart", "steno service")
"""Commands that end the process of a daemon, or start one."""


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module but its docstrings; an expression in one becomes `{expression}`."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Constant(value=str() as text):
                yield text
            case ast.JoinedStr(values=parts):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant)
                    else f"{{{ast.unparse(part.value)}}}"  # type: ignore[attr-defined]  # the only other
                    for part in parts
                )  # fmt: skip
            case _:
                yield from _texts(node)


@cache
def _printed() -> list[str]:
    """Every call of steno in the texts, once."""
    found = {
        call
        for folder in FOLDERS
        for path in sorted((PROJECT / folder).rglob("*.py"))
        # Every process of the tests collects them, and most modules print no command.
        if "`steno" in path.read_text()
        for text in _texts(ast.parse(path.read_text()))
        for call in CALL.findall(text)
    }
    return sorted(call for call in found if TYPED not in call)


@pytest.mark.parametrize(
    "call", [each for each in _printed() if each not in MENTIONS | IN_A_CLUSTER]
)
def test_a_printed_command_runs_as_printed(
    call: str, root: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not call.startswith(OF_A_PROCESS):
        request.getfixturevalue("daemon")
    steno = Steno(root, XDG_CONFIG_HOME=str(tmp_path / "config"))
    old = tmp_path / f"{uuid4()}.jsonl"
    old.write_text('{"role": "user", "content": "hi"}\n')
    with connect_sync(root) as client:
        session = client.open("demo")
        session.append_message(message("hi"))
        session.clear()
        session.append_message(message("again"))
    if call.startswith("steno redact"):
        # It is printed after something was masked.
        assert steno("append", "demo", "key AKIAIOSFODNN7EXAMPLE").code == 0
    if call.startswith("steno redo {"):
        # It is printed after an undo.
        assert steno("undo", "demo").code == 0
    if call.startswith("steno undelete"):
        assert steno("delete", "demo", "--yes").code == 0
    if call.startswith("steno show {source.session}"):
        # It is printed after an import with a past generation.
        for words in (["import", str(old), "imported"], ["clear", "imported"]):
            assert steno(*words).code == 0
    for part, value in VALUES.items():
        call = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", value, call)
    if "imported" not in call:
        call = call.replace("FILE demo", "FILE imported")
    call, _, read = call.replace("FILE", str(old)).replace("DIR", str(root)).partition(" < ")
    _, *words = shlex.split(call)
    ran = steno(*words, stdin=Path(read).read_bytes() if read else b"")
    assert ran.code == 0, (call, ran)


@pytest.mark.parametrize("mention", sorted(MENTIONS))
def test_a_mentioned_command_exists_with_its_option(
    mention: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(mention)[1:]
    assert main(["help", *(word for word in words if word[0] != "-")]) == 0
    shown = capsys.readouterr().out
    assert [word for word in words if word[:2] == "--" and word not in shown] in (
        [],
        ["--json"],
    )


def test_a_path_in_a_printed_command_is_quoted() -> None:
    begin = re.compile(r"`(?:steno|chmod|chown|rm|mv|cp|kill)")
    bare = re.compile(begin.pattern + r"[^`]*\{(?:str\()?[\w.]*(?:path|root|folder|file)\)?\}")
    found = {
        call
        for folder in FOLDERS
        for path in sorted((PROJECT / folder).rglob("*.py"))
        if begin.search(path.read_text())
        for text in _texts(ast.parse(path.read_text()))
        for call in bare.findall(text)
    }
    # The id of a session, which has no blanks.
    assert {call for call in found if "steno cluster" not in call} == set()


def test_no_mention_is_out_of_date() -> None:
    assert MENTIONS - {*_printed()} == set()


def test_each_remedy_of_doctor_is_a_command_that_removes_the_finding(
    root: Path, tmp_path: Path
) -> None:
    steno = Steno(tmp_path / "default")
    named = ["--root", str(root)]
    assert steno("append", "demo", "hi", *named).code == 0
    assert steno("clear", "demo", *named).code == 0
    assert steno("stop", *named).code == 0
    session = root / "sessions" / "demo"
    (session / "context.jsonl").unlink()
    root.chmod(0o755)
    remedies = _remedies(steno, named)
    assert len(remedies) == 2
    for remedy in remedies:
        subprocess.run(remedy, shell=True, check=True)
    assert _remedies(steno, named) == []


def test_doctor_names_the_root_in_commands_for_another_root(root: Path, tmp_path: Path) -> None:
    steno = Steno(tmp_path / "default")
    named = ["--root", str(root)]
    assert steno("start", *named).code == 0
    (root / "config.toml").write_text("[disk]\nsession_bytes = 7\n")
    (remedy,) = _remedies(steno, named, at=1)
    assert remedy == f"steno restart --root {root}"
    assert steno(*shlex.split(remedy)[1:]).code == 0
    assert _remedies(steno, named) == []


def _remedies(steno: Steno, named: list[str], at: int = 0) -> list[str]:
    """One command of each remedy that doctor prints."""
    findings = steno("doctor", "--json", *named).document["findings"]
    # The disk of the tests may be nearly full, or busy.
    found = [each for each in findings if each["check"] not in {"disk", "sync"}]
    texts = [each["remedy"] for each in found if each["remedy"]]
    return [re.findall(r"`([^`]+)`", text)[at] for text in texts]


def _commands_in(text: str) -> list[list[str]]:
    """The arguments of each call of steno between backticks."""
    return [shlex.split(call)[1:] for call in CALL.findall(text)]


def test_a_printed_command_acts_on_the_root_that_was_given(root: Path, second_root: Path) -> None:
    steno = Steno(second_root)
    named = ["--root", str(root)]
    assert steno("append", "oddx", "mine").code == 0
    assert steno("append", "odd", "one", *named).code == 0

    (delete,) = _commands_in(steno("append", "oddx", "two", *named).err)
    (undelete,) = _commands_in(steno(*delete, "--yes").err)

    assert not (root / "sessions" / "oddx").exists()
    assert (second_root / "sessions" / "oddx").exists()
    (show,) = _commands_in(steno(*undelete).err)
    assert "two" in steno(*show).out
    assert show == ["show", "oddx", *named]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_command_in_an_error_of_the_daemon_acts_on_the_given_root(
    root: Path, tmp_path: Path, form: list[str]
) -> None:
    steno = Steno(tmp_path / "default")
    named = ["--root", str(root)]
    assert steno("start", *named).code == 0
    failed = steno("stat", "demo", *named, *form)
    text = failed.error["message"] if form else failed.err
    assert _commands_in(text) == [["sessions", *named], ["open", "demo", *named]]


def test_a_finding_of_verify_names_the_given_root(root: Path, tmp_path: Path) -> None:
    steno = Steno(tmp_path / "default")
    named = ["--root", str(root)]
    assert steno("append", "demo", "hi", *named).code == 0
    assert steno("stop", *named).code == 0
    with (root / "sessions" / "demo" / "context.jsonl").open("ab") as file:
        file.write(b'garbage\n{"role":"user","content":"hi"}\n')
    (repair,) = _commands_in(steno("verify", "demo", *named).out)
    assert repair == ["repair", "demo", *named]


def test_a_command_without_a_given_destination_is_printed_as_it_is(steno: Steno) -> None:
    assert steno("append", "demo", "hi").code == 0
    assert _commands_in(steno("delete", "demo", "--yes").err) == [["undelete", "demo"]]


def test_a_command_for_the_machine_of_the_daemon_names_no_address() -> None:
    address = ["--endpoint", "tcp://10.0.0.5:7117", "--key-file", "laptop.key"]
    text = "`steno status` on that machine shows it; `steno keys new NAME` makes a key file"
    assert with_destination(text, address) == text
    assert with_destination("`steno sessions`", address) == (
        "`steno sessions --endpoint tcp://10.0.0.5:7117 --key-file laptop.key`"
    )

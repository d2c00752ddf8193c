"""Imports at the start of a command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.agent_files import codex_file

HEAVY = ("anyio", "asyncio", "trio", "typing_extensions", "pydantic", "httpx2", "zmq", "rich")

REPORT = f"""
import json, sys
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""


def _loaded_after(code: str, root: Path) -> list[str]:
    """The heavy packages in a fresh interpreter after `code`."""
    ran = subprocess.run(
        [sys.executable, "-c", code + REPORT],
        env={**os.environ, "STENO_HOME": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return loaded


@pytest.fixture(scope="module")
def unavoidable() -> set[str]:
    """The packages that msgspec loads itself."""
    return set(_loaded_after("import msgspec", Path()))


@pytest.fixture(scope="module")
def connected(unavoidable: set[str]) -> set[str]:
    """The packages that a connection loads, too."""
    return unavoidable | set(_loaded_after("import zmq", Path()))


def test_importing_steno_loads_no_event_loop(unavoidable: set[str]) -> None:
    assert set(_loaded_after("import steno", Path())) <= unavoidable


def test_a_blocking_session_loads_no_event_loop(root: Path, connected: set[str]) -> None:
    code = """
import steno
with steno.connect_sync() as client:
    session = client.open("demo")
    session.append_message({"role": "user", "content": "hi"})
    assert len(session.history) == 1
"""
    assert set(_loaded_after(code, root)) <= connected


def test_a_one_shot_command_loads_no_event_loop(root: Path, connected: set[str]) -> None:
    code = """
from steno_cli.entry import main
for call in (
    "append demo hi", "sessions", "read demo", "status", "show dem", "grep hi", "export demo",
    "label demo +red", "fork demo other", "dmail show demo", "turns demo", "stat demo", "wire demo",
    "timeline demo", "completion bash", "delete other",
):
    assert main(call.split()) == 0, call
"""
    assert set(_loaded_after(code, root)) <= connected


def test_a_command_about_an_imported_session_loads_no_event_loop(
    root: Path, tmp_path: Path, connected: set[str]
) -> None:
    code = f"""
from steno_cli.entry import main
for call in (
    "import {codex_file(tmp_path)}", "show --program codex", "info codex", "usage",
    "sessions --program codex", "hooks show codex",
):
    assert main(call.split()) == 0, call
"""
    assert set(_loaded_after(code, root)) <= connected


@pytest.mark.parametrize("words", [["--help"], ["append", "--help"], ["--version"]])
def test_output_of_a_command_is_complete_when_its_process_ends(words: list[str]) -> None:
    # It ends at once, and a pipe is buffered unless it is asked for the opposite.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "steno_cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=buffered)
    assert done.stdout.endswith("\n")
    assert "steno" in done.stdout
    assert not done.stderr


MODULES = """
import json, sys
print(json.dumps(sorted(name for name in sys.modules if name.startswith("steno"))))
"""


def _modules_after(code: str, root: Path) -> list[str]:
    """The modules of this project that a fresh interpreter has imported after `code`."""
    ran = subprocess.run(
        [sys.executable, "-c", code + MODULES],
        env={**os.environ, "STENO_HOME": str(root)},
        # A pipe that ends at once, with which a reader ends, too.
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    modules: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return modules


def _packages_of(modules: list[str]) -> list[str]:
    return sorted({name.split(".")[0] for name in modules})


LIBRARY_MODULES_MAX = 51

STARTS_A_DAEMON = {
    f"steno._connect.{name}"
    for name in ("folders", "forbidden", "last_words", "lock_holder", "spawn", "start_lock")
}
"""Also imported where a busy machine lets the daemon answer too late."""

COMMAND_NEEDS = ["steno", "steno_cli", "steno_present", "steno_protocol", "steno_system"]


@pytest.mark.parametrize(
    ("words", "more", "modules_max"),
    [
        ("append demo hi", [], 79),
        ("sessions", [], 70),
        ("read demo", [], 76),
        ("show demo", [], 83),
        ("show demo --redact", ["steno_redact"], 95),
    ],
)
def test_a_command_imports_no_module_that_it_does_not_use(
    root: Path, words: str, more: list[str], modules_max: int
) -> None:
    code = """
from steno_cli.entry import main
assert main({!r}.split()) == 0
"""
    # The command that starts the daemon needs more.
    _modules_after(code.format("append demo hi"), root)
    modules = _modules_after(code.format(words), root)
    assert _packages_of(modules) == sorted([*COMMAND_NEEDS, *more])
    assert len({*modules} - STARTS_A_DAEMON) <= modules_max, modules


def test_the_module_of_each_command_can_be_imported_first() -> None:
    """The tests call commands in forks of a process that has imported all of them."""
    code = (
        "import os, steno_cli.entry\n"
        "from steno_cli.command_table import COMMANDS\n"
        "from steno_cli.parser import module_of\n"
        "for name in COMMANDS:\n"
        "    if os.fork() == 0:\n"
        "        __import__(module_of(name))\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0, name\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_library_imports_no_package_beside_it(root: Path) -> None:
    code = """
import steno
with steno.connect_sync() as client:
    client.open("demo").append_message({"role": "user", "content": "hi"})
"""
    _modules_after(code, root)
    modules = _modules_after(code, root)
    assert _packages_of(modules) == ["steno", "steno_protocol", "steno_system"]
    assert len({*modules} - STARTS_A_DAEMON) <= LIBRARY_MODULES_MAX, modules


def test_a_daemon_imports_neither_a_cluster_nor_a_client(root: Path) -> None:
    # A reader makes the whole daemon, and ends when its standard input does.
    code = f"""
from stenod.cli import main
try:
    main(["--root", {str(root)!r}, "--reader"])
except SystemExit as end:
    assert not end.code, end
"""
    root.mkdir(mode=0o700, exist_ok=True)
    assert _packages_of(_modules_after(code, root)) == ["steno_protocol", "steno_system", "stenod"]

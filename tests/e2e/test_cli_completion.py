"""`steno completion`: what Tab offers in bash and zsh, without a daemon and without Python."""

import fcntl
import os
import select
import shutil
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from support.command import Steno

BASH = """
source {script}
COMP_LINE="steno $1"
COMP_POINT=${{#COMP_LINE}}
_steno
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

ZSH = """
compdef() {{ : }}
compadd() {{ shift $(( $# - 1 )); print -rl -- "${{(@P)1}}" }}
_describe() {{ print -rl -- "${{(@P)4}}" }}
_files() {{ print -r -- "<paths $*>" }}
source {script}
words=(steno "${{(@s: :)1}}")
CURRENT=$#words
_steno
"""

Complete = Callable[..., list[str]]


class Terminal:
    """A shell that believes that a person types into it."""

    def __init__(self, words: list[str], root: Path, folder: Path) -> None:
        self._controller, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder)}
        self._process = subprocess.Popen(
            words,
            stdin=terminal, stdout=terminal, stderr=terminal,
            cwd=folder, env={**environment, "STENO_HOME": str(root)}, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._controller)

    def type(self, keys: str, *, until: str) -> None:
        """Type, and wait until something is shown that was not there before."""
        os.write(self._controller, keys.encode())
        self._shown = ""
        while until not in self._shown:
            ready, _, _ = select.select([self._controller], [], [], 20)
            assert ready, f"{until!r} was never shown: {self._shown!r}"
            self._shown += os.read(self._controller, 4096).decode()


@pytest.fixture(scope="module", params=["bash", "zsh"])
def script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for a shell, as the command prints it."""
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    folder = tmp_path_factory.mktemp("completion")
    path = folder / str(request.param)
    path.write_text(Steno(folder)("completion", request.param).out)
    assert not (folder / "stenod.lock").exists()
    return path


@pytest.fixture
def complete(script: Path, root: Path, tmp_path: Path) -> Complete:
    """What Tab offers after `steno` and some words, the last of which is not finished."""
    code = (BASH if script.name == "bash" else ZSH).format(script=script)
    # Nothing but the shell and `sed`: neither steno nor Python can be found.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sed").symlink_to(shutil.which("sed") or "sed")

    def complete(words: str, **environment: str) -> list[str]:
        home = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "STENO_HOME": str(root)}
        shell = shutil.which(script.name) or script.name
        flag = ["--norc"] if script.name == "bash" else ["-f"]
        ran = subprocess.run(
            [shell, *flag, "-c", code, script.name, words],
            env={**home, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return sorted(
            line.partition(":")[0] if " " in line else line
            for line in ran.stdout.split("\n")
            if line
        )

    return complete


def plant(tree: Path, *sessions: str) -> None:
    for session in sessions:
        (tree / session).mkdir(parents=True)
        (tree / session / "context.jsonl").touch()


def offered(found: list[str], typed: str) -> list[str]:
    """What fits: bash is given that, zsh chooses by itself."""
    return [each for each in found if each.startswith(typed)]


def test_commands_and_actions_are_offered(complete: Complete) -> None:
    assert {"show", "grep", "dmail", "completion"} <= set(complete(""))
    assert offered(complete("una"), "una") == ["unarchive"]
    assert complete("dmail ") == ["deliver", "send", "show"]
    assert offered(complete("--json sh"), "sh") == ["show"]


def test_options_and_their_choices_are_offered(complete: Complete) -> None:
    assert offered(complete("show --n"), "--n") == ["--name", "--no-pager"]
    assert complete("append demo --role ") == ["assistant", "system", "tool", "user"]
    assert offered(complete("export demo --format k"), "k") == ["kimi"]
    assert complete("completion ") == ["bash", "zsh"]
    assert complete("show --at ") == []


def test_sessions_are_offered_a_folder_at_a_time(complete: Complete, root: Path) -> None:
    plant(root / "sessions", "demo", "demo/sub/x", "team/a", "team/b")
    (root / "sessions" / ".trash" / "gone").mkdir(parents=True)
    assert complete("show ") == ["demo", "team/"]
    assert complete("show t") == ["team/"]
    assert complete("revert team/") == ["team/a", "team/b"]
    assert complete("show demo") == ["demo", "demo/"]
    assert complete("show demo/") == ["demo/sub/"]
    assert complete("dmail deliver d") == ["demo"]
    assert complete("revert demo ") == []
    assert complete("grep pattern te") == ["team/"]
    assert complete("show --at 0:1 d") == ["demo"]


def test_the_sessions_are_those_of_the_root_in_use(
    complete: Complete, root: Path, tmp_path: Path
) -> None:
    plant(tmp_path / "other" / "sessions", "elsewhere")
    plant(tmp_path / ".local" / "state" / "steno" / "sessions", "at-home")
    assert complete(f"--root {tmp_path}/other show ") == ["elsewhere"]
    assert complete("show --root=~/other ") == ["elsewhere"]
    assert complete("show ", STENO_HOME="") == ["at-home"]
    assert complete("show ", STENO_HOME=str(root / "nowhere")) == []


def test_the_sessions_of_a_mount_are_offered_behind_its_name(
    complete: Complete, root: Path, tmp_path: Path, script: Path
) -> None:
    plant(tmp_path / "kimi sessions", "hash/one", "hash/two")
    (root / "config.toml").write_text(
        f'idle_s = 5\n[mounts]\nkimi = "{tmp_path}/kimi sessions"\nhome = "~/kimi sessions"\n'
        '[more]\nother = "~"\n'
    )
    assert complete("show ") == ["home:", "kimi:"]
    # bash replaces what is behind the colon only.
    head = "" if script.name == "bash" else "kimi:"
    assert complete("show kimi:") == [f"{head}hash/"]
    assert complete("show kimi:hash/o") == [f"{head}hash/one"]
    head = "" if script.name == "bash" else "home:"
    assert complete("show home:hash/t") == [f"{head}hash/two"]


def test_paths_are_offered_where_a_path_belongs(
    complete: Complete, tmp_path: Path, script: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    if script.name == "bash":
        assert complete("import fo") == ["folder"]
        assert complete("export demo -o fi") == ["file"]
    else:
        assert complete("import fo") == ["<paths -/>"]
        assert complete("export demo -o fi") == ["<paths >"]


def test_what_is_verified_is_a_session_or_else_a_path(
    complete: Complete, root: Path, tmp_path: Path, script: Path
) -> None:
    plant(root / "sessions", "demo")
    (tmp_path / "notes.jsonl").touch()
    for command in ("verify", "repair --apply"):
        assert complete(f"{command} de") == ["demo"]
        paths = ["notes.jsonl"] if script.name == "bash" else ["<paths >"]
        assert complete(f"{command} no") == paths
        assert complete(f"{command} ./no") == [each.replace("no", "./no", 1) for each in paths]


@pytest.mark.parametrize("way", ["bash", "zsh", "zsh from its fpath"])
def test_a_person_gets_what_tab_completes(root: Path, tmp_path: Path, way: str) -> None:
    shell = way.split(maxsplit=1)[0]
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    plant(root / "sessions", "demo", "team/a")
    (tmp_path / "notes.jsonl").touch()
    (tmp_path / "_steno").write_text(Steno(root)("completion", shell).out)
    compinit = "autoload -Uz compinit; compinit -u -D"
    begin = {
        "bash": "source ./_steno",
        "zsh": f'{compinit}; eval "$(cat _steno)"',
        "zsh from its fpath": f"fpath=($PWD $fpath); {compinit}",
    }[way]
    with Terminal([shell, "--norc" if shell == "bash" else "-f", "-i"], root, tmp_path) as terminal:
        terminal.type(f"{begin}; echo rea''dy\n", until="ready")
        terminal.type("steno una\t", until="steno unarchive ")
        terminal.type("\x15steno show de\t", until="steno show demo ")
        # No space behind what goes on.
        terminal.type("\x15steno show te\ta\t", until="steno show team/a ")
        terminal.type("\x15steno append demo --role as\t", until="--role assistant ")
        terminal.type("\x15steno verify no\t", until="steno verify notes.jsonl ")


def test_a_script_as_json_is_the_same_script(root: Path) -> None:
    steno = Steno(root)
    told = steno("completion", "bash", "--json").document
    assert told == {"shell": "bash", "script": steno("completion", "bash").out}
    assert steno("completion", "fish").code == 2
    assert [*root.iterdir()] == []

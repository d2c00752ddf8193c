"""`steno completion`: the candidates in bash, zsh and fish, without a daemon and without Python."""

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
from support.generate_completions import SHELLS, generated, path_of

BASH = """
source {script}
COMP_LINE="steno $1"
COMP_POINT=${{#COMP_LINE}}
_steno
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

ZSH = """
autoload -Uz compinit; compinit -u -D
eval "$(<{script})"
compadd() {{
    local -a found
    if [[ ${{@[1,(i)(-|--)]}} != *-(O|A|D)\\ * ]]; then
        builtin compadd -O found "$@"
        candidates+=($found)
    fi
    builtin compadd "$@"
}}
report() {{
    candidates=()
    zle list-choices
    print -rl -- $candidates > {found}
}}
zle -N report; bindkey '^T' report
"""

FISH = """
source {script}
complete -C "steno $STENO_TYPED" | string replace -r '\\t.*' ''
"""

Complete = Callable[..., list[str]]


class Terminal:
    """An interactive shell on a terminal."""

    def __init__(self, words: list[str], root: Path, folder: Path, **environment: str) -> None:
        self._controller, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        usual = {"PATH": os.environ["PATH"], "HOME": str(folder), "STENO_HOME": str(root)}
        self._process = subprocess.Popen(
            words,
            stdin=terminal, stdout=terminal, stderr=terminal,
            cwd=folder, env={"TERM": "dumb", **usual, **environment}, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._controller)

    def type(self, keys: str, *, until: str = "") -> None:
        """Type, and wait until a text is shown that was not there before."""
        os.write(self._controller, keys.encode())
        self._shown = ""
        while until not in self._shown:
            ready, _, _ = select.select([self._controller], [], [], 20)
            assert ready, f"{until!r} was never shown: {self._shown!r}"
            self._shown += os.read(self._controller, 4096).decode()


@pytest.fixture(scope="module", params=SHELLS)
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
    """The candidates for the last word after `steno`."""
    # Nothing but the shell and `sed`: neither steno nor Python can be found. fish itself uses `ls`.
    (tmp_path / "bin").mkdir()
    for tool in ("sed", "ls"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    path = str(tmp_path / "bin")

    def in_bash(words: str, **environment: str) -> list[str]:
        code = BASH.format(script=script)
        ran = subprocess.run(
            [shutil.which("bash") or "bash", "--norc", "-c", code, "_", words],
            env={"PATH": path, "HOME": str(tmp_path), "STENO_HOME": str(root), **environment},
            cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, "")
        return sorted(filter(None, ran.stdout.split("\n")))

    def in_zsh(words: str, **environment: str) -> list[str]:
        found, setup = tmp_path / "found", tmp_path / "setup"
        found.unlink(missing_ok=True)
        os.mkfifo(found)
        setup.write_text(ZSH.format(script=script, found=found))
        shell = [shutil.which("zsh") or "zsh", "-f", "-i"]
        with Terminal(shell, root, tmp_path, PATH=path, **environment) as terminal:
            terminal.type(f"source {setup}; echo rea''dy\n", until="ready")
            terminal.type(f"steno {words}\x14")
            return sorted({*filter(None, found.read_text().split("\n"))})

    def in_fish(words: str, **environment: str) -> list[str]:
        usual = {"PATH": path, "HOME": str(tmp_path), "STENO_HOME": str(root)}
        ran = subprocess.run(
            [shutil.which("fish") or "fish", "--no-config", "-c", FISH.format(script=script)],
            env={**usual, "STENO_TYPED": words, **environment},
            cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        # Without a candidate, the exit code is 1.
        assert ran.stderr == ""
        # fish completes the whole word, and marks a folder by a slash.
        option = words.rpartition(" ")[2].partition("=")[0] + "="
        found = (each.removeprefix(option) for each in ran.stdout.split("\n"))
        return sorted(filter(None, found))

    return {"bash": in_bash, "zsh": in_zsh, "fish": in_fish}[script.name]


def plant(tree: Path, *sessions: str) -> None:
    for session in sessions:
        (tree / session).mkdir(parents=True)
        (tree / session / "context.jsonl").touch()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_in_the_package_is_the_generated_one(shell: str) -> None:
    written = path_of(shell).read_text()
    assert written == generated(shell), (
        "run `PYTHONPATH=tests python -m support.generate_completions`"
    )


def test_commands_and_actions_are_candidates(complete: Complete) -> None:
    assert {"show", "grep", "dmail", "completion"} <= set(complete(""))
    assert complete("una") == ["unarchive"]
    assert complete("dmail ") == ["deliver", "send", "show"]
    assert complete("--json sh") == ["show"]


def test_options_and_their_choices_are_candidates(complete: Complete) -> None:
    assert complete("show --n") == ["--name", "--no-pager"]
    assert complete("append demo --role ") == ["assistant", "system", "tool", "user"]
    assert complete("export demo --format k") == ["kimi", "kimi-code"]
    assert complete("completion ") == ["bash", "fish", "zsh"]
    assert complete("show --at ") == []


def test_session_ids_are_completed_a_folder_at_a_time(complete: Complete, root: Path) -> None:
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


def test_session_ids_are_those_of_the_root_in_use(
    complete: Complete, root: Path, tmp_path: Path
) -> None:
    plant(tmp_path / "other" / "sessions", "elsewhere")
    plant(tmp_path / ".local" / "state" / "steno" / "sessions", "at-home")
    assert complete(f"--root {tmp_path}/other show ") == ["elsewhere"]
    assert complete("show --root=~/other ") == ["elsewhere"]
    assert complete("show ", STENO_HOME="") == ["at-home"]
    assert complete("show ", STENO_HOME=str(root / "nowhere")) == []


def test_session_ids_of_a_mount_are_completed_after_its_name(
    complete: Complete, root: Path, tmp_path: Path, script: Path
) -> None:
    plant(tmp_path / "kimi sessions", "hash/one", "hash/two")
    (root / "config.toml").write_text(
        f'idle_s = 5\n[mounts]\nkimi = "{tmp_path}/kimi sessions"\nhome = "~/kimi sessions"\n'
        '[more]\nother = "~"\n'
    )
    assert complete("show ") == ["home:", "kimi:"]
    # bash replaces only the part after the colon.
    head = "" if script.name == "bash" else "kimi:"
    assert complete("show kimi:") == [f"{head}hash/"]
    assert complete("show kimi:hash/o") == [f"{head}hash/one"]
    head = "" if script.name == "bash" else "home:"
    assert complete("show home:hash/t") == [f"{head}hash/two"]


def test_paths_are_completed_where_a_path_is_expected(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert [each.rstrip("/") for each in complete("import fo")] == ["folder"]
    assert complete("export demo -o fi") == ["file"]


def test_a_target_is_completed_as_a_session_or_else_as_a_path(
    complete: Complete, root: Path, tmp_path: Path
) -> None:
    plant(root / "sessions", "demo")
    (tmp_path / "notes.jsonl").touch()
    for command in ("verify", "verify other", "repair --apply"):
        assert complete(f"{command} de") == ["demo"]
        assert complete(f"{command} no") == ["notes.jsonl"]
        assert [Path(each).name for each in complete(f"{command} ./no")] == ["notes.jsonl"]


@pytest.mark.parametrize("way", ["bash", "zsh", "zsh from its fpath"])
def test_tab_completes_in_an_interactive_shell(root: Path, tmp_path: Path, way: str) -> None:
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
        # No space after an unfinished id.
        terminal.type("\x15steno show te\ta\t", until="steno show team/a ")
        terminal.type("\x15steno append demo --role as\t", until="--role assistant ")
        terminal.type("\x15steno verify no\t", until="steno verify notes.jsonl ")


def test_a_script_as_json_is_the_same_script(root: Path, steno: Steno) -> None:
    document = steno("completion", "bash", "--json").document
    assert document == {"shell": "bash", "script": steno("completion", "bash").out}
    assert [*root.iterdir()] == []

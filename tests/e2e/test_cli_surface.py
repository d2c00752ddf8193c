"""The surface of the command: names, help, suggestions and short forms."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steno import connect_sync
from steno_protocol import __version__
from support.command import Steno
from support.remote_access import allow, listen

HOLDER = """
import socket

listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
input()
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shw"], "there is no command 'shw': did you mean show? See `steno --help`"),
        (["session"], "there is no command 'session': did you mean sessions? See"),
        (["keys", "lst"], "there is no action 'lst': did you mean list? See `steno keys --help`"),
        (["qqqq"], "there is no command 'qqqq'; see `steno --help`"),
        (["stats", "--format", "xml"], "there is no 'xml': choose from text, prometheus; see"),
        (["help", "shw"], "there is no command 'shw': did you mean show?"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_wrong_word_suggests_the_nearest(root: Path, words: list[str], said: str) -> None:
    ran = Steno(root)(*words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert said in ran.err


def test_ls_is_sessions_and_a_short_option_prints_the_version(steno: Steno) -> None:
    steno("append", "demo", "hi")
    assert steno("ls", "--json").document == steno("sessions", "--json").document
    assert steno("-V").out == steno("--version").out == f"steno {__version__}\n"


def test_a_dash_and_a_number_are_the_number_of_lines(steno: Steno) -> None:
    for text in ("a", "b", "-3"):
        assert steno("append", "demo", "--", text).code == 0
    assert steno("tail", "-2", "demo").out == steno("tail", "demo", "-n", "2").out
    assert len(steno("tail", "demo", "-1").out.splitlines()) == 1
    assert len(steno("logs", "-1").out.splitlines()) == 1
    # Only where there is a -n.
    assert steno("read", "demo", "-1").code == 2


def test_help_of_a_command_shows_its_own_options_and_one_line_for_the_others(steno: Steno) -> None:
    shown = steno("tail", "--help").out
    assert shown == steno("help", "tail").out
    assert shown.startswith("usage: steno tail [OPTIONS] SESSION\n")
    assert "--follow" in shown
    assert "--endpoint" not in shown
    assert shown.count("steno help options") == 1
    options = steno("help", "options").out
    for option in ("--root", "--socket", "--endpoint", "--key-file", "--name", "--timeout"):
        assert option in options
    assert steno("help", "keys", "new").out.startswith("usage: steno keys new")
    assert steno("help", "tail", "--json").document == {"help": shown}


def test_the_manual_is_paged_on_a_terminal(root: Path) -> None:
    steno = Steno(root, PAGER="sed s/^/paged:/")
    manual = steno("help", "manual").out
    assert manual.startswith(f"steno {__version__}\n\nNAME\n")
    assert "\n    steno tail [OPTIONS] SESSION\n" in manual
    assert "paged:steno" in steno.on_terminal(80, "help", "manual", typed="")


def test_a_dry_run_of_gc_alone_shows_everything_and_the_command_that_removes_it(
    steno: Steno,
) -> None:
    for _ in range(2):
        steno("append", "demo", "hi")
        steno("clear", "demo")
    ran = steno("gc", "--dry-run")
    assert (ran.code, len(ran.out.splitlines())) == (0, 1)
    assert "to remove them: steno gc --keep-generations 1 --trash" in ran.err
    assert steno("gc", "demo", "--keep-generations", "1", "--trash").out == ran.out
    assert steno("gc", "--dry-run").out == ""
    refused = steno("gc")
    assert refused.code == 2
    assert "`steno gc --dry-run`" in refused.err


def test_tail_waits_for_a_session_that_is_created_later(steno: Steno) -> None:
    steno("start")
    missing = steno("tail", "-f", "late")
    assert missing.code == 4
    assert "`steno tail -f late --wait` waits for it" in missing.err
    tail = steno.begin("tail", "-f", "late", "--wait", stderr=subprocess.PIPE)
    try:
        assert tail.stderr is not None
        assert "waiting for it" in tail.stderr.readline()
        steno("append", "late", "at last")
        assert tail.stdout is not None
        assert "at last" in tail.stdout.readline()
    finally:
        tail.kill()
        tail.communicate()


def test_a_new_session_counts_no_error(steno: Steno) -> None:
    for words in (["append", "a", "hi"], ["checkpoint", "b"], ["emit", "c", "Note"], ["ls"]):
        assert steno(*words).code == 0
    assert steno("stats", "--json").document["errors"] == {}


def test_restart_keeps_the_port_that_the_system_chose(root: Path, steno: Steno) -> None:
    listen(root)
    key = allow(root, "laptop", "read")
    started = steno("start", "--json")
    assert started.code == 0
    for _ in range(3):
        endpoint = steno("status", "--json").document["remote_endpoint"]
        ran = steno("restart")
        if f"for other machines at {endpoint}" in ran.err:
            break
        # The system gave the port to another program while no daemon had it.
    assert f"for other machines at {endpoint}" in ran.err
    with connect_sync(endpoint=endpoint, key_file=key, spawn=False) as client:
        assert client.status().remote_endpoint == endpoint


def test_a_taken_or_invalid_kept_port_gives_a_new_one(root: Path, steno: Steno) -> None:
    listen(root)
    allow(root, "laptop")
    for kept in ("x", "0", "99999", ""):
        (root / "stenod.port").write_text(kept)
        assert steno("restart").code == 0
        assert steno("status", "--json").document["remote_endpoint"].startswith("tcp://127.0.0.1:")
    assert steno("stop").code == 0
    with subprocess.Popen(  # holds the port until the end of the test
        [
            sys.executable, "-c",
            HOLDER,
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        taken = holder.stdout.readline().strip()
        (root / "stenod.port").write_text(taken)
        assert steno("start").code == 0
        endpoint = steno("status", "--json").document["remote_endpoint"]
        holder.communicate("\n")
    assert not endpoint.endswith(f":{taken}")


@pytest.mark.parametrize(
    ("home", "words"),
    [
        ("", "steno_cli append demo hi"),
        ("/proc", "steno_cli append demo hi"),
        ("~", "steno_cli append demo hi"),
        ("~", "steno_cli service show"),
        ("", "stenod --foreground"),
        ("/proc", "stenod --foreground"),
        ("~", "stenod --foreground"),
    ],
)
def test_an_unusable_home_is_refused_with_what_to_set(
    tmp_path: Path, home: str, words: str
) -> None:
    unset = {"STENO_HOME", "XDG_STATE_HOME", "STENO_SOCKET"}
    ran = subprocess.run(
        [sys.executable, "-m", *words.split()],
        env={key: text for key, text in os.environ.items() if key not in unset} | {"HOME": home},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == (5 if home == "/proc" and "append" in words else 1)
    assert "set HOME" in ran.stderr
    assert "STENO_HOME" in ran.stderr
    assert ("the user's home folder is unknown" in ran.stderr) == (home != "/proc")
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []

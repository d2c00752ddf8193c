"""`steno` alone, `steno help`, and names that commands had before; in process."""

import json
import subprocess
import sys

import pytest

from steno_cli.command_table import COMMANDS, FIRST, RENAMED
from steno_cli.entry import main
from steno_cli.parser import build_parser


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["help"], ["--timeout", "5"]], ids=lambda each: " ".join(each) or "-"
)
def test_first_help_is_shown_without_a_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (build_parser([]).format_help(), "")


def test_first_help_is_a_document_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"help": build_parser([]).format_help()}


def test_help_of_all_has_the_commands_and_the_exit_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["help", "--all"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name}" not in shown] == []
    assert "exit codes:\n  0    done\n" in shown
    assert main(["help", "--all", "show"]) == 2


@pytest.mark.parametrize(
    ("before", "today"),
    [
        (["stat", "demo"], ["info", "demo"]),
        (
            ["--root", "stat", "stat", "demo", "--json"],
            ["--root", "stat", "info", "demo", "--json"],
        ),
        (["stats"], ["status", "--counters"]),
        (["--json", "stats"], ["--json", "status", "--counters"]),
        (["stats", "--format", "prometheus"], ["status", "--counters", "--format", "prometheus"]),
    ],
    ids=" ".join,
)
def test_a_former_name_means_the_command_of_today(before: list[str], today: list[str]) -> None:
    assert build_parser(before).parse_args(before) == build_parser(today).parse_args(today)


@pytest.mark.parametrize("name", RENAMED)
def test_a_former_name_is_in_no_list_and_has_the_help_of_today(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    present = RENAMED[name][0]
    assert name not in {*COMMANDS, *(each for names in FIRST.values() for each in names)}
    assert f"  {name} " not in build_parser([], lists_all=True).format_help()
    assert main(["help", name]) == 0
    assert capsys.readouterr().out.startswith(f"usage: steno {present} ")


_WITHOUT_EXTRAS = """
import contextlib, io, sys
from steno_cli.command_table import COMMANDS
from steno_cli.entry import main

present = {*sys.stdlib_module_names, "anyio", "idna", "msgspec", "typing_extensions", "zmq"}

class Minimal:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package not in present and not package.startswith("steno"):
            raise ModuleNotFoundError(f"no module named {name}", name=name)

sys.meta_path.insert(0, Minimal())
assert "httpx2" not in sys.modules
for name in COMMANDS:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert main([name, "--help"]) == 0, name
    assert shown.getvalue().startswith(f"usage: steno {name}"), name
print(len(COMMANDS))
"""


def test_help_of_each_command_needs_no_extra() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_EXTRAS],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == (f"{len(COMMANDS)}\n", "")

"""The documents against the code: examples, commands and options."""

import os
import re
import subprocess
import sys
import tomllib
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from house.parsers import all_parsers, arguments, options, subcommand_in, subcommands
from steno_cli.command_table import ALIASES, RENAMED
from steno_cli.configuration import read_file
from steno_protocol import __version__
from support.documents import Block, blocks, code_lines, command_words, table_rows
from support.project import PROJECT, SOURCES

README = PROJECT / "README.md"
COMMANDS = PROJECT / "client" / "guide" / "commands.md"
DESIGN = PROJECT / "daemon" / "DESIGN.md"
GUIDE_FOLDER = PROJECT / "client" / "guide"
REFERENCE = sorted((GUIDE_FOLDER / "reference").glob("*.md"))
"""Generated, and tested with the docstrings."""
GUIDES = sorted({*GUIDE_FOLDER.rglob("*.md")} - {*REFERENCE})
DECISIONS = sorted((PROJECT / "daemon" / "decisions").glob("*.md"))
DOCUMENTS = [README, *sorted(PROJECT.glob("*/*.md")), *GUIDES, *REFERENCE, *DECISIONS]
README_BYTES_MAX = 9_000
GUIDE_BYTES_MAX = 8_000
DESIGN_BYTES_MAX = 15_000
QUICK_START = "quick-start"
BIN = Path(sys.executable).parent


def _examples(*languages: str) -> list[tuple[str, Block]]:
    """The blocks that a reader would run, by document; CI runs those under a command marker."""
    return [
        (document.stem, block)
        for document in (README, *GUIDES)
        for block in blocks(document)
        if block.language in languages
        and not (block.marker or "").startswith(("command:", "not run:"))
    ]


def _alone(language: str) -> list[tuple[str, Block]]:
    """Those that run in a root of their own; the steps of the quick start follow each other."""
    return [example for example in _examples(language) if example[0] != QUICK_START]


def _run(arguments: list[str], root: Path, folder: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "STENO_SOCKET"}
    path = f"{BIN}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(
        arguments,
        cwd=folder,
        env={**environment, "STENO_HOME": str(root), "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _name_of(example: tuple[str, Block]) -> str:
    document, block = example
    return f"{document}-{block.line}"


def _cases(language: str) -> list[Any]:
    """Those that run alone, as cases of a test: a minute of processes, so the guide's are slow."""
    return [
        pytest.param(
            each, id=_name_of(each), marks=[] if each[0] == README.stem else [pytest.mark.slow]
        )
        for each in _alone(language)
    ]


@pytest.mark.parametrize("example", _cases("python"))
def test_a_python_example_runs(example: tuple[str, Block], root: Path, tmp_path: Path) -> None:
    _run([sys.executable, "-W", "error", "-c", example[1].code], root, tmp_path)


def test_the_python_examples_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="it comes with the extra `lint`")
    for document, block in _examples("python"):
        (tmp_path / f"{document.replace('-', '_')}_{block.line}.py").write_text(block.code)
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".cache", "."]
    # As their readers have it, and not as this project is configured.
    rooms = os.pathsep.join(str(PROJECT / room) for room in ("protocol", "daemon", "client"))
    ran = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "MYPYPATH": rooms},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("example", _cases("sh"))
def test_a_shell_example_runs(example: tuple[str, Block], root: Path, tmp_path: Path) -> None:
    _run(["bash", "-euo", "pipefail", "-c", example[1].code], root, tmp_path)


def test_the_quick_start_runs_in_one_root_from_top_to_bottom(root: Path, tmp_path: Path) -> None:
    steps = [block for page, block in _examples("sh", "python") if page == QUICK_START]
    assert {block.language for block in steps} == {"sh", "python"}
    for block in steps:
        shell = ["bash", "-euo", "pipefail", "-c"]
        interpreter = [sys.executable, "-W", "error", "-c"]
        _run([*(shell if block.language == "sh" else interpreter), block.code], root, tmp_path)


@pytest.mark.parametrize("example", _examples("toml"), ids=_name_of)
def test_a_configuration_example_is_valid(example: tuple[str, Block], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(example[1].code)
    settings = read_file(tmp_path, {})
    assert {path for path in settings.sources.values() if "config.toml" in path}


def test_the_documents_keep_their_sizes() -> None:
    assert len(README.read_bytes()) <= README_BYTES_MAX
    assert len(DESIGN.read_bytes()) <= DESIGN_BYTES_MAX
    assert [page.name for page in GUIDES if len(page.read_bytes()) > GUIDE_BYTES_MAX] == []


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_readme_gives_each_command_once_and_on_one_line(name: str) -> None:
    (found,) = [block for block in blocks(README) if block.marker == f"command: {name}"]
    assert len(found.code.splitlines()) == 1


def test_the_site_is_built_by_one_command_that_ci_runs_too() -> None:
    guide = GUIDE_FOLDER / "README.md"
    (found,) = [block.code for block in blocks(guide) if block.marker == "command: site"]
    assert len(found.splitlines()) == 1
    build = found.strip().rpartition(" && ")[2]
    assert " -m sphinx -W " in build
    steps = (PROJECT / ".ci" / "run").read_text().splitlines()
    assert [line for line in steps if line.strip().startswith("step ") and line.endswith(build)]


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    from steno_cli.parser import build_parser

    return build_parser()


@pytest.fixture(scope="module")
def daemon_parser() -> ArgumentParser:
    from stenod.cli import build_parser

    return build_parser()


def _calls(command: str) -> list[tuple[str, list[str]]]:
    """Each call of a command in the documents, with the document that it stands in."""
    return [
        (document.name, words)
        for document in DOCUMENTS
        for line in code_lines(document)
        for words in command_words(line, command)
    ]


def _options_in(words: list[str]) -> set[str]:
    found = re.findall(r"(?<![\w-])(?:--[a-z][a-z-]*|-[A-Za-z]\b)", " ".join(words))
    return {option for option in found if option not in {"--help", "-h"}}


def test_every_command_that_a_document_mentions_exists(parser: ArgumentParser) -> None:
    known = {None, *subcommands(parser), *ALIASES}
    # Only what is read after an upgrade names the former names.
    former = {(page, name) for page in ("changes.md", COMMANDS.name) for name in RENAMED}
    named = {(page, subcommand_in(parser, words)) for page, words in _calls("steno")}
    assert {(page, name) for page, name in named if name not in known} == former


def test_every_option_that_a_document_gives_a_command_exists(parser: ArgumentParser) -> None:
    known = {
        name: set[str]().union(*map(options, [parser, *all_parsers(sub)]))
        for name, sub in subcommands(parser).items()
    }
    unknown = [
        (document, words)
        for document, words in _calls("steno")
        if not _options_in(words) <= known.get(str(subcommand_in(parser, words)), options(parser))
    ]
    assert unknown == []


def test_every_option_that_a_document_gives_the_daemon_exists(
    daemon_parser: ArgumentParser,
) -> None:
    known = options(daemon_parser)
    assert [call for call in _calls("stenod") if not _options_in(call[1]) <= known] == []


def test_every_command_is_described(parser: ArgumentParser) -> None:
    described = {
        subcommand_in(parser, words)
        for line in code_lines(COMMANDS)
        for words in command_words(line, "steno")
    }
    assert {*subcommands(parser), *ALIASES} - described == set()


def test_every_option_is_described(parser: ArgumentParser, daemon_parser: ArgumentParser) -> None:
    pages = [COMMANDS, *COMMANDS.with_suffix("").glob("*.md")]
    described = _options_in([line for page in pages for line in code_lines(page)])
    there = {
        option
        for each in (*all_parsers(parser), daemon_parser)
        for option in options(each)
        if option not in {"--help", "-h"}
    }
    assert there - described == set()


def test_every_command_module_is_in_the_table_and_has_its_functions() -> None:
    from steno_cli import commands
    from steno_cli.command_table import COMMANDS
    from steno_cli.parser import build_parser, module_of

    folder = Path(str(commands.__file__)).parent
    there = {f"{commands.__name__}.{file.stem}" for file in folder.glob("*.py")}
    assert there - {f"{commands.__name__}.__init__"} == {module_of(name) for name in COMMANDS}
    assert {*subcommands(build_parser())} == {*COMMANDS}


@pytest.mark.parametrize(
    "words", [["--help"], ["nonsense"], ["info"], ["--root", "stat", "stat", "demo"]]
)
def test_a_call_imports_the_command_module_that_it_names_and_no_other(words: list[str]) -> None:
    code = (
        "import sys\nfrom steno_cli.parser import build_parser\nbuild_parser(sys.argv[1:])\n"
        "print(*[name for name in sys.modules if name.startswith('steno_cli.commands.')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == (
        ["steno_cli.commands.looking"] if {"info", "stat"} & {*words} else []
    )


def test_the_help_of_all_lists_every_command_with_its_summary() -> None:
    from steno_cli.command_table import COMMANDS, GROUPS
    from steno_cli.parser import build_parser

    listed = " ".join(build_parser([], lists_all=True).format_help().split())
    assert f"sessions, ls {COMMANDS['sessions']}" in listed
    unlisted = [name for name, text in COMMANDS.items() if f"{name} {text}" not in listed]
    assert unlisted == ["sessions"]
    assert [
        title for title in GROUPS if f"{title}: {next(iter(GROUPS[title]))}" not in listed
    ] == []


def test_the_first_help_lists_at_most_25_commands_and_when_to_use_which_way_back() -> None:
    from steno_cli.command_table import COMMANDS, FIRST, GOING_BACK, RENAMED
    from steno_cli.parser import build_parser

    shown = build_parser([]).format_help()
    rows = re.findall(r"^  ([a-z]+)(?:, ls)? {2,}\S", shown, re.MULTILINE)
    assert rows == [name for names in FIRST.values() for name in names]
    assert len({*rows}) == len(rows) <= 25
    assert {*rows} < {*COMMANDS}
    assert GOING_BACK in " ".join(shown.split())
    sentences = re.findall(r"(?:^|\. )(\w+) (?:makes?|drops) |(?:\. )(\w+) removes ", GOING_BACK)
    assert ["".join(pair) for pair in sentences] == ["undo", "revert", "restore", "fork"]
    assert RENAMED.keys().isdisjoint(COMMANDS)
    assert [old for old in RENAMED if f" {old} " in shown] == []


def test_the_example_that_each_help_ends_with_is_a_call_of_that_command(
    parser: ArgumentParser,
) -> None:
    wrong = [
        (name, line)
        for name, top in subcommands(parser).items()
        for sub in all_parsers(top)
        for line in (sub.epilog or "example:").splitlines()[1:] or ["none"]
        if not _is_call(parser, name, line.strip())
    ]
    assert wrong == []


def test_every_argument_has_a_help_text_with_its_default(parser: ArgumentParser) -> None:
    silent = [
        f"{sub.prog} {name}"
        for sub in all_parsers(parser)
        for name, summary, default in arguments(sub)
        if not summary or (isinstance(default, int | float) and "default" not in summary)
    ]
    assert silent == []


def test_every_action_of_a_command_is_described(parser: ArgumentParser) -> None:
    described = {" ".join(words[:2]) for words in (call[1] for call in _calls("steno"))}
    there = {
        f"{name} {action}"
        for name, sub in subcommands(parser).items()
        for action in subcommands(sub)
    }
    assert there - described == set()


def _is_call(parser: ArgumentParser, name: str, line: str) -> bool:
    (words,) = [*command_words(line, "steno")] or [[]]
    try:
        return words[:1] == [name] and parser.parse_args(words).command == name
    except SystemExit:
        return False


def test_the_exit_codes_of_the_command_are_described() -> None:
    import steno_cli
    from steno_cli.exits import MEANINGS, Exit

    documented = {int(row[0]) for row in table_rows(COMMANDS, "Exit codes")}
    assert documented == {code.value for code in Exit}
    listed = [line.split(maxsplit=1) for line in (steno_cli.__doc__ or "").splitlines()]
    told_in_code = {row[0]: row[1] for row in listed if row and row[0].isdigit()}
    assert told_in_code == {str(code.value): text for code, text in MEANINGS.items()}


def test_every_command_has_the_function_that_carries_it_out(parser: ArgumentParser) -> None:
    missing = [
        sub.prog
        for each in subcommands(parser).values()
        for sub in all_parsers(each)
        if not subcommands(sub) and not callable(sub.get_default("run"))
    ]
    assert missing == []


def test_every_command_has_its_document_of_json_described(parser: ArgumentParser) -> None:
    from support.generate_documents import DOCUMENTS

    described = {words for each in DOCUMENTS for words in each.commands}
    leaves = {
        " ".join(str(sub.prog).split()[1:])
        for each in subcommands(parser).values()
        for sub in all_parsers(each)
        if not subcommands(sub)
    }
    # Some documents are those of one option.
    printing = {
        name for name in leaves for words in described if f"{words} ".startswith(f"{name} ")
    }
    assert leaves - printing == set()
    assert {words for words in described if not words.startswith(tuple(leaves))} == set()


def test_every_test_that_a_document_names_exists() -> None:
    there = {
        name
        for file in (PROJECT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    named = {
        name for document in DOCUMENTS for name in re.findall(r"`(test_\w+)`", document.read_text())
    }
    assert named
    assert named - there == set()


def test_each_promise_of_the_readme_is_a_guarantee_with_tests() -> None:
    rows = table_rows(GUIDE_FOLDER / "guarantees.md", "Guarantees and their tests")
    promises = [
        line.removeprefix("* ").removesuffix(".")
        for line in README.read_text().splitlines()
        if line.startswith("* **")
    ]
    assert promises == [promise for promise, _ in rows]
    assert [promise for promise, shown in rows if "`test_" not in shown] == []


def test_each_guarantee_has_a_test_that_is_not_slow() -> None:
    quick = {
        name
        for file in (PROJECT / "tests").rglob("test_*.py")
        # The decorators of a test are between it and the empty line before.
        for marks, name in re.findall(
            r"^((?:[@ )].*\n)*)(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE
        )
        if not re.search(r"^@pytest\.mark\.slow$", marks, re.MULTILINE)
    }
    rows = table_rows(GUIDE_FOLDER / "guarantees.md", "Guarantees and their tests")
    assert [promise for promise, shown in rows if quick.isdisjoint(shown.split("`"))] == []


def test_every_variable_of_the_environment_is_described() -> None:
    read = {
        name
        for file in SOURCES
        for name in re.findall(r"[\"'](STENO_[A-Z_]*[A-Z])[\"']", file.read_text())
    }
    documented = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"STENO_[A-Z_]+", document.read_text())
    }
    assert read - documented == set()


def test_every_decision_is_in_the_index() -> None:
    index = (PROJECT / "daemon" / "decisions" / "README.md").read_text()
    assert [page.name for page in DECISIONS if f"({page.name})" not in index] == ["README.md"]


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for document in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", document.read_text()):
            there = (document.parent / target).resolve() if target else document
            assert there.exists(), f"{document.name}: {target}"
            assert not anchor or anchor in _anchors(there), f"{document.name}: {target}#{anchor}"


def _anchors(document: Path) -> set[str]:
    """The anchors of the headings of a document, as they are derived from the text."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_of_the_guide_is_in_its_index() -> None:
    index = (GUIDE_FOLDER / "README.md").read_text()
    pages = [page for page in GUIDES if page.parent == GUIDE_FOLDER]
    assert [page.name for page in pages if f"]({page.name})" not in index] == ["README.md"]
    parts = [page for page in GUIDES if page.parent != GUIDE_FOLDER]
    for page in parts:
        assert (
            f"({page.parent.name}/{page.name})"
            in (GUIDE_FOLDER / f"{page.parent.name}.md").read_text()
        )


def test_every_module_of_the_daemon_has_a_room() -> None:
    rooms = table_rows(DESIGN, "The rooms")
    documented = {name for room, *_ in rooms for name in re.findall(r"`?([a-z_]+)/?`?", room)}
    folder = PROJECT / "daemon" / "stenod"
    there = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("__")}
    there |= {file.parent.name for file in folder.glob("*/__init__.py")}
    assert there - documented == set()
    assert documented - there == set()


@pytest.mark.parametrize("name", ["steno_protocol", "steno_system", "steno"])
def test_every_module_of_a_package_is_in_the_list_of_it(name: str) -> None:
    package = import_module(name)
    assert package.__doc__ is not None
    assert package.__file__ is not None
    modules = {file.stem for file in Path(package.__file__).parent.glob("*.py")}
    assert modules - {"__init__"} <= set(re.findall(r"\w+", package.__doc__))


def test_the_distribution_has_the_version_of_the_code() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_each_generated_part_of_the_manual_is_up_to_date() -> None:
    from support.generate_manual import PAGES, generated

    texts = generated()
    stale = [path.name for path, text in texts.items() if path.read_text() != text]
    assert stale == [], "run `PYTHONPATH=tests python -m support.generate_manual`"
    assert {path for path in texts if path.parent == PAGES} == {*PAGES.glob("*")}

"""The layout of the repository and its house style."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

from support.project import PROJECT, SOURCE_FOLDERS, SOURCES, project_files, python_files

FUNCTION_LINES_MAX = 60
SENTENCE_ENDS = (".", ":", "?", "!")

_SLEEPS = {f"{module}.sleep" for module in ("time", "anyio", "trio", "asyncio")}
_FOLDERS = "|".join(SOURCE_FOLDERS)
# Written in pieces, so that this file does not find itself.
_MACHINE_PATHS = re.compile("/" + r"(?:root/\.|work/|Users/)|/home/(?!\{)\w+/")
_REGISTRY_HOSTS = re.compile(r"pypi\.(?:org|io)|pythonhosted\.|npmjs\.|crates\.io|/" + "simple/")
_DOCSTRING = re.compile(r'(?:#.*\n|\s)*[rR]?"""(.+?)"""', re.DOTALL)
_ESCAPE = re.compile(r"\\[uUxN0-7]")
_LEFT_TO_DO = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def _name(file: Path) -> str:
    return str(file.relative_to(PROJECT))


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes(), str(file))


def _python_files_with(pattern: re.Pattern[str]) -> list[Path]:
    """The Python files in which a pattern occurs: a search takes less than a parse."""
    return [file for file in python_files() if pattern.search(file.read_text())]


def _text_files() -> Iterator[tuple[str, str]]:
    for file in project_files():
        data = file.read_bytes()
        if b"\0" not in data:
            yield _name(file), data.decode(errors="replace")


def _functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    waiting: list[ast.AST] = [_tree(file)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        # No expression has a function inside it, and most of a tree are expressions.
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting += getattr(node, name, ())


def _is_utf8(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def _code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_the_source_folders_are_no_packages_themselves() -> None:
    found = [folder for folder in SOURCE_FOLDERS if (PROJECT / folder / "__init__.py").exists()]
    assert found == []


def test_no_file_imports_a_package_through_its_folder() -> None:
    through = re.compile(rf"^\s*(?:from|import) (?:{_FOLDERS})\b", re.MULTILINE)
    assert [_name(file) for file in python_files() if through.search(file.read_text())] == []


def test_no_lock_file_is_tracked_because_it_would_name_hosts() -> None:
    assert [_name(file) for file in project_files() if file.name == "uv.lock"] == []


def test_top_folder_contains_only_the_designed_entries() -> None:
    allowed = {
        *SOURCE_FOLDERS, "tests", "README.md", "pyproject.toml", "constraints.txt", "LICENSE",
    }  # fmt: skip
    tops = {file.relative_to(PROJECT).parts[0] for file in project_files()}
    assert {top for top in tops if not top.startswith(".")} <= allowed


def test_no_file_knows_a_path_of_one_machine() -> None:
    assert [name for name, text in _text_files() if _MACHINE_PATHS.search(text)] == []


def test_no_file_names_the_host_of_a_package_index() -> None:
    assert [name for name, text in _text_files() if _REGISTRY_HOSTS.search(text)] == []


def test_every_docstring_is_valid_utf_8() -> None:
    """Python 3.13 cannot import such a file: it takes the indentation out as it compiles.

    Only an escape can make a character that UTF-8 does not have.
    """
    found = [
        _name(file)
        for file in _python_files_with(_ESCAPE)
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not _is_utf8(ast.get_docstring(node) or "")
    ]
    assert found == []


def test_every_file_begins_with_a_sentence() -> None:
    assert [_name(file) for file in python_files() if not _begins_with_a_sentence(file)] == []


def _begins_with_a_sentence(file: Path) -> bool:
    docstring = _DOCSTRING.match(file.read_text())
    return docstring is not None and docstring[1].split("\n\n")[0].rstrip().endswith(SENTENCE_ENDS)


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {
        f"{_name(file)}:{function.lineno} {function.name}": _code_lines(function)
        for file in python_files()
        for function in _functions(file)
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_nothing_is_left_to_do_in_a_comment() -> None:
    found = [
        f"{_name(file)}:{token.start[0]}"
        for file in _python_files_with(_LEFT_TO_DO)
        for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline)
        if token.type == tokenize.COMMENT and _LEFT_TO_DO.search(token.string)
    ]
    assert found == []


def test_no_test_sleeps_except_a_helper_that_waits_for_a_fact() -> None:
    found = [
        f"{_name(file)}:{call.lineno}"
        for file in _python_files_with(re.compile("sleep"))
        if file.is_relative_to(PROJECT / "tests")
        for function in _functions(file)
        if not _is_waiting_helper(file, function)
        for call in _own_calls(function)
        if ast.unparse(call.func) in _SLEEPS
    ]
    assert found == []


def _is_waiting_helper(file: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return file.parent.name in {"support", "tools"} and function.name.startswith("wait_")


def _own_calls(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """The calls of a function; functions inside it are looked at by themselves."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        waiting.extend(
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        )


def test_every_ignored_complaint_names_its_code() -> None:
    bare = re.compile(r"#\s*(?:type: ignore(?!\[)|pyright: ignore(?!\[)|noqa(?!: [A-Z]))")
    assert [_name(file) for file in python_files() if bare.search(file.read_text())] == []


def test_every_source_file_is_in_a_package() -> None:
    homes = {file.relative_to(PROJECT).parts[:2] for file in SOURCES}
    packages = {
        package.relative_to(PROJECT).parts[:2]
        for folder in SOURCE_FOLDERS
        for package in (PROJECT / folder).glob("*/__init__.py")
    }
    assert homes == packages


def test_every_package_and_every_room_of_the_daemon_has_tests_of_its_name() -> None:
    packages = {file.relative_to(PROJECT).parts[1] for file in SOURCES}
    daemon = {file.parent for file in SOURCES if file.parent.parent.name == "stenod"}
    rooms = packages | {f"stenod/{room.name}" for room in daemon}
    tests = PROJECT / "tests"
    assert {room for room in rooms if not list((tests / room).rglob("test_*.py"))} == set()


def test_the_ci_script_is_executable() -> None:
    script = PROJECT / ".ci" / "run"
    assert script.stat().st_mode & 0o100
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_slow_tests_are_marked_where_ci_looks_for_them() -> None:
    mark = "mark." + "slow"
    marked = {file.name for file in python_files() if mark in file.read_text()}
    assert marked
    assert {name for name in marked if not name.startswith("test_")} == set()

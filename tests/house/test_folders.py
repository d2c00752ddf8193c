"""Each new folder is private, whatever the umask."""

import ast

import pytest

from support.project import sources_with

_MAKERS = {"mkdir", "makedirs"}


def _loose(tree: ast.AST) -> list[int]:
    """Lines with a call that leaves the mode of a folder, or of its parents, to the umask."""
    found: list[int] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in _MAKERS:
            continue
        words = {each.arg: each.value for each in node.keywords}
        is_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
        has_mode = "mode" in words or (is_os and len(node.args) > 1)
        if node.func.attr == "makedirs" or "parents" in words or not has_mode:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    ("line", "is_loose"),
    [
        ("path.mkdir()", True),
        ("path.mkdir(mode=0o700, parents=True)", True),
        ("os.makedirs(path, 0o700)", True),
        ("path.mkdir(mode=0o700, exist_ok=True)", False),
        ("os.mkdir(name, _MODE, dir_fd=parent)", False),
    ],
)
def test_a_loose_call_is_found(line: str, is_loose: bool) -> None:
    assert bool(_loose(ast.parse(line))) == is_loose


def test_no_folder_is_left_to_the_umask() -> None:
    loose = {
        str(path): lines
        for path in sources_with(_MAKERS)
        if (lines := _loose(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert loose == {}

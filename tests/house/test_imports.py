"""Imports: the contracts of pyproject.toml, and the packages that each part needs."""

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from support.project import PROJECT, SOURCE_FOLDERS

OURS = {
    "steno_protocol": {"msgspec"},
    "steno_system": {"msgspec"},
    "stenod": {"anyio", "msgspec", "zmq"},
    "stenod_cluster": {"anyio", "msgspec", "nats"},
    "steno": {"anyio", "msgspec", "zmq"},
    "steno_present": {"msgspec", "pygments"},
    "steno_redact": {"msgspec"},
    "steno_search": {"msgspec"},
    "steno_backup": {"msgspec"},
    "steno_agents": {"msgspec"},
    "steno_follow": {"msgspec"},
    "steno_web": {"starlette", "uvicorn", "anyio"},
    "steno_view": {"anyio", "markdown_it", "msgspec", "pygments", "starlette", "uvicorn"},
    "steno_mcp": {"anyio", "mcp", "mcp_types", "msgspec", "starlette"},
    "steno_cli": {"anyio", "markdown_it", "msgspec", "pygments", "rich"},
}
"""What each package may import of other people's packages."""

MORE = {
    "steno.adapters": {"kimi_cli", "kosong", "pydantic"},
    "steno.llm": {"httpx2"},
    "steno.testing": {"pytest"},
}
"""Packages that only this part of a package may import."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import of the packages, those of other people's packages included."""
    return grimp.build_graph(*OURS, include_external_packages=True, cache_dir=None)


def test_the_import_contracts_are_kept() -> None:
    checked = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("package", OURS)
def test_package_imports_only_its_declared_dependencies(
    graph: grimp.ImportGraph, package: str
) -> None:
    imported = {
        (importer, target.split(".")[0])
        for importer in {package, *graph.find_descendants(package)}
        for target in graph.find_modules_directly_imported_by(importer)
    }
    allowed = {*OURS, *sys.stdlib_module_names, *OURS[package]}
    assert {
        (importer, name)
        for importer, name in imported
        if name not in allowed | MORE.get(".".join(importer.split(".")[:2]), set())
    } == set()


def test_every_module_of_the_checkout_is_one_that_the_contracts_see(
    graph: grimp.ImportGraph,
) -> None:
    seen = {module for module in graph.modules if module.split(".")[0] in OURS}
    there = {
        ".".join(file.relative_to(PROJECT / home).with_suffix("").parts).removesuffix(".__init__")
        for home in SOURCE_FOLDERS
        for file in (PROJECT / home).rglob("*.py")
    }
    assert seen == there

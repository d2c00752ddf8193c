"""Imports: the contracts of pyproject.toml, and the packages that each part needs."""

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from support.project import PROJECT

OURS = ("steno_protocol", "stenod", "steno")
NEEDS = {
    "steno_protocol": {"msgspec"},
    "stenod": {"anyio", "msgspec", "zmq"},
    "steno": {"anyio", "msgspec", "zmq"},
}
MORE = {
    "steno.cli": {"markdown_it", "pygments", "rich"},
    "steno.adapters": {"kimi_cli", "kosong", "pydantic"},
    "steno.llm": {"httpx2"},
    "steno.mcp_server": {"mcp", "mcp_types", "starlette"},
    "steno.testing": {"pytest"},
    "steno.viewer": {"markdown_it", "pygments", "starlette", "uvicorn"},
    "stenod.replication": {"nats"},
    "steno.web": {"starlette", "uvicorn"},
}
"""Packages that only this part may import."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import of the three packages, those of other people's packages included."""
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
    allowed = {*OURS, *sys.stdlib_module_names, *NEEDS[package]}
    assert {
        (importer, name)
        for importer, name in imported
        if name not in allowed | MORE.get(".".join(importer.split(".")[:2]), set())
    } == set()


def test_every_module_of_the_checkout_is_one_that_the_contracts_see(
    graph: grimp.ImportGraph,
) -> None:
    homes = {"steno_protocol": "protocol", "stenod": "daemon", "steno": "client"}
    seen = {module for module in graph.modules if module.split(".")[0] in OURS}
    there = {
        ".".join(file.relative_to(PROJECT / home).with_suffix("").parts).removesuffix(".__init__")
        for home in homes.values()
        for file in (PROJECT / home).rglob("*.py")
    }
    assert seen == there

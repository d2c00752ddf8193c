"""A framework that is not installed, and a release of it that lacks a module."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interop import frameworks
from steno.adapters._optional import KIMI_CLI, KOSONG, base_class, framework
from support.project import PROJECT


def adapters_base(module: str) -> Any:
    return base_class(module, "Store")


def framework_of_adapter(module: str) -> Any:
    return framework(module, "google-adk")


@pytest.fixture(params=["missing.stores", "shared.missing.stores"])
def missing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> str:
    """A module of a package that is not installed, also in a folder that packages share."""
    (tmp_path / "shared" / "another").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    name: str = request.param
    return name


def test_an_adapter_without_its_framework_has_another_base(missing: str) -> None:
    assert adapters_base(missing) is object


def test_a_missing_framework_is_named_with_the_command(missing: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'stenod\[google-adk\]'"):
        framework_of_adapter(missing)


def test_the_tests_of_a_missing_framework_are_skipped(missing: str) -> None:
    with pytest.raises(pytest.skip.Exception):
        frameworks.framework(missing)


@pytest.mark.parametrize("load", [adapters_base, framework_of_adapter, frameworks.framework])
def test_a_module_that_a_release_lacks_is_an_error_of_its_name(
    load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'installed\.stores'$"):
        load("installed.stores")


def test_the_releases_of_the_programs_are_those_that_are_tested() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [each.partition(";")[0] for each in project["optional-dependencies"]["interop"]]
    assert pins == [KIMI_CLI, KOSONG]

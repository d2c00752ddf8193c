"""The versions that steno was tested with: those of all packages that a user's extras install."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.lower_bounds import APART, EXTRAS, lower_bounds
from support.project import PROJECT

FRAMEWORKS = ("claude-agent-sdk", "langgraph", "openai-agents", "pydantic-ai")
"""The extras whose packages are in the constraints of tests/interop."""

BESIDE = {
    **dict.fromkeys(FRAMEWORKS, "tests/interop/frameworks-constraints.txt"),
    **dict.fromkeys(APART, "tests/interop/frameworks-apart-constraints.txt"),
}
"""The constraints of an extra, beside those of all."""


def pinned(*names: str) -> set[str]:
    """The packages that constraint files pin."""
    texts = [(PROJECT / name).read_text(encoding="utf-8") for name in names]
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==", "\n".join(texts), re.MULTILINE)
    return {canonicalize_name(each) for each in pins}


def installed_by(wanted: list[str]) -> set[str]:
    """The packages that requirements install here, with all that those need."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(each) for each in wanted]
    while waiting:
        next_one = waiting.pop()
        known = (canonicalize_name(next_one.name), frozenset(next_one.extras))
        if known in found:
            continue
        found.add(known)
        for text in distribution(next_one.name).requires or []:
            need = Requirement(text)
            extras = [*next_one.extras, ""]
            marker = need.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in extras):
                waiting.append(need)
    return {name for name, _ in found}


@pytest.mark.parametrize("extra", [*EXTRAS, *APART, "docs"])
def test_each_package_of_an_extra_is_pinned(extra: str) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        packages = installed_by([*project["dependencies"], *extras_of(project, extra)])
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed")
    pins = pinned("constraints.txt", BESIDE.get(extra, "constraints.txt"))
    assert packages - pins == set()


def extras_of(project: dict[str, dict[str, list[str]]], extra: str) -> list[str]:
    return project["optional-dependencies"][extra]


def test_each_extra_has_a_lower_bound() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*lower_bounds(), *lower_bounds(APART)]
    bounds = {canonicalize_name(each.partition("==")[0]) for each in listed}
    for extra in (*EXTRAS, *APART):
        names = {canonicalize_name(Requirement(each).name) for each in extras_of(project, extra)}
        assert names <= bounds

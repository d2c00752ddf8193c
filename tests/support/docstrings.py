"""The public names of `steno` and their docstrings, read from the sources by griffe.

A public function describes its arguments, its result and its errors, a value its fields, and every
name has an example. Nothing is imported.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import griffe

from support.project import PROJECT

ENDS: Final = {"close", "aclose"}
"""Coroutines that end something, and raise nothing."""


def forget() -> None:
    """Read the sources again at the next call."""
    _modules.cache_clear()


@cache
def _modules() -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(
        search_paths=[str(PROJECT / "client"), str(PROJECT / "protocol")],
        docstring_parser="google",
        docstring_options={
            "returns_named_value": False,
            "returns_multiple_items": False,
            # `key, expect, durability: as in every mutation` describes three arguments.
            "warn_unknown_params": False,
            "warn_missing_types": False,
        },
        allow_inspection=False,
    )
    loader.load("steno_protocol")
    loader.load("steno")
    loader.resolve_aliases(external=False)
    return loader.modules_collection


def find(path: str) -> Any:
    """The object at a path; a name that is imported there is the object itself."""
    found: Any = _modules()[path]
    return found.final_target if found.is_alias else found


def public_names() -> list[str]:
    """The public names of `steno`, in the order of its `__all__`."""
    return [str(name).strip("'\"") for name in _modules()["steno"].exports or ()]


def gaps() -> list[str]:
    """The parts of the documentation that public names lack."""
    return [gap for name in public_names() for gap in _gaps_of(name)]


def members_of(name: str) -> dict[str, Any]:
    """The public methods and properties of a public class, in the order of the source."""
    found = find(f"steno.{name}")
    if not found.is_class:
        return {}
    members = {
        key: each
        for key, each in found.all_members.items()
        if not key.startswith("_") and (each.is_function or "property" in each.labels)
    }
    # A class's own methods are what its readers look for; the view of its state comes behind them.
    own = {key: each for key, each in members.items() if key in found.members}
    return own | members


def _differing(name: str) -> dict[str, Any]:
    """The members of a blocking class that its asynchronous class has not, or has otherwise."""
    asynchronous = members_of(name.removeprefix("Blocking"))
    return {
        key: each
        for key, each in members_of(name).items()
        if key not in asynchronous or _arguments(each) != _arguments(asynchronous[key])
    }


def documented_members(name: str) -> dict[str, Any]:
    """The members with a section of their own: for a blocking class the differing ones."""
    return _differing(name) if name.startswith("Blocking") else members_of(name)


def sections_of(found: Any) -> list[Any]:
    """The parsed sections of a docstring."""
    return list(found.docstring.parsed) if found.docstring else []


def section_of(found: Any, kind: str) -> Any:
    """The contents of the first section of a kind; None without one."""
    return next((each.value for each in sections_of(found) if each.kind.value == kind), None)


def example_of(found: Any) -> str:
    """The example of a docstring; empty without one."""
    for each in sections_of(found):
        if each.kind.value == "admonition" and each.title == "Example":
            return str(each.value.description)
    return ""


def parameters_of(found: Any) -> list[Any]:
    """The parameters of a function that its caller gives."""
    return [each for each in found.parameters if each.name not in ("self", "cls")]


def _arguments(found: Any) -> list[str]:
    return [each.name for each in parameters_of(found)] if found.is_function else []


def _gaps_of(name: str) -> Iterator[str]:
    found = find(f"steno.{name}")
    if name == "__version__":
        if not found.docstring:
            yield name
        return
    yield from lacking(name, found, is_class=found.is_class)
    for key, each in members_of(name).items():
        yield from lacking(f"{name}.{key}", each, is_class=False)


def lacking(name: str, found: Any, *, is_class: bool) -> Iterator[str]:
    """The sections that the docstring of a function, property or class lacks."""
    if not section_of(found, "text"):
        yield f"{name}: summary"
    if not example_of(found):
        yield f"{name}: Example"
    if is_class:
        # A class inherits the descriptions of its bases.
        classes = [found, *found.mro()]
        kinds = ("attributes", "parameters")
        described = {name for each in classes for kind in kinds for name in _described(each, kind)}
        yield from (f"{name}: {key} in Attributes" for key in _fields(found) - described)
    if is_class or not found.is_function:
        return
    described = _described(found, "parameters")
    yield from (f"{name}: {each} in Args" for each in _arguments(found) if each not in described)
    if str(found.returns) != "None" and not section_of(found, "returns"):
        yield f"{name}: Returns"
    if "async" in found.labels and found.name not in ENDS and not section_of(found, "raises"):
        yield f"{name}: Raises"


def _described(found: Any, kind: str) -> set[str]:
    """The names that a section describes; `key, expect: ...` describes two."""
    return {name.strip() for each in section_of(found, kind) or () for name in each.name.split(",")}


def _fields(found: Any) -> set[str]:
    """The public attributes that a class itself has, besides its properties."""
    return {
        key
        for key, each in found.members.items()
        if each.is_attribute and not key.startswith("_") and "property" not in each.labels
    }

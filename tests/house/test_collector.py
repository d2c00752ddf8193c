"""Structs that the garbage collector does not track."""

import enum
import importlib
import typing
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from support.project import PROJECT, SOURCES

LEAVES = {str, int, float, bool, bytes, type(None), msgspec.Raw, Any}
"""Any is decoded JSON: a tree without cycles."""


OF_EXTRAS = {"mcp", "mcp_types", "nats"}
"""Packages of extras that the tests of a newcomer do without."""


def _modules() -> Iterator[str]:
    for file in SOURCES:
        if file.stem != "__main__":
            yield ".".join(file.relative_to(PROJECT).with_suffix("").parts[1:])


def _structs(base: type[msgspec.Struct] = msgspec.Struct) -> Iterator[type[msgspec.Struct]]:
    for struct in base.__subclasses__():
        yield struct
        yield from _structs(struct)


def _unseen() -> dict[str, type[msgspec.Struct]]:
    """Every Struct of ours that the collector does not look at."""
    names = list(_modules())
    for name in names:
        # What needs an extra is looked at where that is installed.
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OF_EXTRAS:
                raise
    ours = {struct for struct in _structs() if struct.__module__ in names}
    return {
        f"{struct.__module__}.{struct.__qualname__}": struct
        for struct in ours
        if not struct.__struct_config__.gc
    }


def _is_leaf(hint: Any) -> bool:
    """True when values of this type contain only text, numbers and the like."""
    if hint in LEAVES or typing.get_origin(hint) is Literal:
        return True
    inner = typing.get_args(hint)
    if inner:
        return all(each is ... or _is_leaf(each) for each in inner if not _is_constraint(each))
    if not isinstance(hint, type):
        return False
    return issubclass(hint, enum.Enum) or (
        _has_fields(hint) and all(map(_is_leaf, typing.get_type_hints(hint).values()))
    )


def _is_constraint(hint: Any) -> bool:
    return isinstance(hint, msgspec.Meta)


def _has_fields(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields")


def test_an_untracked_struct_contains_no_reference_cycle() -> None:
    unseen = _unseen()
    assert unseen
    leading = [
        f"{name}.{field}: {hint}"
        for name, struct in sorted(unseen.items())
        for field, hint in typing.get_type_hints(struct, include_extras=True).items()
        if not _is_leaf(hint)
    ]
    assert leading == []


def test_a_struct_that_leads_to_others_is_noticed() -> None:
    class Held:
        pass

    assert not _is_leaf(Held)
    assert not _is_leaf(list[Held])
    assert not _is_leaf(Held | None)
    assert _is_leaf(tuple[str, ...] | None)

"""Names of a module that are imported when they are first used."""

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from typing import Any


def imported_on_use(
    namespace: MutableMapping[str, Any], homes: Mapping[str, str]
) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, which imports a name from its home and keeps it.

    Args:
        namespace: the module's `globals()`.
        homes: the names by the module that has them, separated by blanks.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def value(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        found = namespace[name] = getattr(import_module(home_of[name]), name)
        return found

    return value

"""In which line of a TOML file each key stands, which Python's reader does not tell."""

import tomllib
from collections.abc import Iterator
from typing import Any


def lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key and table, counted from 1, by its path; the first one if it has several.

    The file is cut into the smallest runs of lines that are TOML by themselves: a header, or one
    statement with all of its lines.

    >>> lines_of_keys('[log]\\nlevel = "info"')[("log", "level")]
    2
    """
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    run, first = "", 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        run += line
        try:
            parsed: dict[str, Any] = tomllib.loads(run)
        except tomllib.TOMLDecodeError:
            continue
        paths = list(_paths(parsed))
        if run.lstrip().startswith("["):
            table = paths[-1]
            paths = [table[:size] for size in range(1, len(table) + 1)]
        else:
            paths = [table + path for path in paths]
        for path in paths:
            found.setdefault(path, first)
        run, first = "", number + 1
    return found


def _paths(parsed: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in parsed.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *rest) for rest in _paths(value))  # pyright: ignore[reportUnknownArgumentType]  # tables hold anything

"""A TOML file with the line number of each key, which Python's parser does not report."""

import tomllib
from collections.abc import Iterator
from typing import Any

from steno_protocol.errors import BadRequest


class _TooMuch(ValueError):
    """The statement that begins in this line is TOML, and more than can be taken in."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def read_toml(text: str, path: str) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """The contents of a file, and the line of each key and table from `lines_of_keys`.

    Raises:
        BadRequest: it is no TOML, or has a number or a nesting that the reader cannot take in.
    """
    try:
        return tomllib.loads(text), lines_of_keys(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{path}: this is no TOML: {error}") from None
    except (ValueError, RecursionError):
        raise BadRequest(
            f"{path}:{_line_of_too_much(text)}: a number has too many digits, or tables or arrays"
            " are nested too deeply: no option needs that"
        ) from None


def lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """The line of each key and table, counted from 1, by its path; the first one if it has several.

    The file is cut into the smallest runs of lines that are TOML by themselves: a header, or one
    statement with all of its lines.

    Raises:
        ValueError: a statement is too much for the reader.

    >>> lines_of_keys('[log]\\nlevel = "info"')[("log", "level")]
    2
    """
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    run, first = "", 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        run += line
        try:
            paths = list(_paths(tomllib.loads(run)))
        except tomllib.TOMLDecodeError:
            continue
        except (ValueError, RecursionError):
            raise _TooMuch(first) from None
        if run.lstrip().startswith("["):
            table = paths[-1]
            paths = [table[:size] for size in range(1, len(table) + 1)]
        else:
            paths = [table + path for path in paths]
        for path in paths:
            found.setdefault(path, first)
        run, first = "", number + 1
    return found


def _line_of_too_much(text: str) -> int:
    try:
        lines_of_keys(text)
    except _TooMuch as found:
        return found.line
    return 1


def _paths(parsed: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in parsed.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *rest) for rest in _paths(value))  # pyright: ignore[reportUnknownArgumentType]  # tables hold anything

"""The examples of docstrings, run like a session at a prompt that may await."""

import ast
import doctest
import inspect
import io
import traceback
from collections.abc import Awaitable
from contextlib import redirect_stdout
from types import CodeType, FunctionType
from typing import Any, Final

_OUTPUT: Final = doctest.OutputChecker()
_OPTIONS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples_in(docstring: str) -> list[doctest.Example]:
    """The examples of a docstring, in order."""
    return doctest.DocTestParser().get_examples(docstring)


async def run_async(examples: list[doctest.Example], names: dict[str, Any]) -> list[str]:
    """Run examples that may await; return each difference from the printed output."""
    wrong: list[str] = []
    for example in examples:
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                await _call(_compiled(example), names)
        except Exception as error:  # noqa: BLE001, RUF100  # an example may print any error
            printed.write(_raised(error))
        wrong += _difference(example, printed.getvalue())
    return wrong


def run_blocking(examples: list[doctest.Example], names: dict[str, Any]) -> list[str]:
    """Run examples without an event loop; return each difference from the printed output."""
    coroutine = run_async(examples, names)
    try:
        coroutine.send(None)
    except StopIteration as end:
        wrong: list[str] = end.value
        return wrong
    coroutine.close()
    return ["an example of the blocking client awaits"]


def _compiled(example: doctest.Example) -> CodeType:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(example.source, "<example>", "single", flags, dont_inherit=True)


async def _call(code: CodeType, names: dict[str, Any]) -> None:
    result = FunctionType(code, names)()
    if inspect.iscoroutine(result):
        awaited: Awaitable[None] = result
        await awaited


def _raised(error: Exception) -> str:
    """The last line of a traceback, with a public error as the reader imports it."""
    (line,) = traceback.format_exception_only(error)[-1:]
    return "Traceback (most recent call last):\n" + line.replace("steno_protocol.errors.", "steno.")


def _difference(example: doctest.Example, printed: str) -> list[str]:
    wanted = example.want
    if example.exc_msg is not None:
        wanted = f"Traceback (most recent call last):\n{example.exc_msg}"
    if _OUTPUT.check_output(wanted, printed, _OPTIONS):
        return []
    return [f"{example.source}wanted: {wanted or 'nothing'}\nprinted: {printed or 'nothing'}"]

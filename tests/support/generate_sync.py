"""`python -m support.generate_sync`: the blocking client's verbs, generated from the async ones.

The async client is the source. A blocking module is its async module with these changes, in this
order:

1. Parts that only one client has are dropped: `DROPPED` and `DROPPED_LINES`.
2. Phrases that differ are replaced: `PHRASES`. Each of them has to occur exactly once.
3. `async` and `await` go, and names change: `NAMES`, in code and in documentation.
4. ruff sorts the imports and formats the result.
"""

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Final

from support.project import PROJECT

COMMAND: Final = "PYTHONPATH=tests python -m support.generate_sync"

CLIENT: Final = PROJECT / "client" / "steno"

MODULES: Final = ("client", "record_list", "session", "stream", "streams")
"""Modules of `steno._async` that are the source of a module of `steno._sync`."""

NAMES: Final = {
    "_async": "_sync",
    "aclose": "close",
    "anext": "next",
    "AsyncIterator": "Iterator",
    "Client": "BlockingClient",
    "connect": "connect_sync",
    "DecodedStream": "BlockingDecodedStream",
    "LineStream": "BlockingLineStream",
    "Link": "BlockingLink",
    "RecordList": "BlockingRecordList",
    "RecordStream": "BlockingRecordStream",
    "Session": "BlockingSession",
    "Stream": "BlockingStream",
    "StreamRecords": "BlockingStreamRecords",
    "StopAsyncIteration": "StopIteration",
    "Subscription": "BlockingSubscription",
    "Summarize": "BlockingSummarize",
    "WireRecordStream": "BlockingWireRecordStream",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
"""Names of the async client, and those of the blocking client in their place."""

DROPPED: Final = {
    "client": ("Client.__init__", "Client.__aenter__", "Client.__aexit__", "Client.welcome"),
    "record_list": (),
    "session": ("Session.wait_for",),
    "stream": (),
    "streams": (),
}
"""Methods that `steno._sync.bases` has in another form."""

DROPPED_LINES: Final = ("import anyio.lowlevel", "await anyio.lowlevel.checkpoint()")
"""Lines about the event loop."""

_CODE: Final = re.compile(r"`[^`\n]+`|^ *(?:>>>|\.\.\.) .*$", re.MULTILINE)
"""Code inside a documentation: in backticks, or a line of an example."""

PHRASES: Final[dict[str, Sequence[tuple[str, str]]]] = {
    "client": (
        (
            '"""The async client: one connection for any number of tasks and sessions."""',
            '"""The blocking client: one connection for any number of threads and sessions."""',
        ),
        ("from types import TracebackType\n", ""),
        ("from typing import Literal, Self\n", "from typing import Literal\n"),
        (
            "from steno._sansio.view import NotPicklable\n",
            "from steno._sync.bases import ConnectedClient\n",
        ),
        ("class Client(NotPicklable):", "class Client(ConnectedClient):"),
        (
            '''\
    """Make a client of the daemon of `root`, used as `async with steno.connect() as client`.
''',
            '''\
    """Connect to the daemon of `root`; used as `with steno.connect_sync() as client`.
''',
        ),
        (
            """\
        The client, which `async with` connects.

    Raises:
        BadRequest: an argument is out of range. `async with` raises the errors of connecting.
""",
            """\
        The client, connected until `close`.

    Raises:
        BadRequest: an argument is out of range.
        Unreachable: there is no daemon, and none could be started.
        Incompatible: the answer is not from the wanted daemon.
""",
        ),
        (
            """\
    Several tasks may use one client at once. A cancelled call leaves the client intact; its command
    may have been applied, and the caller may repeat it with the same key.

    A client is entered once, and belongs to the event loop that it was entered in. On asyncio one
    task may enter it and another one leave it; on trio one task has to do both.
""",
            """\
    Several threads may use one client at once: their requests are sent one after the other, in
    order. A request whose turn does not come within `timeout` seconds ends with Busy, and was not
    sent. A thread that waits for an event, or for a history to arrive, delays no other thread.
    Events for histories and subscriptions are taken in during calls.

    A signal handler may end a call by raising; the client is intact after it. It must not use a
    client that its own thread is in a call of: that ends with Busy.
""",
        ),
    ),
    "record_list": (
        (
            '"""A list with edits on a stream, through an async client."""',
            '"""A list with edits on a stream, through a blocking client."""',
        ),
    ),
    "session": (
        (
            '"""One session, through an async client."""',
            '"""One session, through a blocking client."""',
        ),
        (
            "from steno._sansio.view import SessionView\n",
            "from steno._sync.bases import RefreshedSession\n",
        ),
        ("class Session(SessionView):", "class Session(RefreshedSession):"),
        (
            """\
    once; `written` is faster only with `follow=False`. A cancelled call may have been applied:
    repeat it with the same key to find out.
""",
            """\
    once; `written` is faster only with `follow=False`. An interrupted call may have been applied:
    repeat it with the same key to find out. The history follows other writers at each call, and on
    `refresh`.
""",
        ),
        (
            """\
            after: `start` (of the present generation), `now`, or a position. `now` is the instant
                at which `async with` on the subscription was entered.
""",
            """\
            after: `start` (of the present generation), `now`, or a position. `now` is an instant
                before this returns.
""",
        ),
        (
            """\
            The subscription; the description of its class states when it begins.
""",
            """\
            The subscription; the description of its class states when it begins.

        Raises:
            NotFound, Unreachable: the daemon did not answer with the position of `now`.
""",
        ),
        (
            "        timeout: float | None = None,\n",
            "        lease: float = limits.COMPACTION_SILENT_LEASE_MS / 1000,\n",
        ),
        ("import commands, replies, wire\n", "import commands, limits, replies, wire\n"),
        ("ModelCall(summarize, timeout)", "ModelCall(summarize, lease)"),
        (
            "            summarize: an async function that gets",
            "            summarize: a function that gets",
        ),
        (
            "            timeout: seconds that `summarize` may take; None is no limit.\n",
            """\
            lease: seconds after which other clients may begin. The lease is not renewed while
                `summarize` runs, and `summarize` is not ended after it.
""",
        ),
        ("            Expired: `summarize` took longer than `timeout`.\n", ""),
        (
            """\
            Exception: an error of `summarize`. This, all other errors, and a cancellation before
                the summary was there leave the session unchanged.
""",
            """\
            Exception: an error of `summarize`. This, all other errors, and an interrupt before
                the summary was there leave the session unchanged.
""",
        ),
    ),
    "stream": (
        (
            '"""One stream of a session, through an async client."""',
            '"""One stream of a session, through a blocking client."""',
        ),
        ("Follow it with `async for`: the", "Follow it with `for`: the"),
    ),
    "streams": (
        (
            "from collections.abc import AsyncIterator, Callable, Iterator\n",
            "from collections.abc import Callable, Iterator\n",
        ),
    ),
}
"""Text of an async module, and the text of its blocking module in its place."""


def generated(module: str) -> str:
    """The source of a blocking module, not yet formatted."""
    text = (CLIENT / "_async" / f"{module}.py").read_text(encoding="utf-8")
    text = _without_dropped(text, DROPPED[module])
    for old, new in PHRASES[module]:
        if text.count(old) != 1:
            raise ValueError(f"{module}: this occurs {text.count(old)} times, not once: {old}")
        text = text.replace(old, new)
    source = f"client/steno/_async/{module}.py"
    header = f"# Generated from {source}, which is the file to edit, by:\n# {COMMAND}\n"
    return header + "".join(_blocking_tokens(text))


def written(module: str) -> str:
    """The source of a blocking module as it is checked in."""
    return (CLIENT / "_sync" / f"{module}.py").read_text(encoding="utf-8")


def meaning(text: str) -> tuple[str, list[str]]:
    """The code and the comments of a module, however it is formatted and its imports are sorted."""
    tree = ast.parse(text)
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    others = _WithoutImports().visit(tree).body
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    code = [*sorted(map(ast.dump, imports)), *map(ast.dump, others)]
    return "\n".join(code), comments


class _WithoutImports(ast.NodeTransformer):
    """Removes the imports of a module, also those inside its blocks and functions."""

    def visit_Import(self, node: ast.Import) -> None:
        """Remove `import name`."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Remove `from module import name`."""


def _without_dropped(text: str, names: Sequence[str]) -> str:
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    methods = {
        f"{each.name}.{method.name}": method
        for each in tree.body
        if isinstance(each, ast.ClassDef)
        for method in each.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for name in names:
        method = methods[name]
        first = min([method.lineno, *(each.lineno for each in method.decorator_list)])
        assert method.end_lineno is not None
        # With the blank line behind it.
        for number in range(first - 1, method.end_lineno + 1):
            lines[number] = ""
    return "".join(line for line in lines if line.strip() not in DROPPED_LINES)


def _blocking_tokens(text: str) -> Iterator[str]:
    """The text in pieces, without `async` and `await`, and with the blocking names."""
    # The tokens at the end of the text are on a line of their own.
    lines = [*text.splitlines(keepends=True), ""]
    row, column = 1, 0
    for token in tokenize.generate_tokens(StringIO(text).readline):
        # The white space between the tokens.
        for number in range(row, token.start[0]):
            yield lines[number - 1][column:]
            column = 0
        gap = lines[token.start[0] - 1][column : token.start[1]]
        row, column = token.end
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            yield gap
            # The space behind it goes, too.
            column += 1
        elif token.type == tokenize.NAME:
            yield gap + NAMES.get(token.string, token.string)
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            yield gap + _blocking_words(token.string)
        else:
            yield gap + token.string


def _blocking_words(text: str) -> str:
    """A string or comment with the blocking names, where it quotes code or is one name."""
    if text.startswith(('"""', 'r"""', "#")):
        return _CODE.sub(lambda code: _blocking_code(code[0]), text)
    return re.sub(r'^"(\w+)"$', lambda name: f'"{NAMES.get(name[1], name[1])}"', text)


def _blocking_code(code: str) -> str:
    code = re.sub(r"\(await ([\w.]+\([^()]*\))\)", r"\1", code)
    code = re.sub(r"\b(?:async (?=for|with|def)|await )", "", code)
    return re.sub(r"\w+", lambda word: NAMES.get(word[0], word[0]), code)


def main() -> None:
    """Write the blocking modules."""
    files = [CLIENT / "_sync" / f"{module}.py" for module in MODULES]
    for module, file in zip(MODULES, files, strict=True):
        file.write_text(generated(module), encoding="utf-8")
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *files], check=True, cwd=PROJECT)


if __name__ == "__main__":
    main()

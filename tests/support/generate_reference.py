"""`python -m support.generate_reference`: the pages of the Python API, from its docstrings.

griffe reads the sources; nothing is imported. A page of `client/guide/reference/` has one section
for each public name: its signature, description, arguments, result, errors and example.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import griffe

from steno._sansio import view
from steno_protocol import limits
from support.docstrings import (
    documented_members,
    find,
    gaps,
    members_of,
    parameters_of,
    public_names,
    section_of,
    sections_of,
)  # fmt: skip
from support.project import PROJECT

COMMAND: Final = "PYTHONPATH=tests python -m support.generate_reference"

FOLDER: Final = PROJECT / "client" / "guide" / "reference"


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its title, its introduction, and the public names that it describes."""

    title: str
    introduction: str
    names: Sequence[str]


PAGES: Final = {
    "client.md": Page(
        "Clients",
        "A client is the connection to a daemon; it opens, lists and deletes sessions.",
        ("connect", "connect_sync", "Client", "BlockingClient", "__version__"),
    ),
    "session.md": Page(
        "Sessions",
        "A session is read and written through its client.",
        (
            "Session", "BlockingSession", "Stream", "BlockingStream", "RecordList",
            "BlockingRecordList",
        ),
    ),
    "subscription.md": Page(
        "Subscriptions and their events",
        "A subscription delivers the events of a session in order, also across restarts.",
        ("Subscription", "BlockingSubscription", "RecordsEvent", "Live", "Reset", "DmailEvent"),
    ),
    "values.md": Page(
        "Values",
        "Methods return these immutable values.",
        (
            "Ack", "Checkpoint", "SentMail", "Position", "Record", "WireRecord", "Turn", "Summary",
            "Compacted", "Mail", "Deleted", "StreamRecord", "StreamInfo", "ListState",
        ),
    ),
    "errors.md": Page(
        "Errors",
        "Every error is a `StenoError`, with a message that names the cause, the place and the"
        " remedy. [Troubleshooting](../troubleshooting.md) lists the messages.",
        (
            "StenoError", "Outcome", "OutcomeUnknown", "Refused", "BadRequest", "NotFound",
            "Exists", "Conflict", "Expired", "Busy", "Held", "TooLarge", "StorageFailed", "Corrupt",
            "Incompatible", "Unauthorized", "ShuttingDown", "Internal", "Unreachable",
        ),
    ),
}  # fmt: skip
"""Every public name of `steno`, by page."""

REPLIES: Final = (
    "steno_protocol.replies.SessionEntry",
    "steno_protocol.replies.SessionStat",
    "steno_protocol.timeline_entries.TimelineEntry",
    "steno_protocol.context.ContextState",
    "steno_protocol.context.UsageEntry",
    "steno_protocol.replies.Verification",
    "steno_protocol.replies.CheckedFile",
    "steno_protocol.replies.CheckFinding",
    "steno_protocol.replies.StatusReport",
    "steno_protocol.replies.ClientsReport",
    "steno_protocol.replies.ClientEntry",
    "steno_protocol.replies.Welcome",
)
"""Classes that methods return, and that a program seldom has to import."""

ALIASES: Final = (
    "steno._sansio.messages.Message",
    "steno._sansio.requests.PositionLike",
    "steno._sansio.requests.Durability",
    "steno._sansio.past_state.PastState",
    "steno._sansio.event_merge.Followed",
    "steno._sansio.wire_events.Payload",
    "steno._sansio.wire_events.WireEvent",
    "steno._sansio.summaries.Summarize",
    "steno._sansio.summaries.BlockingSummarize",
    "steno.values.File",
    "steno.values.SubscriptionEvent",
)
"""Names in signatures that stand for other types."""

INTRODUCTION: Final = """\
# The Python API

Every public name of `steno` is on one of these pages.
Each has its signature, its errors and an example, and a test runs every example.
The [guide](../python.md) explains how the names are used together.

`Client`, `Session` and `Subscription` are asynchronous, for asyncio and trio.
The classes `BlockingClient`, `BlockingSession` and `BlockingSubscription` have the same methods\
 without `await`.
The sections of the blocking classes list only the differences.

In the examples `client` is connected with the name `planner`.
`session` is the session `talk`, with the message "hi" and checkpoint 0.
"""

_WIDTH: Final = 88
"""Characters in a line of a signature."""


class Undocumented(Exception):
    """Public names lack a part of their documentation; each argument is one of them."""


def pages() -> dict[str, str]:
    """Every page of the reference by its file name."""
    made = {name: _page(page) for name, page in PAGES.items()}
    made["values.md"] += _further_values()
    return {"README.md": _index()} | made


def _index() -> str:
    lines = [_header(), INTRODUCTION]
    for file, page in PAGES.items():
        lines += [f"## [{page.title}]({file})\n", "| name | description |", "| --- | --- |"]
        for name in page.names:
            lines.append(
                f"| [`{name}`]({file}{_anchor(name)}) | {_summary(find(f'steno.{name}'))} |"
            )
            members = [
                f"[`{key}`]({file}{_anchor(f'{name}.{key}')})"
                for key in sorted(documented_members(name))
            ]
            if members:
                lines.append(f"| | {', '.join(members)} |")
        lines.append("")
    lines += [
        "## Names in signatures\n",
        "| name | stands for | description |",
        "| --- | --- | --- |",
    ]
    for path in ALIASES:
        alias = find(path)
        meaning = str(alias.value).replace("|", "\\|")
        lines.append(f"| `{alias.name}` | `{meaning}` | {_summary(alias)} |")
    return "\n".join(lines) + "\n"


def _header() -> str:
    return f"<!-- Generated from the docstrings by: {COMMAND} -->"


def _page(page: Page) -> str:
    parts = [_header(), f"# {page.title}\n\n{page.introduction}"]
    for name in page.names:
        parts += _described(name)
    return "\n\n".join(parts) + "\n"


def _described(name: str) -> Iterator[str]:
    found = find(f"steno.{name}")
    yield f"## `{name}`"
    if name == "__version__":
        yield f"```python\n{name}: str\n```"
        yield _prose(found.docstring.value)
        return
    yield from _body(name, found)
    members = documented_members(name)
    if name.startswith("Blocking"):
        yield _differences(name, members)
    elif members:
        yield ", ".join(f"[`{key}`]({_anchor(f'{name}.{key}')})" for key in sorted(members))
    for key, each in members.items():
        yield f"### `{name}.{key}`"
        yield from _body(key, each)


def _differences(name: str, members: dict[str, Any]) -> str:
    asynchronous = name.removeprefix("Blocking")
    missing = sorted(members_of(asynchronous).keys() - members_of(name).keys())
    lacking = "" if not missing else f", except {', '.join(f'`{key}`' for key in missing)}"
    others = (
        f" It differs in {', '.join(f'`{key}`' for key in sorted(members))}:" if members else ""
    )
    return (
        f"It has the methods and properties of `{asynchronous}` without `await`{lacking}.{others}"
    )


def _body(name: str, found: Any) -> Iterator[str]:
    if found.is_function or "property" in found.labels:
        yield f"```python\n{_signature(name, found)}\n```"
    elif not any(str(base).endswith("Exception") for base in found.bases):
        bases = [str(base) for base in found.bases if str(base) in public_names()]
        if bases:
            yield f"```python\nclass {name}({', '.join(bases)})\n```"
    for each in sections_of(found):
        match each.kind.value:
            case "text":
                yield _prose(each.value)
            case "parameters":
                yield "**Arguments**\n\n" + _items(_typed(found, item) for item in each.value)
            case "attributes":
                yield "**Attributes**\n\n" + _items(
                    (item.name, item.annotation, item.description) for item in each.value
                )
            case "returns":
                yield f"**Returns** {_prose(_unsplit(found, each.value[0]))}"
            case "raises":
                yield "**Raises**\n\n" + _items(
                    (str(item.annotation).strip("()"), None, item.description)
                    for item in each.value
                )
            case "admonition":
                yield f"```pycon\n{each.value.description}\n```"
            case other:
                raise Undocumented(f"{name} has a section {other}")


def _typed(found: Any, item: Any) -> tuple[str, Any, str]:
    """A described argument with its type; several arguments together have none."""
    known = {each.name: each.annotation for each in found.parameters} if found.is_function else {}
    return item.name, known.get(item.name), item.description


def _items(items: Iterable[tuple[str, Any, str]]) -> str:
    return "\n".join(
        f"* {', '.join(f'`{part.strip()}`' for part in name.split(','))}"
        f"{f' (`{annotation}`)' if annotation is not None else ''}: {_flat(text)}"
        for name, annotation, text in items
    )


def _unsplit(found: Any, item: Any) -> str:
    """The text of a result; griffe takes a colon in it for the end of a type."""
    own = str(found.returns) if found.is_function else ""
    is_split = item.annotation is not None and str(item.annotation) != own
    return f"{item.annotation}: {item.description}" if is_split else str(item.description)


def _signature(name: str, found: Any) -> str:
    if not found.is_function:
        return f"{name}: {found.annotation}"
    prefix = "await " if "async" in found.labels else ""
    result = f" -> {found.returns}".replace("'", "").replace('"', "")
    given = list(_given(parameters_of(found)))
    line = f"{prefix}{name}({', '.join(given)}){result}"
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"    {each},\n" for each in given)
    return f"{prefix}{name}(\n{inner}){result}"


def _given(parameters: list[Any]) -> Iterator[str]:
    """The parameters as they stand in a signature."""
    is_keyword = False
    for each in parameters:
        if each.kind is griffe.ParameterKind.keyword_only and not is_keyword:
            is_keyword = True
            yield "*"
        default = "" if each.default is None else f" = {_value(str(each.default))}"
        yield f"{each.name}: {each.annotation}{default}"


def _value(default: str) -> str:
    """A default as a reader would write it; a named bound is shown by its number."""
    return repr(eval(default, {"limits": limits, **vars(view)})).replace("'", '"')


def _summary(found: Any) -> str:
    """The first sentence of a docstring, for a cell of a table."""
    first = _flat(found.docstring.value.split("\n\n")[0])
    return re.split(r"(?<=\.) ", first)[0].replace("|", "\\|")


def _prose(text: str) -> str:
    """Paragraphs with one sentence a line."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(re.sub(r"(?<=\.) (?=[A-Z`])", "\n", _flat(each)) for each in paragraphs)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _anchor(name: str) -> str:
    return "#" + re.sub(r"[^\w-]", "", name.lower())


def _further_values() -> str:
    parts = [
        "\n## Values of the protocol",
        "Some methods return these values as the daemon sent them; their positions are texts.",
    ]
    for path in REPLIES:
        found = find(path)
        parts += [f"### `{found.name}`", f"`{path}`", *_further(found)]
    return "\n\n".join(parts) + "\n"


def _further(found: Any) -> Iterator[str]:
    yield _prose(section_of(found, "text"))
    described = {each.name: each.description for each in section_of(found, "attributes") or ()}
    fields = {
        key: each
        for key, each in found.members.items()
        if each.is_attribute and not key.startswith("_")
    }
    yield _items(
        (key, each.annotation, described.get(key) or each.docstring.value)
        for key, each in fields.items()
    )
    if found.name == "TimelineEntry":
        yield "The kinds:\n\n" + _items(_kinds(found.parent))


def _kinds(module: Any) -> Iterator[tuple[str, None, str]]:
    """The kinds of a timeline's entries, with their meaning."""
    own = {key: each for key, each in module.members.items() if not each.is_alias}
    for key, each in own.items():
        if each.is_attribute and str(each.value) == repr(key.lower()):
            yield key.lower(), None, _flat(each.docstring.value)


def main() -> None:
    """Write the pages."""
    logging.basicConfig(level=logging.WARNING)
    if lacking := gaps():
        raise Undocumented(*lacking)
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
